"""The command as a user meets it: real processes, exit codes, one line per error."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import invoke
from processes import ENVIRONMENT, error_of, start, stockpot
from stockpot.cli import doctor
from stockpot.results.store import ResultStore


def cpu_seconds(*command: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=os.environ | ENVIRONMENT)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before.ru_utime


def test_help_and_list_are_quick_and_without_torch() -> None:
    code = (
        "import sys; from stockpot.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    )
    # In units of what the packages take that a command cannot do without, on whatever machine.
    needed = "import rich.progress, rich.table, typer; from pydantic import BaseModel"
    floor = cpu_seconds(sys.executable, "-c", needed)
    for arguments in (["--help"], ["list", "fusers"], ["list", "datasets", "--json"]):
        assert cpu_seconds(sys.executable, "-c", code, *arguments) < 6 * floor, arguments


@pytest.mark.parametrize(
    "command", ["run", "measure", "harden", "report", "list", "show", "data get"]
)
def test_every_help_ends_with_two_examples(command: str) -> None:
    text = invoke(*command.split(), "--help").output
    _, _, examples = text.partition("Examples:")
    assert examples.count("stockpot ") >= 2


def test_lists_are_json() -> None:
    rows = json.loads(invoke("list", "datasets", "--json").output)
    assert {"icons", "cifar10", "imagefolder"} <= {row["name"] for row in rows}


def test_show_prints_parameters() -> None:
    text = invoke("show", "clean").output
    assert "class_space" in text
    assert "equal-width confidence bins" in text


def test_doctor_answers() -> None:
    rows = {row["what"]: row for row in json.loads(invoke("doctor", "--json").output)}
    assert rows["torch"]["state"] == "ok"
    assert rows["timm"]["state"] in ("ok", "absent (optional)", "broken")
    assert rows["onnxruntime"]["state"] == "ok"
    if rows["timm"]["state"].startswith("absent"):
        assert "stockpot[timm]" in invoke("doctor").output


@pytest.mark.parametrize(("off", "state"), [(True, "not kept"), (False, "ok")])
def test_doctor_tells_of_bytecode_that_is_made_anew(
    off: bool, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.importlib.util, "cache_from_source", lambda file: "/no/such.pyc")
    monkeypatch.setattr(doctor.sys, "dont_write_bytecode", off)
    monkeypatch.setattr(doctor.os, "access", lambda *_: True)
    found = doctor._bytecode()
    assert found.state == state
    assert ("python -m compileall" in found.detail) == off


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "dataset"], "Did you mean datasets"),
        (["validate", "recipes/dmeo.yaml"], "no recipe at recipes/dmeo.yaml"),
        (["measure", "icons-resnet", "--data", "icnos"], "Did you mean icons"),
        (["measure", "icons-resnet", "--data", "icons", "--with", "claen"], "Did you mean clean"),
        (["measure", "/no/such/model", "--data", "icons"], "no model at '/no/such/model'"),
        (["data", "get", "cifar"], "Did you mean cifar10"),
        (["report", "/no/such/run"], "no results at /no/such/run"),
        (["harden", "nominl", "icons-vit", "--data", "icons", "-o", "x"], "Did you mean nominal"),
        (["measure", "a", "--data", "icons", "-p", "top"], "expected KEY=VALUE"),
        (["measure", "icons-vit", "--data", "icons", "--device", "gpu"], "got 'gpu'"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke(*arguments)
    assert done.exit_code == 1
    assert words in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "claen"], "Did you mean clean"),
        (
            ["fuse", "average", "icons-vit-plain", "icons-vit", "-o", "/dev/null/x"],
            "cannot write /dev/null",
        ),
    ],
)
def test_mistakes_are_answered_with_one_line(arguments: list[str], words: str) -> None:
    assert words in error_of(stockpot(*arguments))


def test_usage_errors_end_with_two() -> None:
    result = stockpot("mesure")
    assert result.returncode == 2
    assert "Did you mean 'measure'" in result.stderr


def test_measure_prints_and_saves(pico_vit: Path, toy_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = stockpot(
        "measure", f"pico={pico_vit}", "--data", toy_file, "--with", "clean", "-o", run
    )
    assert result.returncode == 0, result.stderr
    assert "pico" in result.stdout
    assert "accuracy" in result.stdout
    (cell,) = ResultStore(run / "results")
    assert cell.score("accuracy").n == 40
    printed = stockpot(
        "measure", f"pico={pico_vit}", "--data", toy_file, "-o", run, "--json"
    ).stdout
    assert json.loads(printed)[0]["scores"][0]["metric"] == "accuracy"
    assert stockpot("report", run).returncode == 0
    assert "pico" in (run / "report.html").read_text()
    assert stockpot("export", run, "--format", "csv", "-o", tmp_path / "r.csv").returncode == 0


def test_partial_failure_ends_with_three(pico_vit: Path, toy_file: Path, tmp_path: Path) -> None:
    result = stockpot(
        "measure", f"good={pico_vit}", "bad=/no/model", "--data", toy_file, "-o", tmp_path / "run"
    )
    assert "1 of 2 cells failed, 1 are saved" in error_of(result, code=3)


RECIPE = """\
version: 1
data:
  toy: {{dataset: {data}}}
models:
  a: {{load: {model}}}
  b: {{load: {model}}}
harden:
  c: {{method: nominal, model: a, data: toy, epochs: 4, batch_size: 8}}
measure:
  with:
    - {{measure: clean, data: toy}}
    - {{measure: clean, data: toy, top: 2, models: [a, c]}}
report: {{title: Toy}}
"""


@pytest.fixture
def recipe(pico_vit: Path, toy_file: Path, tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE.format(data=toy_file, model=pico_vit))
    return path


def cells(run: Path) -> dict[str, object]:
    return {
        path.name: (result.scores, result.outcomes)
        for path, result in zip(
            sorted((run / "results").glob("*.json")), ResultStore(run / "results"), strict=True
        )
    }


def test_run_validates_plans_and_finishes(recipe: Path, tmp_path: Path) -> None:
    assert "well formed" in stockpot("validate", recipe).stdout
    plan = stockpot("run", recipe, "--dry-run", "-o", tmp_path / "run").stdout
    assert "a x clean x toy: to measure" in plan
    assert not (tmp_path / "run").exists()
    done = stockpot("run", recipe, "-o", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("report.html")
    assert len(cells(tmp_path / "run")) == 5


def test_wrong_recipes_name_their_line(recipe: Path) -> None:
    text = recipe.read_text()
    recipe.write_text(
        text.replace("measure: clean, data: toy, top", "measure: clean, data: toy, tpo")
    )
    assert f"{recipe}:12" in (line := error_of(stockpot("validate", recipe)))
    assert "Did you mean top" in line
    recipe.write_text(text.replace("method: nominal", "method: nominl"))
    assert "Did you mean nominal" in error_of(stockpot("run", recipe))


def test_killed_three_times_and_run_again_gives_the_same(recipe: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert stockpot("run", recipe, "-o", whole).returncode == 0
    written: dict[str, float] = {}
    for wanted in (1, 2, 4):  # kill once this many cells are on disk
        process = start("run", recipe, "-o", broken)
        while len(list((broken / "results").glob("*.json"))) < wanted and process.poll() is None:
            time.sleep(0.005)
        process.send(signal.SIGKILL)
        process.wait()
        for path in (broken / "results").glob("*.json"):
            stamp = path.stat().st_mtime_ns
            assert written.setdefault(path.name, stamp) == stamp, "a finished cell was repeated"
    assert stockpot("run", recipe, "-o", broken).returncode == 0
    for name, stamp in written.items():
        assert (broken / "results" / name).stat().st_mtime_ns == stamp
    assert cells(broken) == cells(whole)
    assert not list(broken.rglob("*.tmp"))


def test_interrupt_is_one_line(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(recipe.read_text().replace("epochs: 4,", "epochs: 4000,"))
    process = start("run", recipe, "-o", tmp_path / "run")
    while not list((tmp_path / "run").rglob(".*.partial/*.pt")) and process.poll() is None:
        time.sleep(0.01)
    process.send(signal.SIGINT)
    assert "interrupted" in error_of(process.wait(), 130)


def test_fresh_leaves_other_folders_alone(recipe: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    assert "not a run folder" in error_of(stockpot("run", recipe, "-o", precious, "--fresh"))
    assert (precious / "thesis.txt").exists()


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="needs to mount")
def test_a_full_disk_is_one_line(pico_vit: Path, toy_file: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=False, stderr=-3
    )
    if mounted.returncode:
        pytest.skip("this system does not let us mount a small disk")
    try:
        with pytest.raises(OSError, match="No space left"):
            (small / "filler").write_bytes(bytes(1 << 20))
        result = stockpot("measure", pico_vit, "--data", toy_file, "-o", small / "run")
        line = error_of(result)
        assert "No space left on device" in line
        assert not list(small.rglob("*.json"))
    finally:
        subprocess.run(["umount", str(small)], check=True)

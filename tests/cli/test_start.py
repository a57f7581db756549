"""What a command does not need it does not import; what it took stands in its result."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules

import pytest

from commands import invoke
from stockpot import cli
from stockpot.checkpoints.resolve import zoo_folder, zoo_names
from stockpot.cli import measure
from stockpot.cli.commands import Commands
from stockpot.cli.reading import read_ahead
from stockpot.datasets.stream import geometry, look_ahead, processes
from stockpot.models.load import expected_preprocess, takes_classes
from stockpot.results.store import load_results

HEAVY = ("transformers", "scipy", "datasets", "torch._dynamo", "torch.distributed.tensor", "sympy")


def test_measuring_a_resnet_on_icons_imports_no_heavy_package() -> None:
    code = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "from stockpot.cli.main import app\n"
        "app(['measure', 'icons-resnet', '--data', 'icons', '--limit', '8', '--json'],\n"
        "    standalone_mode=False)\n"
        f"print('heavy:', sorted(set({HEAVY!r}) & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "heavy: []" in done.stdout, done.stdout[-300:]


def test_a_command_imports_no_other_and_every_file_has_one() -> None:
    code = (
        "import sys, typer\n"
        "from stockpot.cli.main import app\n"
        "typer.main.get_command(app).commands['show']\n"
        "print(*[n for n in ('show', 'fuse', 'data') if f'stockpot.cli.{n}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "show\n"
    files = [importlib.import_module(f"stockpot.cli.{m.name}") for m in iter_modules(cli.__path__)]
    named = {module.NAME for module in files if hasattr(module, "NAME")}
    groups = {"data", "results", "runs"}
    assert set(Commands()) == named | groups
    assert [command.name for command in Commands().values()] == list(Commands())


def test_a_run_says_where_its_time_went(tmp_path: Path) -> None:
    out, trace = tmp_path / "run", tmp_path / "trace.json"
    done = invoke(
        "measure", "icons-resnet", "--data", "icons", "--limit", "6", "-o", out,
        "--with", "clean,corruption", "-p", "corruption.corruptions=brightness",
        "-p", "corruption.severities=1", "--profile", trace, "--batch-size", "3",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    cells = load_results(out)
    stages = [cell.cost.stages for cell in cells]
    assert all({"load", "decode", "forward", "score"} <= set(one) for one in stages)
    by_measure = {cell.key.measure: cell.cost.stages for cell in cells}
    assert by_measure["corruption"]["corrupt"] > 0
    assert "stages" not in cells[0].key.model_dump()
    # Both measures, two batches each, of clean and once corrupted pictures.
    events = json.loads(trace.read_text())["traceEvents"]
    forwards = [event for event in events if event["name"] == "forward"]
    assert len(forwards) == 2 + 2 * 2
    assert all({"ph", "ts", "dur", "pid", "tid"} <= set(event) for event in forwards)
    page = invoke("report", out, "-o", tmp_path / "page.html")
    assert page.exit_code == 0, page.output
    assert "<h2>Where the time went</h2>" in (tmp_path / "page.html").read_text()


def test_results_without_stages_still_open(tmp_path: Path) -> None:
    out = tmp_path / "run"
    invoke("measure", "icons-resnet", "--data", "icons", "--limit", "4", "-o", out)
    (path,) = (out / "results").glob("*.json")
    document = json.loads(path.read_text())
    assert document["cost"].pop("stages")
    path.write_text(json.dumps(document))
    (cell,) = load_results(out)
    assert cell.cost.stages == {}
    again = invoke("measure", "icons-resnet", "--data", "icons", "--limit", "4", "-o", out)
    assert again.exit_code == 0
    assert json.loads(path.read_text()) == document  # read back, not measured again


class StoppedError(Exception):
    """Instead of measuring."""


@pytest.mark.parametrize(
    ("words", "decode"),
    [
        ([], True),
        (["--with", "clean,cost"], True),
        (["--engine", "serial", "--batch-size", "8", "-o", "out"], True),
        (["--with", "cost,clean"], False),
        (["--limit", "8"], False),
        (["--split", "val"], False),
        (["--unseen-only"], False),
        (["-m", "defend=clahe"], False),
        (["-d", "on_broken=skip"], False),
        (["--base", "icons-vit"], False),
        (["--engine", "processes"], None),
    ],
)
def test_pictures_are_decoded_ahead_where_the_command_says_which_and_how(
    words: list[str], decode: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []

    def read_ahead(
        models: list[str], data: str, *, again: bool, decode: bool, out: Path | None
    ) -> None:
        told.extend((models, data, decode))

    def stop() -> None:
        raise StoppedError

    monkeypatch.setattr(measure, "has_begun", lambda: True)
    monkeypatch.setattr(measure, "read_ahead", read_ahead)
    monkeypatch.setattr(measure, "settled", stop)
    with pytest.raises(StoppedError):
        invoke("measure", "one", "two", "--data", "photos", *words)
    assert told == ([] if decode is None else [["one", "two"], "photos", decode])


def test_the_first_model_says_how_pictures_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    monkeypatch.setattr(processes, "start", lambda: True)
    monkeypatch.setattr(look_ahead, "look_ahead", lambda *given: looked.append(given))
    home = zoo_folder("icons-resnet")
    assert home is not None
    adapter = tmp_path / "x=y"
    adapter.mkdir()
    (adapter / "config.json").write_text((home / "config.json").read_text())
    expected = expected_preprocess("icons-resnet", {})
    assert expected is not None
    words = geometry.told(expected.fit)
    here = [f"new={home}", str(home), "icons-resnet", "new=icons-resnet"]
    for model in [*here, str(adapter)]:
        read_ahead([model, "other"], str(tmp_path), again=False, decode=True)
    assert looked[:4] == [(tmp_path, words)] * 4
    assert looked[4][1] is not None  # type: ignore[index]
    looked.clear()
    (adapter / "adapter_config.json").write_text("{}")
    none = tmp_path / "none"
    none.mkdir()
    clip = next(name for name in zoo_names() if takes_classes(name))
    for model in [str(adapter), str(none), str(tmp_path / "gone"), "owner/name", clip]:
        read_ahead([model], str(tmp_path), again=False, decode=True)
    read_ahead(["icons-resnet"], str(tmp_path), again=False, decode=False)
    assert looked == [(tmp_path, None)] * 6
    read_ahead(["icons-resnet"], str(tmp_path), again=True, decode=True)
    assert len(looked) == 6
    # What is asked for may be answered already.
    (tmp_path / "out" / "results").mkdir(parents=True)
    read_ahead(["icons-resnet"], str(tmp_path), again=False, decode=True, out=tmp_path / "out")
    read_ahead(["icons-resnet"], str(tmp_path), again=False, decode=True, out=tmp_path / "new")
    assert looked[6:] == [(tmp_path, None), (tmp_path, words)]


@pytest.mark.parametrize("name", ["n" * 300, "~nobody-of-this-name/photos", "new\0line"])
def test_what_can_be_no_folder_is_left_to_who_asks_for_it(name: str) -> None:
    read_ahead([name], name, again=False, decode=True)

"""Every command of docs/from-fusionbench.md, run on pico models in place of the embedded pool."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from commands import invoke
from dual_encoders import make_clip, make_expert
from stockpot.datasets.tasks.sets import TASK_SETS
from stockpot.results.store import load_results

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "from-fusionbench.md"
EXPERTS = ("cifar10", "mnist", "fashion", "quickdraw", "icons")
COMMANDS = re.findall(r"`(stockpot [^`]+)` \|", PAGE.read_text(encoding="utf-8"))
FEW = {
    **dict.fromkeys(("fisher", "regmean", "regmean_pp"), ("examples=4", "batch_size=2")),
    **dict.fromkeys(("adamerging", "wemoe"), ("steps=1", "batch_size=2")),
    "fw_hard": ("steps=1", "examples=4", "batch_size=2"),
    "ada_svd": ("examples=4", "batch_size=2"),
    "dop": ("steps=1",),
    "nominal": ("epochs=0",),
}
"""Settings that keep a method's part short."""


UNMEASURED = ("fisher", "regmean_pp", "opcm", "dop", "tatr", "fw_hard", "ada_svd")
"""Methods whose models are made and not measured: that is the same for all of them."""
STEPS = {
    "adamerging": ("steps",),
    "concrete": ("steps", "adapt_steps"),
    "doge_ta": ("steps",),
    "surgery": ("steps", "surgery_steps"),
    "wemoe": ("steps",),
    "wudi": ("steps",),
}
"""What makes a method of a recipe take long."""
MEASURED = {"clip_generalisation": ("clip-base", "average", "wemoe")}
"""Of the models of a recipe, all made: the base, a network and a module. Every method's model is
measured by clip_fusion, and these here on each of five sets."""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool")
    base = make_clip(folder / "clip-base")
    for seed, name in enumerate(EXPERTS):
        make_expert(base, folder / f"clip-{name}", seed=seed)
    return folder


def small(command: str, pool: Path) -> list[str]:
    """The command with pico models, icons for every dataset, and few images."""
    words = []
    for word in shlex.split(command)[1:]:
        word = re.sub(r"^clip-(\w+)$", str(pool / r"clip-\1"), word)
        words.append(re.sub(r"^(cifar10|mnist)(@\w+)?$", r"icons\2", word))
    method = words[1]
    words = [word for word in words if word != "epochs=3"]
    if words[0] == "harden":
        words.remove("-p")
    if method in UNMEASURED:
        place = words.index("--data")
        del words[place : place + 2]
    for setting in FEW.get(method, ()):
        if "--load" not in words or setting.startswith("batch"):
            words += ["-p", setting]
    if words[0] == "measure" or ("--data" in words and words[0] == "fuse"):
        words += ["--limit", "8"]
    if words[0] == "run":
        words = ["run", str(ROOT / words[1]), *short_recipe(ROOT / words[1], pool)]
    return words


def of_all_methods() -> list[str]:
    """The methods whose models clip_fusion makes and measures."""
    recipe = yaml.safe_load((ROOT / "recipes" / "clip_fusion.yaml").read_text(encoding="utf-8"))
    assert "models" not in recipe["measure"]
    return [entry["method"] for entry in recipe["fuse"].values()]


def short_recipe(path: Path, pool: Path) -> list[str]:
    recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    changes = []
    for name, entry in recipe["data"].items():
        changes += [f"data.{name}.limit=4"]
        if entry["dataset"] != "zoo5":
            changes += [f"data.{name}.dataset=icons"]
        if entry.get("split") == "fit":  # icons hold their validation images out of train
            changes += [f"data.{name}.split=train"]
    changes += [f"models.{name}.load={pool / name}" for name in recipe["models"]]
    for name, entry in recipe["fuse"].items():
        steps = STEPS.get(entry["method"], ())
        changes += [f"fuse.{name}.{step}=1" for step in steps]
    if path.stem in MEASURED:
        assert {recipe["fuse"][name]["method"] for name in recipe["fuse"]} <= set(of_all_methods())
        changes += [f"measure.models=[{','.join(MEASURED[path.stem])}]"]
    return [word for change in changes for word in ("--set", change)]


@pytest.fixture(scope="module")
def ran(pool: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All commands, in the order of the page, in one folder; each must succeed."""
    place = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setitem(TASK_SETS, "zoo5", ("icons",))
        (place / "runs").mkdir()
        for command in COMMANDS:
            words = small(command, pool)
            result = invoke(*words)
            assert result.exit_code == 0, (words, result.output)
    return dict.fromkeys(COMMANDS, place)


def test_the_page_has_the_commands_of_the_guide() -> None:
    assert len(COMMANDS) >= 20
    methods = {shlex.split(command)[2] for command in COMMANDS if " fuse " in command}
    assert methods >= {"average", "fisher", "regmean", "task_arithmetic", "ties"}
    assert methods >= {"adamerging", "wemoe"}


def check_that_files_are_left(ran: dict[str, Path]) -> None:
    for command, place in ran.items():
        words = shlex.split(command)
        for flag in ("-o", "--csv", "--plot", "--save"):
            if flag in words:
                target = words[words.index(flag) + 1]
                assert list((place / target).parent.glob(f"{Path(target).name}*")), command


def check_that_saved_weights_give_the_same_model(ran: dict[str, Path]) -> None:
    place = next(iter(ran.values()))
    for first, again in (("ada-task", "ada-task-again"), ("wemoe", "wemoe-again")):
        scores = [
            load_results(place / "runs" / f"{name}-scores")[0].score("nll").value
            for name in (first, again)
        ]
        assert scores[0] == scores[1], first


def check_that_recipes_measure_every_method(ran: dict[str, Path]) -> None:
    place = next(iter(ran.values()))
    for name in ("clip_fusion", "clip_generalisation", "clip_robustness"):
        assert (place / "runs" / name / "report.html").is_file()
    few = {result.key.model for result in load_results(place / "runs" / "clip_generalisation")}
    assert few == set(MEASURED["clip_generalisation"])
    made = yaml.safe_load((ROOT / "recipes" / "clip_generalisation.yaml").read_text())["fuse"]
    assert set(made) <= {
        path.name for path in (place / "runs/clip_generalisation/models").iterdir()
    }
    models = {result.key.model for result in load_results(place / "runs" / "clip_fusion")}
    assert models >= {"average", "ties", "regmean", "wemoe", "smile", "task_arithmetic-scale=0.3"}


def test_every_command_runs_and_leaves_what_it_says(ran: dict[str, Path]) -> None:
    """One test, since the commands take long and tests of one module may run in two processes."""
    check_that_files_are_left(ran)
    check_that_saved_weights_give_the_same_model(ran)
    check_that_recipes_measure_every_method(ran)

"""The house: imports flow one way, files stay small, the public names are what we promise."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import stockpot

ROOT = Path(stockpot.__file__).parent
LAYERS = [
    {"types", "errors", "registry", "verbs", "files"},
    {"results", "recipe", "engine"},
    {"datasets", "checkpoints"},
    {"models", "zoo", "score"},
    {"corrupt", "attack", "explain", "defend"},
    {"dynamic"},
    {"fuse", "harden"},
    {"season"},
    {"measure"},
    {"report"},
    {"kinds"},
    {"cli"},
]
LAYER = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
# Two rooms that sit higher but are asked to stay off the lower ones they do not need.
REPORT_READS_ONLY = {
    "results",
    "errors",
    "files",
    "types",
    "registry",
    "verbs",
    "report",
}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem in LAYER)


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        rooms |= {name.split(".")[1] for name in names if name.startswith("stockpot.")}
    return rooms


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_flow_one_way(path: Path) -> None:
    own = room(path)
    for other in imported_rooms(path) - {own}:
        below = LAYER[other] < LAYER[own] or LAYER[own] == 0
        assert below, f"{own} (layer {LAYER[own]}) imports {other}"
    if own == "report":
        assert imported_rooms(path) <= REPORT_READS_ONLY


def test_every_room_has_a_layer() -> None:
    rooms = {room(path) for path in ROOT.rglob("*.py")} - {"__init__"}
    assert rooms == set(LAYER)


def test_nothing_touches_a_global_random_state() -> None:
    banned = ("np.random.seed", "random.seed(", "torch.manual_seed", "np.random.rand")
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for words in banned:
            inside_fork = "fork_rng" in text
            assert words not in text or inside_fork, f"{path.name} uses {words}"


def test_nothing_unpickles_code() -> None:
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                flags = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert flags.get("weights_only") == "True", path
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("pickle.load", "pickle.loads"), path


def test_files_are_one_screenful_of_ideas() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in ROOT.rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 320
    }
    assert not long


def test_public_names() -> None:
    for name in stockpot.__all__:
        assert getattr(stockpot, name) is not None
    for verb in ("attack", "corrupt", "fuse", "harden", "measure", "report", "season"):
        assert callable(getattr(stockpot, verb)), verb
    assert "clean" in stockpot.list("measures")


def test_every_test_file_has_a_name_of_its_own() -> None:
    """Two test files of one name cannot be collected together."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names))

"""The house: imports flow one way, files stay small, the public names are what we promise."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import stockpot
from import_graph import Source

ROOT = Path(stockpot.__file__).parent
SOURCE = Source(ROOT)
# A room may have its place before it is built.
LAYERS = [
    {
        "types",
        "errors",
        "complaints",
        "foreign",
        "files",
        "listings",
        "lock",
        "notebook",
        "registry",
        "remote",
        "stages",
        "trace",
        "verbs",
    },
    {"results", "recipe", "charts", "engine"},
    {"datasets", "checkpoints"},
    {"models", "zoo"},
    {"score"},
    {"corrupt", "attack", "explain", "defend"},
    {"pool", "dynamic", "audit"},
    {"fuse", "harden"},
    {"season"},
    {"measure"},
    {"report", "gate"},
    {"tune"},
    {"run", "board", "card", "registries", "advise"},
    {"cli"},
]
LAYER = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
# The face of the package names all rooms, and nobody but the command line may look at it.
LAYER["__init__"] = LAYER["cli"]
LAYER["__main__"] = len(LAYERS)  # `python -m stockpot` is the command line
# It sits high, but is asked to stay off all that makes results.
REPORT_READS_ONLY = {"results", "charts", "report", *LAYERS[0]}


def rooms() -> set[str]:
    return {SOURCE.room(module) for module in SOURCE.files}


@pytest.mark.parametrize("module", SOURCE.files)
def test_imports_flow_one_way(module: str) -> None:
    own = SOURCE.room(module)
    others = {SOURCE.room(each.module) for each in SOURCE.imports(module)} - {own}
    if own == "__init__":
        return
    for other in others:
        # The lowest layer is made of single files; that they form no circle is tested below.
        below = LAYER[other] < LAYER[own] or LAYER[other] == LAYER[own] == 0
        assert below, f"{own} (layer {LAYER[own]}) imports {other} (layer {LAYER[other]})"
    if own == "report":
        assert others <= REPORT_READS_ONLY


def test_nobody_imports_the_command_line() -> None:
    for module in SOURCE.files:
        if SOURCE.room(module) not in ("cli", "__main__"):
            assert "cli" not in {SOURCE.room(each.module) for each in SOURCE.imports(module)}


def test_no_module_imports_itself_through_others() -> None:
    found = SOURCE.cycles()
    assert not found, [sorted(group) for group in found]


def test_every_room_has_a_layer() -> None:
    assert rooms() <= set(LAYER)


def test_the_docs_show_the_same_layers() -> None:
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = {
        int(number): set(names.split())
        for number, names in re.findall(r"^\| (\d+) \| `([^`]+)` \|", text, flags=re.MULTILINE)
    }
    built = rooms() - {"__init__", "__main__"}
    assert shown == {n: layer & built for n, layer in enumerate(LAYERS) if layer & built}


@pytest.mark.parametrize(
    ("path", "line", "seen"),
    [
        ("fuse/a.py", "from stockpot import cli", "stockpot.cli"),
        ("fuse/a.py", "from stockpot.cli import b", "stockpot.cli.b"),
        ("fuse/a.py", "def f():\n    import stockpot.cli.b as c", "stockpot.cli.b"),
        ("fuse/a.py", "from ..cli import b", "stockpot.cli.b"),
        ("fuse/__init__.py", "from ..cli.b import c", "stockpot.cli.b"),
        ("fuse/a.py", "from . import c", "stockpot.fuse.c"),
        ("fuse/a.py", "importlib.import_module('stockpot.cli.b')", "stockpot.cli.b"),
        ("fuse/__init__.py", "speak(__name__, 'stockpot.cli.b:run')", "stockpot.cli.b"),
        ("fuse/a.py", "R = {'x': 'cli.b'}\nimport_module(f'stockpot.{R[k]}')", "stockpot.cli.b"),
        ("types.py", "from stockpot.cli import b", "stockpot.cli.b"),
        ("fuse/a.py", "if TYPE_CHECKING:\n    from stockpot.cli import b", None),
        ("fuse/a.py", "'stockpot.cli.b is a module'", None),
    ],
)
def test_an_import_is_seen_however_it_is_written(
    tmp_path: Path, path: str, line: str, seen: str | None
) -> None:
    for name in ("__init__", "types", "cli/__init__", "cli/b", "fuse/__init__", "fuse/c"):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
    (tmp_path / path).write_text(f"{line}\n")
    parts = [part for part in Path(path).with_suffix("").parts if part != "__init__"]
    found = Source(tmp_path).imports(".".join(["stockpot", *parts]))
    assert {each.module for each in found} == ({seen} if seen else set())


def test_a_circle_is_seen_through_functions_too(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "a.py").write_text("from stockpot.b import x\n")
    (tmp_path / "b.py").write_text("def f():\n    from . import c\n")
    (tmp_path / "c.py").write_text("import stockpot.a\n")
    (tmp_path / "d.py").write_text("import stockpot.a\n")
    assert Source(tmp_path).cycles() == {frozenset(f"stockpot.{n}" for n in "abc")}


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
    for verb in (
        "attack",
        "audit",
        "corrupt",
        "fuse",
        "harden",
        "measure",
        "report",
        "run",
        "season",
    ):
        assert callable(getattr(stockpot, verb)), verb
    assert "clean" in stockpot.list("measures")


def test_every_test_file_has_a_name_of_its_own() -> None:
    """Two test files of one name cannot be collected together."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names))

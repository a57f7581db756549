"""Benchmarks run what a user runs, say so, and run as the docs and `make bench` call them."""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stockpot

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
SCRIPTS = sorted(FOLDER.glob("*.py"))
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "studies").glob("*/README.md")),
]
PUBLIC = {name for name in stockpot.__all__ if not name.startswith("_")}
COMMAND = re.compile(r"`(?:python -m )?stockpot[ .](\w+)")
QUOTED = re.compile(r"python\s+(benchmarks/\w+\.py[^`\n]*)")


class ParsedError(Exception):
    """A command line was read to its end."""


@pytest.fixture(autouse=True)
def _beside_their_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As Python itself has it for a script: its folder comes first."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before, around = set(sys.modules), dict(os.environ)
    yield
    os.environ.clear()  # some set the number of threads before torch is imported
    os.environ.update(around)
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(FOLDER)):
            del sys.modules[name]


def parse(script: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script up to the moment when it has read its options."""
    read = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *args: object) -> None:
        read(parser)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    monkeypatch.setattr(sys, "argv", [str(script), *words])
    with pytest.raises(ParsedError):
        importlib.import_module(script.stem).main()


def calls(tree: ast.AST) -> set[str]:
    """Which verbs of the package a script calls, as functions or as commands."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "stockpot":
                found.add(node.attr)
        elif isinstance(node, ast.List):  # [*STOCKPOT, "measure", ...]
            first, *rest = [*node.elts, None]
            if isinstance(first, ast.Starred) and ast.unparse(first.value) == "STOCKPOT":
                found |= {one.value for one in rest[:1] if isinstance(one, ast.Constant)}
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_runs_what_a_user_runs_and_says_so(script: Path) -> None:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    told = set(COMMAND.findall(ast.get_docstring(tree) or ""))
    assert told, "its docstring names no command and no public function"
    assert told & calls(tree), f"it says {sorted(told)} and calls {sorted(calls(tree))}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_says_what_it_is_held_against(script: Path) -> None:
    told = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    assert re.search(r"\b(floor|peer)s?\b", told), "its docstring names no floor and no peer"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_tells_where_the_time_went(script: Path) -> None:
    if script.stem == "corruptions":
        return  # one call that changes pixels, told by corruption and severity
    called = {node.func.id for node in ast.walk(ast.parse(script.read_text(encoding="utf-8")))
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}  # fmt: skip
    assert called & {"print_each", "print_stages"}, "it prints no stages"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_needs_no_options(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse(script, [], monkeypatch)


def quoted() -> Iterator[tuple[Path, str]]:
    """Every command line of a benchmark that a page or a docstring gives."""
    for page in [*PAGES, *SCRIPTS]:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        if page.suffix == ".md":  # a command may be broken between two lines of a paragraph
            text = re.sub(r"`[^`]+`", lambda found: found[0].replace("\n", " "), text)
        for line in QUOTED.findall(text):
            yield page, re.sub(r"\[.*?\]", "", line.partition("#")[0]).strip()


@pytest.mark.parametrize(
    ("page", "line"), list(quoted()), ids=lambda one: getattr(one, "stem", None) or str(one)
)
def test_quoted_command_lines_are_understood(
    page: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, *words = shlex.split(line)
    parse(ROOT / script, words, monkeypatch)

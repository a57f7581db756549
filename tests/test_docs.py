"""README and docs name what exists: modules and attributes of the package, commands and options."""

from __future__ import annotations

import importlib
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from stockpot.cli.main import app
from stockpot.registries import KINDS

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
DOTTED = re.compile(r"(?<![\w/.~-])stockpot((?:\.[A-Za-z_]\w*)+)(?![\w-])")
FILE_ENDS = {"html", "json", "md", "py", "toml", "yaml"}
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def dotted_names(text: str) -> set[str]:
    found = {match.group(0) for match in DOTTED.finditer(text)}
    found |= {  # `from stockpot.a import b, c` names stockpot.a.b and stockpot.a.c
        f"{module}.{name.split(' as ')[0].strip()}"
        for module, names in re.findall(r"from (stockpot[\w.]*) import ([^\n(]+)", text)
        for name in names.partition("#")[0].split(",")
    }
    found -= {f"stockpot.{kind}" for kind in KINDS}  # groups of entry points
    return {name for name in found if name.rpartition(".")[2] not in FILE_ENDS}


def resolve(name: str) -> object:
    """The module or attribute of that name; an AttributeError where there is none."""
    first, *rest = name.split(".")
    value: object = importlib.import_module(first)
    for index, part in enumerate(rest, start=2):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(".".join([first, *rest][:index]))
            except ModuleNotFoundError:
                raise AttributeError(f"{name}: no {part}") from None
    return value


def commands(text: str) -> list[list[str]]:
    """The words of every `stockpot ...` in code, lines that go on put together."""
    code = re.findall(r"```(?:sh|bash|console)?\n(.*?)```", text, flags=re.DOTALL)
    lines = [line for block in code for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"(?<!`)`(stockpot [^`\n]+)`(?!`)", text)
    found = []
    for line in lines:
        for one in re.split(r"\s{3,}(?=stockpot )|&&|;|\|", line.partition(" #")[0]):
            if re.match(r"(\$ )?stockpot \w", one.strip()):
                found.append(shlex.split(one.strip().removeprefix("$ "))[1:])
    return found


whole_command = cache(typer.main.get_command)


def complaint(words: list[str]) -> str:
    """What is wrong with a command's name or options; nothing where they exist."""
    command: Any = whole_command(app)
    where = "stockpot"
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if words[0].isupper() or "|" in words[0]:
            return ""  # stands for any
        inner = command.commands.get(words[0])
        if inner is None:
            return f"{where} {words[0]}: no such command"
        command, where, words = inner, f"{where} {words[0]}", words[1:]
    known = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)} | {"--help"}
    for word in words:
        flag = word.strip("[].,").partition("=")[0]
        if re.fullmatch(r"--[a-z][\w-]*|-[a-z]", flag) and flag not in known:
            return f"{where}: no option {flag}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_names_of_the_package_resolve(page: Path) -> None:
    wrong = []
    for name in sorted(dotted_names(page.read_text(encoding="utf-8"))):
        try:
            resolve(name)
        except (AttributeError, ImportError) as problem:
            wrong.append(f"{name} ({problem})")
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_and_their_options_exist(page: Path) -> None:
    told = [complaint(words) for words in commands(page.read_text(encoding="utf-8"))]
    assert not [text for text in told if text]


def test_the_checks_see_what_is_wrong() -> None:
    """A page with one mistake of each kind."""
    block = "stockpot frobnicate x\nstockpot run a.yaml \\\n    --frsh\n"
    page = f"```sh\n{block}```\nand `stockpot list measures`"
    assert [complaint(words) for words in commands(page)] == [
        "stockpot frobnicate: no such command",
        "stockpot run: no option --frsh",
        "",
    ]
    assert dotted_names("`stockpot.fuse.tis`, stockpot.json; from stockpot.run import follow") == {
        "stockpot.fuse.tis", "stockpot.run", "stockpot.run.follow",
    }  # fmt: skip
    with pytest.raises(AttributeError):
        resolve("stockpot.fuse.tis")
    assert sum(len(commands(page.read_text(encoding="utf-8"))) for page in PAGES) > 80

"""The commands by name: each is imported and built when it is asked for.

To import and to build all of them takes longer than many a command does. The list in `--help` asks
for all.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from stockpot.cli.profile import with_profile

_MAKING = (
    *("init", "run", "fuse", "similarity", "advise", "harden", "season", "tune", "measure", "card"),
    *("attack", "audit", "explain", "corrupt", "report", "view", "figures", "leaderboard"),
    *("rescore", "export", "push", "convert"),
)
_JUDGING = ("compare", "check", "choose", "transfer", "sign", "verify", "serve")
_ASKING = ("list", "show", "validate", "doctor")
_UNTIMED = (*_ASKING, "corrupt")
"""Without `--profile FILE`; a corruption's `--profile` says whose constants it has."""
_GROUPS = ("data", "results", "runs")
_MODULES = {"list": "listing"}
"""Modules of another name than their command."""


class Commands(Mapping[str, Any]):
    """Commands in the order in which they are listed; those that were asked for are kept."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = dict.fromkeys((*_MAKING, *_JUDGING, *_ASKING, *_GROUPS))

    def __getitem__(self, name: str) -> Any:
        if self._built[name] is None:
            self._built[name] = _built(name)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._built)

    def __len__(self) -> int:
        return len(self._built)


class Root(TyperGroup):
    """The `stockpot` command itself."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = Commands()


def _built(name: str) -> Any:
    module: Any = importlib.import_module(f"stockpot.cli.{_MODULES.get(name, name)}")
    alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    if name in _GROUPS:
        alone.add_typer(module.app, name=name)
    else:
        command = module.command if name in _UNTIMED else with_profile(module.command)
        alone.command(name, epilog=module.EXAMPLES)(command)
    return typer.main.get_group(alone).commands[name]

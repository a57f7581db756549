"""Killed at changes of its files drawn at random, every command ends as if undisturbed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos.killed_commands import Task, tasks
from chaos.kills import disturbed, whole


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    return tasks(tmp_path_factory.mktemp("chaos") / "given")


@pytest.mark.parametrize("name", ["fuse", "harden", "season", "corrupt", "measure", "run", "tune"])
def test_killed_and_started_again(name: str, commands: dict[str, Task], tmp_path: Path) -> None:
    task = commands[name]
    expected = whole(task, tmp_path / "whole")
    drawn = random.Random(f"20/{name}").randrange(1, expected.changes)
    # The last change of all comes when everything is in place.
    for change in (drawn, expected.changes) if name == "fuse" else (drawn,):
        tried = disturbed(task, tmp_path / str(change), expected, change=change)
        assert tried.wrong == [], f"{task.words} killed at change {change} of {expected.changes}"

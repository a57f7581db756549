"""A folder that cannot be written and a full disk: one line, exit code 1, nothing half-written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from chaos.killed_commands import Task, tasks
from chaos.no_room import filled_up, read_only, small_disk


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    place = tmp_path_factory.mktemp("chaos")
    try:
        if os.geteuid() != 0:
            pytest.skip("needs to mount")
        with small_disk(place / "tried", 4096):
            pass
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system does not let us mount a small disk")
    return tasks(place / "given")


@pytest.mark.parametrize("name", ["run", "measure", "fuse", "harden", "season", "corrupt", "tune"])
def test_no_room_is_told_in_a_line(name: str, commands: dict[str, Task], tmp_path: Path) -> None:
    assert read_only(commands[name], tmp_path / "read-only") == []
    if name in ("tune", "corrupt"):  # others: test_writing.py, test_commands.py
        assert filled_up(commands[name], tmp_path / "full", None, 16 << 10) == []

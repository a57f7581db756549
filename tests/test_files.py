"""Files appear whole or not at all, and what a killed process left goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stockpot.files import json_once, write_atomic

WRITE_AND_HANG = """
import os, sys, time
from pathlib import Path
import stockpot.files as files
os.fsync = lambda number: time.sleep(60)
files.write_atomic(Path(sys.argv[1]), "half")
"""


def begin_to_write(path: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", WRITE_AND_HANG, str(path)])
    while not list(path.parent.glob(".*.tmp")):
        time.sleep(0.01)
    return process


def test_what_a_killed_process_left_goes_with_the_next_writing(tmp_path: Path) -> None:
    process = begin_to_write(tmp_path / "a.json")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(os.listdir(tmp_path)) == 1
    write_atomic(tmp_path / "b.json", "whole")
    assert os.listdir(tmp_path) == ["b.json"]


def test_what_others_are_writing_stays(tmp_path: Path) -> None:
    process = begin_to_write(tmp_path / "a.json")
    try:
        (tmp_path / ".a.json.elsewhere-1-x.tmp").touch()  # of another machine
        (tmp_path / ".mine.tmp").touch()
        write_atomic(tmp_path / "b.json", "whole")
        assert len(os.listdir(tmp_path)) == 4
    finally:
        process.kill()
        process.wait()


def test_a_long_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 250 + ".json")
    write_atomic(path, "whole")
    assert path.read_text() == "whole"


def test_what_is_made_once_is_read_afterwards(tmp_path: Path) -> None:
    made = iter(([1, 2], [3]))
    path = tmp_path / "new" / "found.json"
    assert json_once(path, lambda: next(made)) == [1, 2]
    assert json_once(path, lambda: next(made)) == [1, 2]
    assert next(made) == [3]  # it was not asked a second time

    def fails() -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        json_once(tmp_path / "other.json", fails)
    assert not (tmp_path / "other.json").exists()

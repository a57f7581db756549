"""Two runs on one output: the second is told who holds it; what a killed one held is free."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import stockpot.lock as lock
from processes import Running
from stockpot.files import is_abandoned, own_mark
from stockpot.lock import HeldError, held_alone, remove_abandoned_lock


def hold(file: str, beside: str) -> None:
    with held_alone(Path(file), Path(file)):
        Path(beside).touch()
        time.sleep(60)


@pytest.mark.parametrize("without", [False, True])
def test_one_at_a_time_and_free_after_a_kill(
    without: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a disk that has no locks, by the mark of the process."""
    if without:
        monkeypatch.setattr(lock, "_lock", lambda handle, file: lock._is_free(file))
    file = tmp_path / "new" / ".lock"
    holder = Running(hold, str(file), str(tmp_path / "held"))
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    with pytest.raises(
        HeldError, match=rf"runs/demo is being .*\({holder._process.pid} on .*since"
    ):
        held_alone(file, Path("runs/demo")).__enter__()
    remove_abandoned_lock(file)
    assert file.exists()
    os.utime(file, (time.time() + 1e6,) * 2)  # a clock that was set back says nothing
    holder.send(signal.SIGKILL)
    holder.wait()
    assert file.exists()
    with held_alone(file, file):
        assert str(os.getpid()) in file.read_text()
    assert not file.exists()


def test_a_lock_waits_and_leaves_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / ".lock"
    with held_alone(file, file):
        start = time.monotonic()
        with pytest.raises(HeldError):
            held_alone(file, file, wait=0.2).__enter__()
        assert time.monotonic() - start >= 0.2
    assert list(tmp_path.iterdir()) == []


def test_a_process_is_known_by_its_start_too() -> None:
    """A number is given again: in a container the next process may have that of the killed one."""
    host, number, started = own_mark().split("-")
    assert not is_abandoned(own_mark())
    assert is_abandoned(f"{host}-{number}-{int(started) - 1}")
    assert not is_abandoned(f"elsewhere-{number}-1")

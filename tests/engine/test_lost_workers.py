"""Workers that are killed, stop, hang, outlive their parent, or would run its script again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Running
from stockpot.engine.processes import PRELOADED, Processes
from stockpot.files import is_abandoned, own_mark


def marked(job: tuple[str, str]) -> str:
    """Come to harm the first time, and do the work the second."""
    harm, folder = job
    mark = Path(folder) / f"{harm}-{os.getpid()}"
    first = not list(Path(folder).glob(f"{harm}-*"))
    mark.touch()
    if first and harm == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if first and harm == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if first and harm == "hanging":
        time.sleep(60)
    return harm


@pytest.mark.parametrize(
    ("harm", "told"),
    [("killed", "was killed"), ("stopped", "no sign of life"), ("hanging", "computed nothing")],
)
def test_a_lost_worker_costs_an_attempt_and_nothing_beside_it(
    harm: str, told: str, tmp_path: Path
) -> None:
    engine = Processes(2, silence=0.5, standstill=3.0 if harm == "hanging" else 60.0)
    jobs = [(harm, str(tmp_path)), ("spared", str(tmp_path))]
    with pytest.warns(UserWarning, match=f"{told}.*done again in another"):
        outcomes = {outcome.job: outcome for outcome in engine.run(marked, jobs)}
    assert {outcomes[job].value for job in (0, 1)} == {harm, "spared"}
    assert len(list(tmp_path.glob(f"{harm}-*"))) == 2  # two processes tried
    assert len(list(tmp_path.glob("spared-*"))) == 1  # the other was left in peace
    numbers = [int(path.name.rpartition("-")[2]) for path in tmp_path.iterdir()]
    assert not any(Path(f"/proc/{number}").exists() for number in numbers)


class DyingReader:
    """A function whose first reader is killed by it, in starting."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, job: int) -> int:
        return job

    def __reduce__(self) -> tuple[object, ...]:
        return _read, (self.mark,)


def _read(mark: Path) -> DyingReader:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return DyingReader(mark)


def test_a_worker_killed_in_starting_costs_an_attempt_too(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="was killed.*done again in another"):
        (outcome,) = Processes(1).run(DyingReader(tmp_path / "mark"), [7])
    assert outcome.value == 7


def busy(folder: str) -> None:
    Path(folder, own_mark()).touch()
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        pass


def work_for_ever(folder: Path) -> None:
    PRELOADED.clear()  # such workers need nothing of what others do
    list(Processes(2).run(busy, [str(folder)] * 2))


def test_workers_end_with_their_parents(tmp_path: Path) -> None:
    signals = (signal.SIGKILL, signal.SIGTERM)
    folders = [tmp_path / number.name for number in signals]
    for folder in folders:
        folder.mkdir()
    parents = [Running(work_for_ever, folder) for folder in folders]
    _until(lambda: all(len(list(folder.iterdir())) == 2 for folder in folders), 60)
    for parent, number in zip(parents, signals, strict=True):
        parent.send(number)
        assert parent.wait().returncode == -number
    marks = [path.name for folder in folders for path in folder.iterdir()]
    _until(lambda: all(map(is_abandoned, marks)), 10)  # else they compute for nobody


def _until(found: Callable[[], bool], seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < limit
        time.sleep(0.02)


SCRIPT = """
from concurrent.futures import ThreadPoolExecutor
from stockpot.engine.processes import PRELOADED, Processes
PRELOADED.clear()
print(ThreadPoolExecutor(1).submit(lambda: list(Processes(2).run(abs, [-1, -2]))).result())
"""


def test_a_worker_that_comes_to_the_call_again_is_told_of(tmp_path: Path) -> None:
    """Out of a thread, where no line of the script is seen; test_engines.py has the plain call."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"stockpot.errors.UserError: {script}: with several processes each")
    assert '`if __name__ == "__main__":`' in last
    assert "bootstrapping" not in done.stderr

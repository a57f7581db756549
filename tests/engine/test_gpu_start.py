"""What begins beside a command: only where there is a GPU, and without changing how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stockpot.engine import gpu_start


@pytest.mark.parametrize(
    ("device", "visible", "wanted"),
    [("auto", None, True), ("cuda", None, True), ("cuda:1", "0,1", True), ("cuda", "", False),
     ("cpu", None, False), ("mps", None, False), ("cuda:x", None, False)],
)  # fmt: skip
def test_a_gpu_is_woken_where_it_may_be_used(
    device: str, visible: str | None, wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_start, "_CONTROL", str(tmp_path))
    monkeypatch.setattr(gpu_start, "_awake", False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    begun: list[tuple[object, ...]] = []
    monkeypatch.setattr(gpu_start, "_beside", lambda *work, waits: begun.append(work))
    assert gpu_start.wake(device) == wanted
    number = 1 if device.endswith("1") else 0
    own = [(gpu_start._wake, number)] if wanted else []
    assert [work for work in begun if work[0] is gpu_start._wake] == own


def test_without_a_driver_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_start, "_DRIVER", "libnone.so.1")
    gpu_start._wake(0)


def test_a_command_that_has_woken_a_gpu_ends_with_its_code_and_its_words() -> None:
    words = (
        "import atexit, sys\n"
        "from stockpot.engine import gpu_start\n"
        "atexit.register(print, 'cleared up')\n"
        "gpu_start.leave(0)\n"
        "gpu_start._awake = True\n"
        "print('done', end=' ')\n"
        "gpu_start.leave(3)\n"
        "print('never')\n"
    )
    ended = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (3, "done cleared up\n")

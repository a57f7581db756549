"""What begins before a command is parsed: only where there is a GPU, and it ends as it would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stockpot.cli import beginning


@pytest.mark.parametrize(
    ("words", "visible", "number"),
    [("measure a --data b", None, 0), ("measure a --device cuda", None, 0),
     ("measure a --device=cuda:1 --seed 2", "0,1", 1), ("measure a --device cuda", "", None),
     ("measure a --device cpu", None, None), ("measure --device=mps", None, None),
     ("measure a --device cuda:x", None, None), ("measure a --device", None, 0),
     ("report runs/a", None, None), ("measure --help", None, None), ("", None, None)],
)  # fmt: skip
def test_a_gpu_is_woken_where_it_may_be_used(
    words: str, visible: str | None, number: int | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(beginning, "_CONTROL", str(tmp_path))
    assert beginning.gpu_number(words.split()) == number
    monkeypatch.setattr(beginning, "_CONTROL", str(tmp_path / "none"))
    assert beginning.gpu_number(words.split()) is None


def test_threads_take_short_turns_where_one_of_them_feeds_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(beginning, "_begun", False)
    for work in ("_wake", "_prepare"):
        monkeypatch.setattr(beginning, work, lambda number: None)
    before = sys.getswitchinterval()
    try:
        for control, turn in (("none", before), ("", beginning._TURN)):
            monkeypatch.setattr(beginning, "_CONTROL", str(tmp_path / control))
            assert beginning.begin(["measure", "a"]) == (control == "")
            assert sys.getswitchinterval() == pytest.approx(turn)
    finally:
        sys.setswitchinterval(before)


def test_without_a_driver_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginning, "_DRIVER", "libnone.so.1")
    beginning._wake(0)


def test_a_command_that_has_woken_a_gpu_ends_with_its_code_and_its_words() -> None:
    words = (
        "import atexit, sys\n"
        "from stockpot.cli import beginning\n"
        "assert not {'torch', 'typer', 'pydantic'} & set(sys.modules)\n"
        "atexit.register(print, 'cleared up')\n"
        "beginning.leave(0)\n"
        "beginning._begun = True\n"
        "print('done', end=' ')\n"
        "beginning.leave(3)\n"
        "print('never')\n"
    )
    ended = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (3, "done cleared up\n")

"""What a result says of the code that made it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import PIL
import pytest

from stockpot.results import provenance


def git(folder: Path, *words: str) -> str:
    name = ["-c", "user.name=A", "-c", "user.email=a@b"]
    told = subprocess.run(
        ["git", "-C", str(folder), *name, *words], check=True, capture_output=True, text=True
    )
    return told.stdout.strip()


def test_looking_at_a_checkout_writes_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "src" / "stockpot" / "results" / "provenance.py"
    file.parent.mkdir(parents=True)
    file.write_text("one")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    os.utime(file, (1, 1))  # git would note the new time in its index, under a lock
    index = (tmp_path / ".git" / "index").read_bytes()
    monkeypatch.setattr(provenance, "__file__", str(file))
    look = provenance._checkout.__wrapped__
    assert look() == (git(tmp_path, "rev-parse", "HEAD"), False)
    assert (tmp_path / ".git" / "index").read_bytes() == index
    file.write_text("two")
    assert look()[1] is True


def test_a_result_says_what_decoded_its_pictures() -> None:
    assert provenance.provenance().pillow == PIL.__version__

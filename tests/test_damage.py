"""A full disk and files that changed on it: noticed, told in a line, made again."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import time
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from stockpot.checkpoints import hashes
from stockpot.checkpoints.folder import staged_folder
from stockpot.checkpoints.hashes import FileHashes
from stockpot.checkpoints.resume import load_state, save_state
from stockpot.errors import BadCheckpointError
from stockpot.files import keep_cached, read_cached, tells_full_disk

FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    RuntimeError("[enforce fail at inline_container.cc] . PytorchStreamWriter failed writing file"),
    sqlite3.OperationalError("database or disk is full"),
    OSError("4096 requested and 1020 written"),
]


def fail_half_way(out: Path, problem: Exception) -> None:
    with staged_folder(out) as folder:
        (folder / "half").write_text("...")
        raise problem


@pytest.mark.parametrize("problem", FULL, ids=lambda problem: type(problem).__name__)
def test_a_full_disk_is_known_whoever_meets_it(problem: Exception, tmp_path: Path) -> None:
    assert tells_full_disk(problem)
    with pytest.raises(BadCheckpointError, match="disk is full; nothing was left"):
        fail_half_way(tmp_path / "out", problem)
    assert list(tmp_path.iterdir()) == []
    assert not tells_full_disk(ValueError("28 images"))


def test_a_cache_with_a_changed_bit_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    keep_cached(path, {"file": "a" * 64})
    assert read_cached(path) == {"file": "a" * 64}
    path.write_text(path.read_text().replace("aaaa", "aaab", 1))
    assert read_cached(path) == {}
    path.write_text(json.dumps({"file": "a" * 64}))  # of an earlier version, which had none
    assert read_cached(path) == {}


def test_a_changed_cache_gives_no_wrong_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hashes, "_LARGE", 1)
    monkeypatch.setattr(hashes, "_memory", {})
    file = tmp_path / "weights"
    file.write_bytes(b"weights")
    monkeypatch.setattr(hashes, "_SETTLED", -1e9)
    right = FileHashes([file]).result()[file]
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_text(kept.read_text().replace(right, "0" * 64))
    monkeypatch.setattr(hashes, "_memory", {})
    assert FileHashes([file]).result()[file] == right


def test_a_file_from_the_future_is_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a clock was set back, two changes of a file may bear the same time."""
    monkeypatch.setattr(hashes, "_memory", {})
    file, ahead = tmp_path / "weights", (time.time() + 1e6,) * 2
    found = []
    for content in (b"one", b"two"):
        file.write_bytes(content)
        os.utime(file, ahead)
        found.append(FileHashes([file]).result()[file])
    assert found[0] != found[1]
    assert hashes._memory == {}


def test_a_damaged_state_is_not_gone_on_from(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    save_state(path, {"question": "q", "step": 7, "weights": torch.arange(1000.0)})
    state = load_state(path, "q")
    assert state is not None
    raw = bytearray(path.read_bytes())
    place = raw.find(torch.arange(500.0, 510.0).numpy().tobytes())
    raw[place] ^= 1
    path.write_bytes(raw)
    with pytest.warns(UserWarning, match=r"another checksum.*starts anew"):
        assert load_state(path, "q") is None
    assert not path.exists()

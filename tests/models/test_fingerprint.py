"""The identity of a folder follows its content, and nothing else."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from stockpot.checkpoints import hashes
from stockpot.models.fingerprint import fingerprint_files, fingerprint_folder


def test_it_is_the_hash_of_names_and_hashes(tmp_path: Path) -> None:
    contents = {"model.safetensors": b"weights", "config.json": b"{}"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    lines = "".join(
        f"{name}:{hashlib.sha256(contents[name]).hexdigest()}\n" for name in sorted(contents)
    )
    assert fingerprint_folder(tmp_path) == hashlib.sha256(lines.encode()).hexdigest()


def test_a_rewritten_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"first")
    before = fingerprint_files([path])
    assert fingerprint_files([path]) == before
    path.write_bytes(b"other")  # in place, and of the same size
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert fingerprint_files([path]) != before
    replacement = tmp_path / "next"
    replacement.write_bytes(b"first")
    replacement.replace(path)
    assert fingerprint_files([path]) == before


def test_a_file_that_did_not_change_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "_SETTLED", 0.0)
    path = tmp_path / "config.json"
    path.write_text("{}")
    before = fingerprint_files([path])
    monkeypatch.setattr(hashes, "_sha256", lambda *_: "read again")
    assert fingerprint_files([path]) == before
    path.write_text("[]")
    assert fingerprint_files([path]) != before


def test_several_models_are_hashed_at_once_and_found_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "_SETTLED", 0.0)
    monkeypatch.setattr(hashes, "usable_cores", lambda: 3)
    files = [tmp_path / name / "model.safetensors" for name in "abc"]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(file.parent.name.encode())
    all_here, plain = threading.Barrier(3, timeout=5), hashes._sha256

    def together(path: Path, stop: threading.Event) -> str:
        all_here.wait()  # breaks unless three threads are here at the same time
        return plain(path, stop)

    monkeypatch.setattr(hashes, "_sha256", together)
    hashes.hash_ahead([*(file.parent for file in files), tmp_path / "absent"])
    monkeypatch.setattr(hashes, "_sha256", lambda *_: "read again")
    for file in files:
        own = hashlib.sha256(file.read_bytes()).hexdigest()
        assert hashes.FileHashes([file]).result() == {file: own}

"""The identity of a folder follows its content, and nothing else."""

from __future__ import annotations

import hashlib
import os
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

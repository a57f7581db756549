"""What every source of a dataset does: bring verified files into the cache."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from stockpot.datasets.fetch.cache import sha256_of
from stockpot.errors import UserError

Progress = Callable[[str, int, int], None]
"""Told what is under way, how much of it is done, and how much there is."""


class SourceFailedError(UserError):
    """One source could not deliver; the next one may."""


class Source(Protocol):
    """A place that can deliver the files of a dataset."""

    @property
    def label(self) -> str:
        """How a message names this source."""
        ...

    def fetch(self, folder: Path, progress: Progress) -> Path:
        """The verified file or folder, brought into `folder` unless it is already there."""
        ...


def silent(what: str, done: int, total: int) -> None:
    """The progress that tells nobody."""


def run_client(
    program: str,
    arguments: list[str],
    *,
    folder: Path,
    install: str,
    progress: Progress = silent,
    label: str = "",
    size: int = 0,
) -> None:
    """Run a package client in `folder`, telling how many of `size` bytes have arrived there."""
    if shutil.which(program) is None:
        raise SourceFailedError(f"the client {program!r} is not installed.", hint=install)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        client = subprocess.Popen(
            [program, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while client.poll() is None:
                progress(f"fetching {label}", min(_bytes_in(folder), size), size)
                time.sleep(0.1)
        finally:
            if client.poll() is None:  # interrupted: do not leave the client running
                client.terminate()
                client.wait()
        log.seek(0)
        if client.returncode != 0:
            reason = _last_complaint(log.read())
            raise SourceFailedError(f"{program} {arguments[0]} failed: {reason}")
    progress(f"fetching {label}", size, size)


def verified(path: Path, sha256: str, label: str) -> Path:
    """The path, when its bytes are the expected ones."""
    found = sha256_of(path)
    if found != sha256:
        raise SourceFailedError(
            f"expected {label} with sha256 {sha256[:16]}..., got {found[:16]}... ({path.name}).",
            hint="The file was altered or cut short; it has been discarded.",
        )
    return path


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # the client moved it away meanwhile
            continue
    return total


def _last_complaint(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("npm error", "E:", "ERROR"))]
    chosen = (errors or lines or ["no message"])[-1 if not errors else 0]
    return chosen[:200]

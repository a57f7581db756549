"""What every source of a dataset does: bring one verified file into the cache."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Protocol

from stockpot.datasets.fetch.cache import sha256_of
from stockpot.errors import UserError


class SourceFailed(UserError):
    """One source could not deliver; the next one may."""


class Source(Protocol):
    """A place that can deliver one file."""

    @property
    def label(self) -> str:
        """How a message names this source."""
        ...

    def fetch(self, folder: Path) -> Path:
        """The verified file, brought into `folder` unless it is already there."""
        ...


def run_client(program: str, arguments: list[str], *, folder: Path, install: str) -> str:
    """Run a package client in `folder` and return what it printed."""
    if shutil.which(program) is None:
        raise SourceFailed(f"the client {program!r} is not installed.", hint=install)
    try:
        done = subprocess.run(
            [program, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError as problem:
        raise SourceFailed(f"{program} could not be started: {problem}.") from None
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        last = next((line for line in reversed(lines) if "rror" in line or "E:" in line), "")
        reason = last or (lines[-1] if lines else "no message")
        raise SourceFailed(f"{program} {arguments[0]} failed: {reason.strip()[:200]}")
    return done.stdout


def verified(path: Path, sha256: str, label: str) -> Path:
    """The path, when its bytes are the expected ones."""
    found = sha256_of(path)
    if found != sha256:
        raise SourceFailed(
            f"{label}: expected sha256 {sha256[:16]}..., got {found[:16]}... ({path.name}).",
            hint="The file was altered or cut short; it has been discarded.",
        )
    return path

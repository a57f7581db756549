"""What code and machine made a number."""

from __future__ import annotations

import platform
import subprocess
import threading
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from stockpot.results.schema import Provenance


@lru_cache
def package_version(name: str) -> str:
    """An installed package's version, or an empty text."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


_asking = threading.Lock()


def ask_ahead() -> None:
    """Ask git in a thread, for who will save results in a while."""
    threading.Thread(target=_asked_once, name="git", daemon=True).start()


def _asked_once() -> tuple[str, bool | None]:
    with _asking:  # whoever asks while git is being asked waits for its answer
        return _checkout()


@lru_cache(maxsize=1)
def _checkout() -> tuple[str, bool | None]:
    """The commit of our own source tree and whether it has changes; empty when installed."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return "", None
    try:
        commit, status = (
            subprocess.run(
                # Looking writes nothing: a lock would outlive a kill, and stop the next commit.
                ["git", "--no-optional-locks", "-C", str(root), *arguments],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            ).stdout.strip()
            for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", "src"])
        )
    except (OSError, subprocess.SubprocessError):
        return "", None
    return commit, bool(status)


def provenance(device: str = "cpu") -> Provenance:
    """The present code and machine."""
    commit, dirty = _asked_once()
    return Provenance(
        stockpot=package_version("stockpot"),
        commit=commit,
        dirty=dirty,
        python=platform.python_version(),
        torch=package_version("torch"),
        pillow=package_version("pillow"),
        platform=platform.platform(terse=True),
        device=device,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )

"""A test that is skipped must be on the list of what a run may leave out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("reason", "workers", "code"),
    [
        ("cifar10 is not fetched", "0", 1),
        ("cifar10 is not fetched", "1", 1),
        ("no chromium on the PATH (or in STOCKPOT_CHROMIUM)", "0", 0),
    ],
)
def test_a_skip_without_leave_fails_the_run(
    reason: str, workers: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "test_one.py").write_text(
        f"import pytest\n\ndef test_it(): pytest.skip({reason!r})\n\ndef test_other(): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "skips", "-n", workers, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
    )
    assert done.returncode == code, done.stdout
    assert ("SKIPPED WITHOUT LEAVE" in done.stdout) == bool(code)


def test_tests_see_an_empty_home(home: Path) -> None:
    assert Path.home() == home
    # Hashes of files may be remembered there by tests before this one; nothing is fetched.
    assert not (home / ".cache" / "stockpot" / "datasets").exists()

"""The file of per-image records beside a result: where it lies, and by what the result knows it.

What is in it is for `samples.py`, which takes longer to import than many results to be written.
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def samples_path(result_file: Path) -> Path:
    """Where the records of a result file lie."""
    return result_file.with_suffix(".samples.parquet")


def digest_of(content: bytes) -> str:
    """By which a result knows the file of its records."""
    return hashlib.sha256(content).hexdigest()

"""What is embedded stays small enough to travel with the package, as `docs/models.md` says."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

ZOO = Path(str(files("stockpot"))) / "zoo"
MODELS_PAGE = Path(__file__).parents[1] / "docs" / "models.md"


def test_the_embedded_set_stays_below_what_the_docs_say() -> None:
    told = re.search(r"embedded set [^.]* below (\d+) MB", MODELS_PAGE.read_text(encoding="utf-8"))
    assert told is not None
    assert told[1] == "60"
    meant = (file for file in ZOO.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    assert sum(file.stat().st_size for file in meant) < int(told[1]) * 1_000_000

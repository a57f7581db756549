"""How models and scores are called in other people's files."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from stockpot.results.schema import CellResult, Score

_LONGEST = 180


def by_model(results: Iterable[CellResult]) -> dict[str, list[CellResult]]:
    """Cells by the name of their model, in order of appearance."""
    groups = defaultdict(list)
    for result in results:
        groups[result.key.model].append(result)
    return dict(groups)


def file_name(name: str) -> str:
    """A name of a model or dataset as that of one file, which leads nowhere else."""
    plain = re.sub(r"[^\w.=+@ -]+", "-", name).strip(" ")
    plain = plain if plain.strip(".") else f"-{plain}"
    # No file has a name of more than 255 bytes, and something follows it.
    return plain.encode()[:_LONGEST].decode(errors="ignore")


def file_names(names: Iterable[str]) -> dict[str, str]:
    """A file for each name. Where two would be one file, digits tell them apart: `a/b` and `a:b`,
    also `A` and `a`, which are one file on some disks."""
    found = {name: file_name(name) for name in names}
    alike = Counter(file.casefold() for file in found.values())
    return {
        name: f"{file}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
        if alike[file.casefold()] > 1
        else file
        for name, file in found.items()
    }


def flat_name(score: Score) -> str:
    """A metric and its condition as one word."""
    parts = [score.metric, *(f"{k}={v}" for k, v in sorted(score.condition.items()))]
    return "/".join(parts).replace(",", ";")

"""How models and scores are called in other people's files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from stockpot.results.schema import CellResult, Score


def by_model(results: Iterable[CellResult]) -> dict[str, list[CellResult]]:
    """Cells by the name of their model, in order of appearance."""
    groups = defaultdict(list)
    for result in results:
        groups[result.key.model].append(result)
    return dict(groups)


def file_name(name: str) -> str:
    """A name of a model or dataset as that of one file, which leads nowhere else."""
    plain = re.sub(r"[^\w.=+@ -]+", "-", name).strip(" ")
    return plain if plain.strip(".") else f"-{plain}"


def flat_name(score: Score) -> str:
    """A metric and its condition as one word."""
    parts = [score.metric, *(f"{k}={v}" for k, v in sorted(score.condition.items()))]
    return "/".join(parts).replace(",", ";")

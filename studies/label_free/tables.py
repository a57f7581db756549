"""The tables of the page, from the CSV files beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stockpot.measure.unlabelled.selection import Method
from stockpot.results.tables import markdown

STEPS = (0, 5, 10, 20, 30)
SEEDS: dict[Method, int] = {"coda": 1, "active_testing": 20, "random": 20}
ESTIMATES = ("atc_confidence", "atc_entropy", "doc", "cot", "aline_s", "aline_d")
Rows = Sequence[dict[str, Any]]


def from_data(estimates: Rows, labels: Rows) -> dict[str, str]:
    """All tables by their places."""
    return {
        "errors": errors(estimates),
        "order": order(estimates),
        "regret": regret(labels),
        "stated": stated(labels),
    }

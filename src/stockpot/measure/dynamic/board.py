"""The rules of a public board, checked on result files: which of them hold, and why not.

A number of dynamic evaluation is worth a place beside others' if nobody could prepare for its
images, generator and oracle, if the images are still what their labels say, and if the search was
not hidden from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stockpot.datasets import datasets
from stockpot.results.schema import CellResult

MIN_VALIDITY = 0.5


class Ruling(NamedTuple):
    """One rule, for one model."""

    model: str
    rule: str
    holds: bool
    why: str


def rulings(cells: Sequence[CellResult], min_validity: float = MIN_VALIDITY) -> list[Ruling]:
    """Every rule for every cell of dynamic evaluation.

    Args:
        cells: all results of a folder.
        min_validity: the validation rate whose interval must lie above it.
    """
    found = []
    for cell in cells:
        if cell.key.measure != "dynamic":
            continue
        others = [
            each
            for each in cells
            if each.key.measure == "published"
            and each.key.model_fingerprint == cell.key.model_fingerprint
        ]
        for rule, why in (
            ("hidden images", _images(cell)),
            ("hidden generator", _weights(cell, "generator", "autoencoder")),
            ("hidden oracle", _weights(cell, "oracle", "model")),
            ("minimum validity", _validity(cell, min_validity)),
            ("transfer check", _transfer(cell, others)),
            ("no sign of hiding", ", ".join(flag.name for flag in cell.flags)),
        ):
            found.append(Ruling(cell.key.model, rule, not why, why))
    return found


def _images(cell: CellResult) -> str:
    if cell.data.name in datasets.names():
        return f"{cell.data.name} is public"
    if cell.pictures:
        return f"the result shows {len(cell.pictures)} of the pictures; measure with pictures=0"
    return "the pictures were exported" if cell.key.params.get("export") else ""


def _weights(cell: CellResult, role: str, name: str) -> str:
    """Weights of one's own stand in a result by their content; all others are public."""
    if role == "oracle" and cell.key.params.get(role) == "human":
        return ""
    params = cell.key.params.get(f"{role}_params") or {}
    chosen = str(params.get(name) or "")
    # A folder stands there as its name and content; of a hub id what follows the @ is a revision.
    own = "@" in chosen and "/" not in chosen.partition("@")[0]
    return "" if own else f"{chosen or 'the default'} is public"


def _validity(cell: CellResult, least: float) -> str:
    rate = cell.score("validation_rate")
    low = rate.value if rate.ci_low is None else rate.ci_low
    if low >= least:
        return ""
    return f"{100 * rate.value:.1f} % were validated (at least {100 * low:.1f} %), not {least:.0%}"


def _transfer(cell: CellResult, others: Sequence[CellResult]) -> str:
    """Images made against a model are harder for it than others; else its search was misled."""
    foreign = [each for each in others if "not against this model" in each.convention]
    if not foreign:
        return "no FMR on a set that was made against another model (measure `published`)"
    try:
        own = cell.score("fmr")
    except KeyError:
        return "there is no FMR"
    for each in foreign:
        other = each.score("fmr")
        low = own.value if own.ci_low is None else own.ci_low
        high = other.value if other.ci_high is None else other.ci_high
        if low > high:
            return (
                f"the FMR is {100 * own.value:.1f} % on its own images and {100 * other.value:.1f} "
                f"% on those made against {other.condition.get('maker')}"
            )
    return ""

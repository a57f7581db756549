"""What a reader must know before the numbers: unaudited, flagged, few images, seen in training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stockpot.results.schema import CellResult
from stockpot.results.summary.models import Summary
from stockpot.results.trust import UNAUDITED, audited_notes, is_ranked, worst_of

FEW = 100
"""Below so many images an accuracy of one half is known to 10 points or worse."""


def cautions(results: Sequence[CellResult], found: Summary) -> list[str]:
    """Sentences, the gravest first; nothing where there is nothing to say."""
    return [
        *_convicted(results),
        *_flagged(results),
        *_trained(results),
        *_seen(results),
        *_unranked(results),
        *_unaudited(results),
        *_few(found),
    ]


def _convicted(results: Sequence[CellResult]) -> list[str]:
    said = []
    for cell in results:
        if cell.findings and (verdict := worst_of(cell.findings)) != "cleared":
            against = [f.name.replace("_", " ") for f in cell.findings if f.verdict != "cleared"]
            said.append(
                f"{cell.key.model} is {verdict} of hiding from attacks ({', '.join(against)}): "
                f"its robust accuracy is not to be believed."
            )
    return said


def _flagged(results: Sequence[CellResult]) -> list[str]:
    found: dict[str, list[str]] = {}
    for cell in results:
        for flag in cell.flags:
            words = f"{cell.key.model} ({cell.key.measure}, {flag.count:,} of {flag.of:,})"
            found.setdefault(flag.name.replace("_", " "), []).append(words)
    return [f"Flagged as {name}: {_listed(of)}." for name, of in found.items()]


def _trained(results: Sequence[CellResult]) -> list[str]:
    found: dict[str, list[str]] = {}
    for cell in results:
        measured = {str(score.condition.get("corruption")) for score in cell.scores}
        held = [name.replace("_", " ") for name in cell.model.trained_on if name in measured]
        if held:
            found.setdefault(_listed(held), []).append(cell.key.model)
    return [
        f"Trained on what it is measured on: {_listed(models)} saw {held} in training."
        for held, models in found.items()
    ]


def _seen(results: Sequence[CellResult]) -> list[str]:
    found: dict[str, None] = {}
    for cell in results:
        seen = cell.seen_images
        if seen is not None and seen.any():
            share = f"{int(seen.sum()):,} of {len(seen):,} images of {cell.key.data}"
            found[f"{cell.key.model} ({share})"] = None
    return [f"Measured on images that it saw when it was made: {_listed(found)}."] if found else []


def _unranked(results: Sequence[CellResult]) -> list[str]:
    found = {f"{c.key.model} ({c.key.measure})": None for c in results if not is_ranked(c)}
    return [f"Not to be ranked with others: {_listed(found)}; the notes say why."] if found else []


def _unaudited(results: Sequence[CellResult]) -> list[str]:
    models = {cell.key.model: None for cell in results if UNAUDITED in audited_notes(cell, results)}
    if not models:
        return []
    return [
        f"Not audited: {_listed(models)}. An attack that fails may have failed for a bad reason; "
        "`stockpot audit` tells."
    ]


def _few(found: Summary) -> list[str]:
    few: dict[str, int] = {}
    for column in found.columns:
        counts = [score.n for score in column.scores.values() if score.unit == "fraction"]
        if counts and min(counts) < FEW:
            few[column.title] = min(counts)
    if not few:
        return []
    parts = _listed(f"{title} on {count}" for title, count in few.items())
    return [f"Few images: {parts}. Differences of several points may be chance."]


def _listed(names: Iterable[str], most: int = 8) -> str:
    known = list(dict.fromkeys(names))
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more

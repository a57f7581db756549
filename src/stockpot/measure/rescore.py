"""Scores anew from saved outcomes: other statistics on the same answers, without any model.

A measure saves which images were right; from that its scores are computed (`from_outcomes`). What
needs more than that (losses, steps, the classes of the images) keeps its value; shares of images
get their interval anew, since value and number say it all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.measure.from_outcomes import about, plain_condition, scores_from_outcomes
from stockpot.measure.measurement import with_interval
from stockpot.measure.overlap import unseen_scores
from stockpot.remote.working_copy import run_copies
from stockpot.results.provenance import package_version
from stockpot.results.schema import CellResult, Score
from stockpot.results.statistics import wilson
from stockpot.results.store import read_result, result_files

_GROUPED = "-groups"


@dataclass(frozen=True)
class Rescored:
    """One result file: how many scores stand on saved outcomes, and which of them changed."""

    path: Path
    computed: int
    kept: int
    changes: tuple[str, ...]


def rescore(*sources: str | Path) -> list[Rescored]:
    """Compute the scores of all result files anew; files with a changed score are written anew.

    Args:
        sources: run folders, their `results` folders, or result files.

    Raises:
        UserError: none of the files has outcomes.
    """
    with run_copies(sources) as copies:
        paths = result_files(*(copy.folder for copy in copies))
        results = {path: read_result(path) for path in paths}
        if not any(result.outcomes for result in results.values()):
            raise UserError(
                f"{', '.join(map(str, sources))}: none of {len(paths)} results has saved outcomes "
                "to compute scores from.",
                hint="Measure again.",
            )
        return [_write(path, result) for path, result in results.items() if result.outcomes]


def rescored(result: CellResult) -> tuple[CellResult, int, tuple[str, ...]]:
    """The result with new scores, how many stand on outcomes, and what changed."""
    scores = [*scores_from_outcomes(result), *unseen_scores(result)]
    found = {about(score): score for score in scores}
    renewed, changes, computed = [], [], 0
    for old in result.scores:
        new = found.get(about(old))
        if new is not None and _GROUPED in old.ci_method and _GROUPED not in new.ci_method:
            new = None  # which images belong together is not in the file
        computed += new is not None
        # What a measure says of a score besides its number stays.
        kept = {"unit": old.unit, "higher_is_better": old.higher_is_better}
        new = _interval_anew(old) if new is None else new.model_copy(update=kept)
        renewed.append(new)
        if new != old:
            changes.append(f"{_name(old)}: {_shown(old)} -> {_shown(new)}")
    if not changes:
        return result, computed, ()
    count = f"{len(changes)} of {len(renewed)} scores changed"
    note = f"scored anew from saved outcomes by stockpot {package_version('stockpot')}: {count}"
    update = {"scores": renewed, "notes": [*result.notes, note]}
    return result.model_copy(update=update), computed, tuple(changes)


def _write(path: Path, result: CellResult) -> Rescored:
    new, computed, changes = rescored(result)
    if changes:
        write_atomic(path, new.model_dump_json(indent=1) + "\n")
    return Rescored(path, computed, len(result.scores) - computed, changes)


def _interval_anew(score: Score) -> Score:
    if not score.ci_method.startswith("wilson-9") or _GROUPED in score.ci_method:
        return score
    interval = wilson(round(score.value * score.n), score.n)
    return with_interval(
        score.metric,
        score.value,
        score.n,
        interval,
        better=score.higher_is_better,
        unit=score.unit,
        condition=plain_condition(score),
    )


def _name(score: Score) -> str:
    about = ", ".join(f"{key}={value}" for key, value in score.condition.items())
    return f"{score.metric} ({about})" if about else score.metric


def _shown(score: Score) -> str:
    if score.ci_low is None or score.ci_high is None:
        return f"{score.value:.4g}"
    return f"{score.value:.4g} [{score.ci_low:.4g}, {score.ci_high:.4g}]"

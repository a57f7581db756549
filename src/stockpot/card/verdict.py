"""What the numbers of a card mean, in words. From results alone.

Each sentence has its number, the interval and the images it stands on. A word is said plainly where
the whole interval lies on one side of the line between two words, and with "(probably)" where not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stockpot.results.headline import format_score
from stockpot.results.schema import CellResult, Score

FEW = 100
"""Below so many images a number is called rough."""


class Verdict(NamedTuple):
    """One line for all, a sentence for each measure, and what to bear in mind."""

    line: str
    sentences: list[str]
    warnings: list[str]


Words = Sequence[tuple[float, str]]
"""From the best word down: the least value that earns it."""

_CORRUPTED: Words = (
    (0.85, "holds up under corruption"),
    (0.6, "loses a part under corruption"),
    (0.0, "breaks down under corruption"),
)
_ATTACKED: Words = (
    (0.5, "withstands attack"),
    (0.1, "is weak against attack"),
    (0.0, "falls to attack"),
)
_MADE: Words = (
    (0.8, "keeps its accuracy on pictures made against it"),
    (0.5, "loses a part on pictures made against it"),
    (0.0, "fails on pictures made against it"),
)
_SURE: Words = (
    (0.95, "its confidence can be taken at its word"),
    (0.85, "its confidence is somewhat off"),
    (0.0, "its confidence says little"),
)


def verdict(results: Iterable[CellResult], left_out: Mapping[str, str]) -> Verdict:
    """Read the results of one model's card."""
    cells = {cell.key.measure: cell for cell in results}
    parts: list[str] = []
    sentences: list[str] = []
    for name, read in _READERS.items():
        if name in cells and (found := read(cells[name])):
            word, sentence = found
            parts += [word] if word else []
            sentences.append(sentence)
    sentences += [f"{name}: not measured ({why})" for name, why in left_out.items()]
    line = "; ".join(parts)
    return Verdict(line[:1].upper() + line[1:] + "." if line else "", sentences, _warnings(cells))


def _clean(cell: CellResult) -> tuple[str, str]:
    score, classes = cell.score("accuracy"), max(cell.data.classes, 1)
    low = score.value if score.ci_low is None else score.ci_low
    chance = low <= 1 / classes
    word = "not clearly better than chance" if chance else f"right on {100 * score.value:.0f} %"
    return word, f"clean: {_shown(score)} of {score.n:,} images are answered rightly"


def _corruption(cell: CellResult) -> tuple[str, str]:
    score = cell.score("mean_corruption_accuracy")
    whole = cell.score("accuracy").value
    worst = _worst(cell)
    word = _graded(score, _CORRUPTED, whole)
    kept = (
        f", {100 * score.value / whole:.0f} % of the {100 * whole:.0f} % without" if whole else ""
    )
    told = f"corruption: {_shown(score)} right under corruption{kept} (n = {cell.data.n:,})"
    return word, f"{told}; worst: {worst}" if worst else told


def _adversarial(cell: CellResult) -> tuple[str, str] | None:
    robust = [score for score in cell.scores if score.metric == "robust_accuracy"]
    union = [score for score in cell.scores if score.metric == "union_accuracy"]
    if not robust:
        return None
    judged = (union or robust)[0]
    each = ", ".join(
        f"{score.condition.get('norm')} {score.condition.get('eps')}: {_shown(score)}"
        for score in robust
    )
    together = f"; all of them: {_shown(union[0])}" if union else ""
    how = cell.convention.partition(";")[0].removeprefix("adversarial:")
    word = _graded(judged, _ATTACKED, cell.score("accuracy").value)
    return word, f"attack ({how}): right under {each}{together} (n = {judged.n:,})"


def _dynamic(cell: CellResult) -> tuple[str, str] | None:
    found = [score for score in cell.scores if score.metric == "matched_fmr"]
    if not found:
        return None
    word = _graded(found[0], _MADE, 1.0)
    told = "of its accuracy is kept on made pictures that an oracle accepts"
    return word, f"dynamic: {_shown(found[0])} {told} (n = {found[0].n:,})"


def _calibration(cell: CellResult) -> tuple[str, str]:
    plain = next(s for s in cell.scores if s.metric == "ece" and not s.condition)
    mended = [s for s in cell.scores if s.metric == "ece" and s.condition.get("scaling")]
    turned = plain.model_copy(
        update={
            "value": 1 - plain.value,
            "ci_low": None if plain.ci_high is None else 1 - plain.ci_high,
            "ci_high": None if plain.ci_low is None else 1 - plain.ci_low,
        }
    )
    told = f"calibration: confidence is off by {_shown(plain)} on average (n = {plain.n:,})"
    if mended:
        told += f"; one temperature makes it {_shown(mended[0])}"
    return _graded(turned, _SURE, 1.0), told


def _cost(cell: CellResult) -> tuple[str, str]:
    shown = {score.metric: format_score(score) for score in cell.scores}
    names = {"parameters": "parameters", "images_per_second": "images/s", "latency": "latency"}
    told = ", ".join(f"{shown[key]} {name}" for key, name in names.items() if key in shown)
    return "", f"cost: {told} on {cell.cost.device or 'this machine'}"


_READERS = {
    "clean": _clean,
    "corruption": _corruption,
    "adversarial": _adversarial,
    "dynamic": _dynamic,
    "calibration": _calibration,
    "cost": _cost,
}


def _graded(score: Score, words: Words, whole: float) -> str:
    """The word for a score as a share of what it could be."""
    if whole <= 0:
        return ""

    def word(value: float) -> str:
        return next((said for least, said in words if value / whole >= least), words[-1][1])

    said = word(score.value)
    ends = {word(end) for end in (score.ci_low, score.ci_high) if end is not None}
    return said if ends <= {said} else f"{said} (probably)"


def _worst(cell: CellResult) -> str:
    """The corruption with the largest mean error."""
    errors: dict[str, list[float]] = {}
    for score in cell.scores:
        if score.metric == "error" and "severity" in score.condition:
            errors.setdefault(str(score.condition["corruption"]), []).append(score.value)
    means = {name: sum(values) / len(values) for name, values in errors.items()}
    if not means:
        return ""
    name = max(means, key=lambda each: means[each])
    return f"{name} ({100 * (1 - means[name]):.0f} % right)"


def _warnings(cells: Mapping[str, CellResult]) -> list[str]:
    found: list[str] = []
    few = [f"{name} ({cell.data.n})" for name, cell in cells.items() if cell.data.n < FEW]
    if few := [each for each in few if not each.startswith("cost")]:
        found.append(f"few images, so the intervals are wide: {', '.join(few)}")
    for cell in cells.values():
        found += [
            f"{cell.key.measure}: {flag.name.replace('_', ' ')} ({flag.count} of {flag.of})"
            for flag in cell.flags
        ]
        found += [note for note in cell.notes if note.startswith(("unaudited", "trained on"))]
    return list(dict.fromkeys(found))


def _shown(score: Score) -> str:
    return format_score(score)

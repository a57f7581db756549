"""Methods on shorter streams over several trainings, as it was added to plan.md before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from study import AGAIN, STREAMS

from stockpot.results.few_seeds import Difference, Drawn, drawn_mean, over_draws
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results
from stockpot.results.tables import markdown, score_row
from trainings import each, in_order, several

CORRUPTIONS = 15
"""So that the right answers to a picture are one hexadecimal digit."""
SOURCE, SINGLE = "source", "single"
Answers = Mapping[str, Mapping[str, Any]]
"""Of one training: by method and stream, right answers by the picture, and calibration."""


def packed(run: Path) -> dict[str, Any]:
    """Under how many of the corruptions each picture was right, by training, method and stream."""
    folders = {place.name: place for place in run.iterdir() if place.name.isdigit()}
    found: dict[str, Any] = {}
    for number in in_order(folders):
        own = found.setdefault(number, {})
        for cell in load_results(folders[number]):
            asked = cell.key.params
            stream = STREAMS[asked["stream"], asked["order"], False]
            own.setdefault(cell.key.model, {})[stream] = _packed(cell)
    return found


def _packed(cell: CellResult) -> dict[str, Any]:
    flags = np.stack([cell.outcome(name) for name in cell.outcomes])
    if len(flags) != CORRUPTIONS:
        raise ValueError(f"{cell.key.model}: expected {CORRUPTIONS} corruptions, got {len(flags)}")
    ece = score_row(cell, ("ece",))
    return {
        "right": "".join(f"{count:x}" for count in flags.sum(axis=0)),
        "ece": [round(ece[key], 4) for key in ("ece", "ece_low", "ece_high")],
    }


def shares(answers: Answers, method: str, stream: str) -> NDArray[np.float64]:
    """The share of its corruptions under which each picture was right."""
    text = _cell(answers, method, stream)["right"]
    return np.array([int(digit, 16) for digit in text]) / CORRUPTIONS


def _cell(answers: Answers, method: str, stream: str) -> Mapping[str, Any]:
    # The network as it is says the same to a picture wherever that stands.
    found: Mapping[str, Any] = answers[method][SINGLE if method == SOURCE else stream]
    return found


def trainings_table(found: Mapping[str, Answers]) -> str:
    """Methods on streams, with what every training says, the zoo's first."""
    runs = [found[number] for number in in_order(found)]
    streams = [name for name in STREAMS.values() if name in runs[0][AGAIN[1]]]
    lines = []
    for method in AGAIN[1:]:
        help_alone = gain(runs, method, SINGLE)
        for stream in streams:
            helped = gain(runs, method, stream)
            changed = None if stream == SINGLE else change(runs, method, stream)
            sure = all(_less_calibrated(answers, method, stream) for answers in runs)
            lines.append((
                f"`{method}`", stream, str(helped.alone), each(helped.each),
                "-" if changed is None else str(changed.alone),
                "-" if changed is None else each(changed.each),
                len(shares(runs[0], method, stream)), len(runs),
                judged(helped, changed, help_alone, sure),
            ))  # fmt: skip
    columns = ("method", "stream", "less `source` [95 %]", "each training",
               "less `single` [95 %]", "each training", "pictures", "trainings",
               "by the rules")  # fmt: skip
    return several(len(runs), markdown(columns, lines))


def gain(runs: Sequence[Answers], method: str, stream: str) -> Difference:
    """A method less the network as it is."""
    return _over(runs, lambda one: shares(one, method, stream) - shares(one, SOURCE, stream))


def change(runs: Sequence[Answers], method: str, stream: str) -> Difference:
    """A method on a stream less the same method where each corruption comes alone."""
    return _over(runs, lambda one: shares(one, method, stream) - shares(one, method, SINGLE))


def _over(runs: Sequence[Answers], values: Callable[[Answers], NDArray[np.float64]]) -> Difference:
    drawn: list[Drawn] = [drawn_mean(values(one)) for one in runs]
    return over_draws(drawn)


def _less_calibrated(answers: Answers, method: str, stream: str) -> bool:
    low, high = _cell(answers, method, stream)["ece"][1], _cell(answers, SOURCE, stream)["ece"][2]
    return bool(low > high)


def judged(
    helped: Difference, changed: Difference | None, alone: Difference, less_calibrated: bool
) -> str:
    """The rule that was added to the plan."""
    words = {"held": "helps", "did not hold": "harms"}
    said = [words.get(helped.said(), "not told apart")]
    if alone.said() == "held" and changed is not None and changed.said() == "did not hold":
        said.append("the stream takes help away")
    return "; ".join([*said, *(["less calibrated"] if less_calibrated else [])])

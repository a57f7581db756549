"""What a search is for: names of objectives, the measures behind them, and how tasks combine.

| objective | what is raised or lowered |
|---|---|
| `clean` | accuracy, the mean over tasks |
| `worst_task` | accuracy on the worst task |
| `unseen` | accuracy on tasks that no member was made for (`unseen=`) |
| `corruption` | accuracy under corruptions |
| `robust` | accuracy under the union of attacks |
| `calibration` | expected calibration error, lowered |
| `entropy` | entropy of the answers, lowered; needs no labels |
| `nuclear_norm` | nuclear norm of the answers; needs no labels |
| `MEASURE.METRIC` | any score of any measure, in the direction that it has |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError, UnknownNameError
from stockpot.measure import measures
from stockpot.measure.in_memory import in_memory
from stockpot.measure.measurement import Context, Measurement, forward_batches
from stockpot.models.classifier import Classifier, evaluating
from stockpot.score.scorer import scorer_for
from stockpot.score.without_labels.confidence import entropy, nuclear_norm
from stockpot.stages import stage

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Objective:
    """One thing to raise or to lower."""

    name: str
    measure: str
    metric: str
    flags: str = ""
    """The outcomes of single images whose mean it is, where it is one."""
    over: Literal["mean", "worst"] = "mean"
    """How tasks combine."""
    unseen: bool = False
    """Whether it looks at the unseen tasks."""
    higher: bool = True
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Of the measure."""

    def combine(self, values: Sequence[float]) -> float:
        """The number of all tasks together."""
        if self.over == "mean":
            return float(np.mean(values))
        return min(values) if self.higher else max(values)


_KNOWN = {
    one.name: one
    for one in (
        Objective("clean", "clean", "accuracy", "correct"),
        Objective("worst_task", "clean", "accuracy", "correct", "worst"),
        Objective("unseen", "clean", "accuracy", "correct", unseen=True),
        Objective("corruption", "corruption", "mean_corruption_accuracy"),
        Objective("robust", "adversarial", "union_accuracy", "union"),
        Objective("calibration", "clean", "ece", higher=False),
        Objective("entropy", "", "entropy", higher=False),
        Objective("nuclear_norm", "", "nuclear_norm"),
    )
}
NAMES = tuple(_KNOWN)


def read_objectives(
    given: str | Sequence[str], params: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Objective]:
    """Objectives by name; `params` are those of measures."""
    names = given.split(",") if isinstance(given, str) else list(given)
    found = [_read(name.strip()) for name in names]
    if not found or len({one.name for one in found}) < len(found) or len(found) > 3:
        raise BadParameterError(
            f"objectives: expected one to three different ones, got {', '.join(names) or 'none'}."
        )
    own = dict(params or {})
    strange = [name for name in own if name not in {one.measure for one in found}]
    if strange:
        raise BadParameterError(
            f"measure_params: no objective looks at {strange[0]}.",
            hint=f"Objectives: {', '.join(one.name for one in found)}.",
        )
    return [_with(one, own.get(one.measure, {})) for one in found]


def _read(name: str) -> Objective:
    if name in _KNOWN:
        return _KNOWN[name]
    measure, dot, metric = name.partition(".")
    if not dot:
        raise UnknownNameError(
            "objective", name, NAMES, hint="Any score of a measure is one too: MEASURE.METRIC."
        )
    measures.get(measure)
    return Objective(name, measure, metric)


def _with(one: Objective, params: Mapping[str, Any]) -> Objective:
    if not one.measure:
        return one
    own = {"per_class": False, **params} if one.measure == "clean" else dict(params)
    checked = measures.get(one.measure).validate(own)
    return Objective(**{**one.__dict__, "params": checked})


@dataclass(frozen=True)
class Found:
    """What was found of one objective: its number, and on each task the images it counted."""

    value: float
    higher: bool
    tasks: tuple[float, ...]
    flags: tuple[Flags, ...] = ()


@stage("judge")
def judge(
    objectives: Sequence[Objective],
    models: Sequence[Classifier],
    data: Sequence[Dataset],
    unseen: Sequence[bool],
    context: Context,
) -> dict[str, Found]:
    """Measure models, each on its own data, for all objectives; each measure is asked once."""
    asked: dict[tuple[int, str], Measurement | dict[str, float]] = {}
    found = {}
    for one in objectives:
        values, flags, higher = [], [], one.higher
        for task, (model, images) in enumerate(zip(models, data, strict=True)):
            if unseen[task] != one.unseen:
                continue
            key = task, one.measure
            if key not in asked:
                asked[key] = _ask(one, model, images, context)
            value, own, higher = _read_off(one, asked[key])
            values.append(value)
            flags += [own] if own is not None else []
        if not values:
            raise BadParameterError(
                f"{one.name}: no data to look at.",
                hint="Give unseen=DATASET (--unseen)." if one.unseen else "Give data (--data).",
            )
        found[one.name] = Found(one.combine(values), higher, tuple(values), tuple(flags))
    return found


def _ask(
    one: Objective, model: Classifier, data: Dataset, context: Context
) -> Measurement | dict[str, float]:
    if one.measure:
        return in_memory(one.measure, model, data, context, one.params).found
    scorer = scorer_for(model.classes, data).to(context.device)
    with evaluating(model):
        parts = [
            scorer.logits(logits).softmax(dim=1)
            for logits, _ in forward_batches(model, data, context, "answers")
        ]
        answers = torch.cat(parts).nan_to_num(0.0)
        return {
            "entropy": float(entropy(answers).mean()),
            "nuclear_norm": float(nuclear_norm(answers)),
        }


def _read_off(
    one: Objective, asked: Measurement | Mapping[str, float]
) -> tuple[float, Flags | None, bool]:
    if not isinstance(asked, Measurement):
        return asked[one.metric], None, one.higher
    if one.flags:
        flags: Flags = np.asarray(asked.outcomes[one.flags], dtype=np.bool_)
        return float(flags.mean()) if flags.size else 0.0, flags, True
    scores = [score for score in asked.scores if score.metric == one.metric]
    if not scores:
        known = dict.fromkeys(score.metric for score in asked.scores)
        raise UnknownNameError(f"metric of {one.measure}", one.metric, list(known))
    # Where a measure gives a score for every condition, the first is that of all together.
    whole = next((score for score in scores if not score.condition), scores[0])
    return whole.value, None, bool(whole.higher_is_better)

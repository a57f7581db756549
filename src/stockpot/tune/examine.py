"""The choice on test images, once, beside the method's own defaults."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stockpot.measure.measurement import Context
from stockpot.results.resamples import Groups, resampled_means
from stockpot.results.tuning import TunedScore, TuneResult
from stockpot.tune.merges import Merges
from stockpot.tune.objectives import Flags, Found, Objective, judge

_RESAMPLES = 1000


def scores_on_test(
    result: TuneResult,
    merges: Merges,
    objectives: Sequence[Objective],
    unseen: Sequence[bool],
    context: Context,
) -> dict[str, TunedScore]:
    """Every objective of the chosen trial, with its interval and its gain over the default's."""
    if result.chosen is None:
        return {}
    found = []
    for number in dict.fromkeys([result.chosen, result.default]):
        if number is None:
            continue
        trial = result.trial(number)
        with merges.merged(trial.method, trial.params) as models:
            found.append(judge(objectives, models, merges.data, unseen, context))
    scores = {}
    for one in objectives:
        groups = [
            None if data.groups is None else np.asarray(data.groups)
            for data, mark in zip(merges.data, unseen, strict=True)
            if mark == one.unseen
        ]
        best = found[0][one.name]
        # Where the defaults were chosen themselves, there is nothing gained.
        other = found[-1][one.name] if result.default is not None else None
        scores[one.name] = _score(one, best, other, groups, context.seed)
    return scores


def _score(
    one: Objective, best: Found, other: Found | None, groups: Sequence[Groups | None], seed: int
) -> TunedScore:
    sign = 1.0 if best.higher else -1.0
    plain = TunedScore(
        value=best.value,
        tasks=list(best.tasks),
        n=sum(map(len, best.flags)),
        default=None if other is None else other.value,
        gain=None if other is None else sign * (best.value - other.value),
    )
    if not best.flags:
        return plain
    own = _drawn(one, best.flags, groups, seed)
    low, high = np.quantile(own, [0.025, 0.975])
    update = {"low": float(low), "high": float(high)}
    if other is not None:
        gain = own - _drawn(one, other.flags, groups, seed)  # the same images are drawn for both
        low, high = np.quantile(gain, [0.025, 0.975])
        update |= {"gain_low": float(low), "gain_high": float(high)}
    return plain.model_copy(update=update)


def _drawn(
    one: Objective, flags: Sequence[Flags], groups: Sequence[Groups | None], seed: int
) -> NDArray[np.float64]:
    """The objective over resampled images of every task."""
    means = np.stack([
        resampled_means(own.astype(np.float64)[:, None], seed=seed + task, resamples=_RESAMPLES,
                        groups=groups[task])[:, 0]
        for task, own in enumerate(flags)
    ])  # fmt: skip
    found: NDArray[np.float64] = means.min(axis=0) if one.over == "worst" else means.mean(axis=0)
    return found

"""Sets of answers in place of one: do they hold the right class as often as promised?"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field
from scipy.stats import beta

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError, UnknownNameError
from stockpot.measure import measures
from stockpot.measure.chosen_data import Chosen
from stockpot.measure.measurement import Context, Measurement, proportion, with_interval
from stockpot.measure.unknown.answers import Answers, Floats
from stockpot.measure.unknown.conformal_sets import Method, Regular, strangeness, threshold
from stockpot.measure.unknown.held_out import held_out_answers
from stockpot.models.classifier import Classifier
from stockpot.results.schema import Score
from stockpot.results.statistics import bootstrap_mean
from stockpot.score.class_space import ClassSpace
from stockpot.score.predictions import NONE
from stockpot.types import Check, Natural, NonNegative

_METHODS: tuple[Method, ...] = ("lac", "aps", "raps")


def _read_methods(value: Any) -> tuple[str, ...]:
    chosen = tuple(str(n).strip() for n in (value.split(",") if isinstance(value, str) else value))
    for name in chosen:
        if name not in _METHODS:
            raise UnknownNameError("conformal method", name, _METHODS)
    if not chosen:
        raise BadParameterError("methods: expected at least one of lac, aps, raps.")
    return chosen


@measures.register("conformal", paper="arXiv:2009.14193", passes=True)
def conformal(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.1,
    methods: Annotated[tuple[Method, ...], Check(_read_methods)] = _METHODS,
    held_out: Chosen = "content",
    randomised: bool = True,
    penalty: NonNegative = 0.01,
    free_ranks: Natural = 5,
    class_space: ClassSpace = "all",
) -> Measurement:
    """Split conformal sets: how often they hold the right class, and how many classes they hold.

    Args:
        alpha: the share of images whose set may miss the right class.
        methods: lac, aps, raps, or some of them.
        held_out: what thresholds are set on: half of the images by `content`, as published, the
            data's `val` split, or another dataset. The promise holds for images that are like
            those which are scored.
        randomised: whether aps and raps count a random share of a class's own probability.
        penalty: of raps, for each rank.
        free_ranks: of raps, that cost nothing.
        class_space: as for `clean`.
    """
    parts = held_out_answers(model, data, context, held_out, class_space)
    scores = [proportion("accuracy", parts.whole.correct, groups=parts.whole.groups)]
    regular = Regular(penalty, free_ranks)
    seeds = np.random.default_rng([context.seed, 1]), np.random.default_rng([context.seed, 0])
    shares = [
        generator.random(len(part)) if randomised else None
        for generator, part in zip(seeds, (parts.fit, parts.scored), strict=True)
    ]
    for method in methods:
        fit = strangeness(parts.fit.probabilities(), method, shares[0], regular)
        # What is as strange as the threshold is in the set, whatever rounding makes of sums.
        limit = threshold(_of_right(fit, parts.fit), alpha) + 1e-9
        strange = strangeness(parts.scored.probabilities(), method, shares[1], regular)
        scores += _scores(strange, limit, parts.scored, {"method": method}, context.seed)
    scorer = parts.whole.scorer
    about = f"penalty {penalty} beyond rank {free_ranks}" if "raps" in methods else ""
    chance = "randomised" if randomised else "not randomised"
    return Measurement(
        scores=scores,
        convention=f"conformal:split:{class_space}; alpha {alpha}; {', '.join(methods)}; "
        f"{'; '.join(filter(None, [about, chance]))}; thresholds on {parts.words}",
        images=parts.images,
        outcomes={"correct": parts.whole.correct},
        notes=(*parts.notes, *_promise(len(parts.fit), alpha), *scorer.notes),
        flags=parts.flags,
        class_space=scorer.description,
    )


def _of_right(strange: Floats, answers: Answers) -> Floats:
    """The strangeness of the right class, of the least strange where there are several."""
    kept = np.take_along_axis(strange, np.maximum(answers.wanted, 0), axis=1)
    found: Floats = np.where(answers.wanted == NONE, np.inf, kept).min(axis=1)
    return np.where(answers.answered, found, np.inf)


def _scores(
    strange: Floats, limit: float, answers: Answers, about: dict[str, str], seed: int
) -> list[Score]:
    # Without an answer there is no set: nothing is covered, by all classes there are.
    covered = answers.answered & (_of_right(strange, answers) <= limit)
    sizes = np.where(answers.answered, (strange <= limit).sum(axis=1), strange.shape[1])
    sizes = sizes.astype(np.float64)
    interval = bootstrap_mean(sizes, seed=seed, groups=answers.groups)
    return [
        proportion("coverage", covered, about, groups=answers.groups).model_copy(
            update={"higher_is_better": None}
        ),
        with_interval("set_size", float(sizes.mean()), len(sizes), interval, better=False,
                      unit="classes", condition=about),
        proportion("empty_sets", sizes == 0, about, better=False, groups=answers.groups),
    ]  # fmt: skip


def _promise(n: int, alpha: float) -> list[str]:
    """What coverage the theorem promises, over the draw of so many held-out images."""
    missed = int(np.floor((n + 1) * alpha + 1e-9))
    if not missed:
        few = int(np.ceil(1 / alpha)) - 1
        return [f"{n} held-out images are too few for alpha {alpha}: sets hold every class; {few} "
                "are needed"]  # fmt: skip
    low, high = beta.ppf([0.025, 0.975], n + 1 - missed, missed)
    return [
        f"with {n} held-out images that are like the scored ones, coverage is between "
        f"{100 * low:.1f} and {100 * high:.1f} % in 95 of 100 draws of them"
    ]

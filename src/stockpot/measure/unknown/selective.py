"""How right a model is where it may keep silent: risk over coverage (arXiv:1705.08500)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Flags, Measurement, proportion, with_interval
from stockpot.measure.unknown.answers import Answers, Floats, answers_of
from stockpot.models.classifier import Classifier
from stockpot.results.resamples import image_counts
from stockpot.results.schema import Score
from stockpot.results.statistics import Interval, never_certain
from stockpot.score.class_space import ClassSpace

_RESAMPLES = 1000
Sureness = Literal["msp", "max_logit", "margin", "entropy"]


@measures.register("selective", paper="arXiv:1705.08500", passes=True, splits=True)
def selective(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    by: Sureness = "msp",
    coverages: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    class_space: ClassSpace = "all",
) -> Measurement:
    """Accuracy among the answers a model is surest of, and the area under risk over coverage.

    Args:
        by: what tells how sure an answer is: the highest probability (`msp`), the highest logit,
            the margin between the two highest probabilities, or minus the entropy.
        coverages: shares of the images at which the accuracy is given.
        class_space: as for `clean`.
    """
    wrong_ones = [share for share in coverages if not 0 < share <= 1]
    if wrong_ones or not coverages:
        raise BadParameterError(f"coverages: expected shares in (0, 1], got {coverages}.")
    answers = answers_of(model, data, context, "selective", class_space, "correct")
    scorer = answers.scorer
    return Measurement(
        scores=[
            proportion("accuracy", answers.correct, groups=answers.groups),
            *selective_scores(
                sureness(answers, by), answers.correct, coverages, context.seed, answers.groups
            ),
        ],
        convention=f"selective:{class_space}; by {by}; equal ones in random order; aurc over all "
        "numbers of images, e-aurc less that of the best order",
        images=len(answers),
        outcomes={"correct": answers.correct},
        notes=scorer.notes,
        class_space=scorer.description,
    )


def sureness(answers: Answers, by: Sureness) -> Floats:
    """How sure each answer is; what is no answer is as sure as can be, and wrong."""
    probabilities = answers.probabilities()
    if by == "max_logit":
        found = answers.logits.max(axis=1)
    elif by == "entropy":
        logs = np.log(np.maximum(probabilities, 1e-300))
        found = (probabilities * logs).sum(axis=1)
    elif by == "margin" and probabilities.shape[1] > 1:
        best = np.sort(probabilities, axis=1)
        found = best[:, -1] - best[:, -2]
    else:
        found = probabilities.max(axis=1)
    certain: Floats = np.nan_to_num(found, nan=np.inf)
    return certain


def selective_scores(
    sure: Floats,
    correct: Flags,
    coverages: tuple[float, ...],
    seed: int = 0,
    groups: np.ndarray | None = None,
) -> list[Score]:
    """AURC, its excess over the best order, and the accuracy at every coverage, with intervals."""
    order = np.argsort(-sure, kind="stable")
    sure, errors = sure[order], (~correct[order]).astype(np.float64)
    n = len(errors)
    own = None if groups is None else groups[order]
    counts = image_counts(n, seed=seed, resamples=_RESAMPLES, groups=own)
    drawn = np.concatenate([_values(sure, errors, part, coverages) for part in counts])
    whole = _values(sure, errors, np.ones((1, n)), coverages)[0]
    method = "bootstrap-95" if groups is None else f"bootstrap-95:{len(np.unique(groups))}-groups"
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    # A curve stands on the images as they are: chance in the order must not leave it outside.
    found = [
        Interval(float(min(a, value)), float(max(b, value)), method)
        for a, b, value in zip(low, high, whole, strict=True)
    ]
    scores = [
        with_interval("aurc", float(whole[0]), n, found[0], better=False),
        with_interval("excess_aurc", float(whole[1]), n, found[1], better=False),
    ]
    for share, value, interval in zip(coverages, whole[2:], found[2:], strict=True):
        about: dict[str, str | float] = {"curve": "coverage", "coverage": share}
        kept = max(1, round(share * n))
        interval = never_certain(interval, float(value), kept, groups)
        scores.append(
            with_interval("selective_accuracy", float(value), kept, interval, condition=about)
        )
    return scores


def _values(
    sure: Floats, errors: Floats, counts: np.ndarray, coverages: tuple[float, ...]
) -> Floats:
    """AURC, excess AURC and accuracies for resamples of images that are in order of sureness.

    Args:
        sure: of each image, the largest first.
        errors: 1 where an image is wrong.
        counts: resamples x images, how often each is drawn.
        coverages: shares of the images.
    """
    starts = np.flatnonzero(np.concatenate([[True], sure[1:] != sure[:-1]]))
    weights = counts.astype(np.float64)
    # Among equally sure ones the order is random: each is as wrong as they are on average.
    sizes = np.add.reduceat(weights, starts, axis=1)
    wrong = np.add.reduceat(weights * errors, starts, axis=1)
    total = sizes.sum(axis=1)
    ends, mistakes = np.cumsum(sizes, axis=1), np.cumsum(wrong, axis=1)
    found = np.zeros((len(weights), 2 + len(coverages)))
    found[:, 0] = _area(sizes, wrong, ends, mistakes) / total
    right = total - mistakes[:, -1]
    least = mistakes[:, -1] - right * (_harmonic(total) - _harmonic(right))
    found[:, 1] = found[:, 0] - least / total
    for place, share in enumerate(coverages):
        kept = np.maximum(1.0, np.round(share * total))
        group = (ends < kept[:, None]).sum(axis=1)
        rows = np.arange(len(weights))
        before = ends[rows, group] - sizes[rows, group]
        rate = wrong[rows, group] / np.maximum(sizes[rows, group], 1e-12)
        made = mistakes[rows, group] - wrong[rows, group] + (kept - before) * rate
        found[:, 2 + place] = 1 - made / kept
    return found


def _area(sizes: Floats, wrong: Floats, ends: Floats, mistakes: Floats) -> Floats:
    """The sum of the error rates among the first 1, 2, ... images.

    Within a group of s equally sure images with w errors that begins after b images with m errors,
    the rate after k more is (m + k w / s) / (b + k); the sum over k needs harmonic numbers alone.
    """
    before, made = ends - sizes, mistakes - wrong
    rate = wrong / np.maximum(sizes, 1e-12)
    steps = _harmonic(ends) - _harmonic(before)
    found: Floats = (rate * sizes + (made - rate * before) * steps).sum(axis=1)
    return found


def _harmonic(count: Floats) -> Floats:
    """1 + 1/2 + ... + 1/count."""
    table = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, count.max(initial=0) + 1))])
    found: Floats = table[count.astype(np.int64)]
    return found

"""Does the confidence fit the accuracy, and does one temperature mend it?"""

from __future__ import annotations

import numpy as np

from stockpot.datasets.dataset import Dataset
from stockpot.measure import measures
from stockpot.measure.chosen_data import Chosen
from stockpot.measure.measurement import Context, Flags, Measurement, proportion, with_interval
from stockpot.measure.unknown.answers import Answers, Floats
from stockpot.measure.unknown.held_out import held_out_answers
from stockpot.measure.unknown.temperature import fitted_temperature, nll
from stockpot.models.classifier import Classifier
from stockpot.results.calibration import (
    Binning,
    calibration_error,
    calibration_interval,
    classwise_error,
    classwise_interval,
    reliability,
)
from stockpot.results.schema import Score
from stockpot.results.statistics import bootstrap_mean, share_interval
from stockpot.score.class_space import ClassSpace
from stockpot.types import Count

_WORST_BRIER = 2.0


@measures.register("calibration", paper="arXiv:1706.04599", passes=True, splits=True)
def calibration(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    bins: Count = 15,
    held_out: Chosen = "val",
    class_space: ClassSpace = "all",
) -> Measurement:
    """Calibration errors, Brier score and reliability, before and after temperature scaling.

    Args:
        bins: of every calibration error and of the reliability diagram.
        held_out: what the temperature is fitted on: the data's `val` split, half of the images by
            `content`, or another dataset (its name, folder, or options with `dataset`).
        class_space: as for `clean`.
    """
    parts = held_out_answers(model, data, context, held_out, class_space)
    temperature = fitted_temperature(parts.fit)
    scores = [proportion("accuracy", parts.whole.correct, groups=parts.whole.groups)]
    scores += _scores(parts.scored, 1.0, {}, bins, context.seed)
    scores += _scores(parts.scored, temperature, {"scaling": "temperature"}, bins, context.seed)
    scores.append(
        Score(
            metric="temperature",
            value=temperature,
            n=len(parts.fit),
            higher_is_better=None,
            unit="factor",
        )
    )
    scorer = parts.whole.scorer
    notes = [*parts.notes, *scorer.notes]
    if scorer.several:
        notes.append("classwise ECE is left out: some images have several right classes")
    return Measurement(
        scores=scores,
        convention=(
            f"calibration:{class_space}; {bins} bins: ece equal-width, adaptive equal-mass, "
            f"classwise equal-width; brier summed over classes; temperature by least NLL on "
            f"{parts.words}"
        ),
        images=parts.images,
        outcomes={"correct": parts.whole.correct},
        notes=tuple(notes),
        flags=parts.flags,
        class_space=scorer.description,
    )


def _scores(
    answers: Answers, temperature: float, condition: dict[str, str], bins: int, seed: int
) -> list[Score]:
    probabilities = answers.probabilities(temperature)
    confidence, right, groups = answers.confidence(temperature), answers.correct, answers.groups
    n = len(answers)
    binnings: dict[str, Binning] = {"ece": "width", "adaptive_ece": "mass"}
    scores = [
        with_interval(
            metric,
            calibration_error(confidence, right, bins, binning),
            n,
            calibration_interval(
                confidence, right, bins, binning=binning, seed=seed, groups=groups
            ),
            better=False,
            condition=condition,
        )
        for metric, binning in binnings.items()
    ]
    if not answers.scorer.several:
        truth = np.arange(probabilities.shape[1]) == answers.wanted
        # Where there is no answer all that is said of the classes is as wrong as can be.
        said = np.where(np.isnan(probabilities), ~truth, probabilities)
        interval = classwise_interval(said, truth, bins, seed=seed, groups=groups)
        value = classwise_error(said, truth, bins)
        scores.append(
            with_interval("classwise_ece", value, n, interval, better=False, condition=condition)
        )
    likelihood = nll(answers, temperature)
    own = None if groups is None else groups[answers.answered]
    for metric, values, unit, members in (
        ("brier", brier(answers, probabilities), "score", groups),
        ("nll", likelihood, "nats", own),
    ):
        if len(values):
            interval = bootstrap_mean(values, seed=seed, groups=members)
            scores.append(
                with_interval(metric, float(values.mean()), len(values), interval, better=False,
                              unit=unit, condition=condition)
            )  # fmt: skip
    return scores + _bars(confidence, right, groups, bins, condition)


def brier(answers: Answers, probabilities: Floats) -> Floats:
    """Squared distance of the probabilities from the truth, summed over classes; 0 to 2.

    Several right classes of an image count as one, with the probability that they have together.
    """
    share = answers.right_share(probabilities)
    squares = (probabilities**2).sum(axis=1) - answers.right_share(probabilities**2)
    found: Floats = np.nan_to_num((1 - share) ** 2 + squares, nan=_WORST_BRIER)
    return found


def _bars(
    confidence: Floats, right: Flags, groups: np.ndarray | None, bins: int, about: dict[str, str]
) -> list[Score]:
    """The bars of the reliability diagram: the accuracy of each bin."""
    scores = []
    for place, bar in enumerate(reliability(confidence, right, bins)):
        own = (confidence >= bar.low) & (confidence <= bar.high)
        members = None if groups is None else groups[own]
        scores.append(
            with_interval(
                "bin_accuracy",
                bar.accuracy,
                bar.n,
                share_interval(right[own], members),
                better=None,
                condition={
                    "curve": "reliability",
                    **about,
                    "bin": place,
                    "confidence": bar.confidence,
                    "low": bar.low,
                    "high": bar.high,
                },
            )
        )
    return scores

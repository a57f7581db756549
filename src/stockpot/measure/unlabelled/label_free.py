"""How accurate a model is, foretold without the labels of the images."""

from __future__ import annotations

from stockpot.datasets.dataset import Dataset
from stockpot.measure import measures
from stockpot.measure.chosen_data import Chosen
from stockpot.measure.measurement import Context, Measurement, proportion, with_interval
from stockpot.measure.unknown.held_out import held_out_answers
from stockpot.measure.unlabelled.estimates import ACCURACIES, Estimate, estimates
from stockpot.models.classifier import Classifier
from stockpot.results.schema import Score
from stockpot.score.class_space import ClassSpace


@measures.register("label_free", paper="arXiv:2201.04234", passes=True)
def label_free(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    source: Chosen = "val",
    scaled: bool = True,
    class_space: ClassSpace = "all",
) -> Measurement:
    """Accuracy foretold from labelled source images and the answers to unlabelled ones.

    ATC by confidence and by entropy, difference of confidences, confidence optimal transport, and
    the nuclear norm of the predictions. The data's own labels serve the true accuracy alone, which
    stands beside the estimates.

    Args:
        source: labelled images that the model was not trained on, none of them measured here: the
            data's `val` split, half of the images by `content`, or another dataset (its name,
            folder, or options with `dataset`).
        scaled: divide logits by the temperature that fits the source.
        class_space: as for `clean`.
    """
    parts = held_out_answers(model, data, context, source, class_space)
    found = estimates(parts.fit, parts.scored, scaled=scaled, seed=context.seed)
    scorer = parts.whole.scorer
    return Measurement(
        scores=[
            proportion("accuracy", parts.whole.correct, groups=parts.whole.groups),
            *estimate_scores(found, len(parts.scored)),
        ],
        convention=(
            f"label_free:{class_space}; source {parts.words}; "
            f"{'temperature by least NLL there' if scaled else 'logits as they are'}; "
            "intervals over images of both"
        ),
        images=parts.images,
        outcomes={"correct": parts.whole.correct},
        notes=(*parts.notes, *scorer.notes),
        flags=parts.flags,
        class_space=scorer.description,
    )


def estimate_scores(found: dict[str, Estimate], n: int) -> list[Score]:
    """Estimates as scores; all but the nuclear norm are accuracies."""
    return [
        with_interval("foretold_accuracy", value, n, interval, condition={"method": name})
        if name in ACCURACIES
        else with_interval(name, value, n, interval, unit="score")
        for name, (value, interval) in found.items()
    ]

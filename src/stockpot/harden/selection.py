"""Which epoch's weights are kept: a score on validation data, clean or under attack.

Adversarial training overfits in its own way: robust accuracy on new images peaks and falls while
clean accuracy still rises. So the choice among epochs can be made by robust accuracy. Without
validation data, a share of every class is held out from the training data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import torch

from stockpot.attack.copies import Precision
from stockpot.attack.scored import attack_scored
from stockpot.attack.threat import Threats, parse_union
from stockpot.datasets.dataset import Batch, Dataset
from stockpot.errors import BadParameterError
from stockpot.harden.many.processes import rank, sum_of, workers
from stockpot.harden.many.sharded import is_in_shards
from stockpot.models.classifier import Classifier, evaluating
from stockpot.score.scorer import scorer_for
from stockpot.stages import stage
from stockpot.types import Check

ACCURACY = "accuracy"
_STEPS = 10


def _select(value: Any) -> Any:
    # The command line makes a list of what has commas; records keep the text.
    text = ",".join(value) if isinstance(value, list | tuple) else value
    if isinstance(text, str):
        parse_selection(text)
    return text


Select = Annotated[str, Check(_select)]
"""`accuracy`, or threats such as `linf:8/255,l1:12`."""


def parse_selection(select: str) -> Threats | None:
    """None for `accuracy`; else the threats of a text such as `linf:8/255,l1:12`."""
    if select == ACCURACY:
        return None
    try:
        return parse_union(select)
    except BadParameterError as problem:
        raise BadParameterError(f"accuracy, or threats: {problem.message}") from problem


@stage("judge")
def scores(
    model: Classifier, data: Dataset, select: str, precision: Precision = "fp32"
) -> dict[str, float]:
    """Clean accuracy and, where threats are given, the accuracy that withstands them all."""
    found = {ACCURACY: accuracy(model, data)}
    threats = parse_selection(select)
    if threats is not None:
        found["robust"] = robust_accuracy(model, data, threats, precision)
    return found


def deciding(found: dict[str, float]) -> float:
    """The score by which epochs are compared."""
    return found.get("robust", found[ACCURACY])


def accuracy(model: Classifier, data: Dataset, batch_size: int = 512) -> float:
    """Top-1 accuracy, as the measure `clean` has it."""
    scorer = scorer_for(model.classes, data)
    right = torch.zeros((), dtype=torch.long, device=model.device)
    with evaluating(model):
        for batch in _own(data.batches(batch_size, model.preprocess.fit), model):
            right += scorer.correct(model(batch.images.to(model.device)), batch.rows).sum()
    return _of_all(int(right), model) / len(data)


def _own(batches: Iterator[Batch], model: Classifier) -> Iterator[Batch]:
    """Of many processes each takes every so-many-th batch; all, where each pass takes them all."""
    if is_in_shards(model):
        return batches
    return (batch for number, batch in enumerate(batches) if number % workers() == rank())


def _of_all(count: int, model: Classifier) -> int:
    return count if is_in_shards(model) else sum_of(count)[0]


def robust_accuracy(
    model: Classifier,
    data: Dataset,
    threats: Threats,
    precision: Precision = "fp32",
    batch_size: int = 512,
) -> float:
    """The share of images that withstand a short APGD in every norm."""
    scorer = scorer_for(model.classes, data)
    standing = 0
    for batch in _own(data.batches(batch_size, model.preprocess.fit), model):
        pixels = batch.images.to(model.device).float() / 255
        found = [
            attack_scored(
                model, pixels, scorer, batch.rows, seed=batch.rows.tolist(), norm=each.norm,
                eps=each.eps, steps=_STEPS, precision=precision, check=False,
            )
            for each in threats.members
        ]  # fmt: skip
        standing += int(torch.stack([each.robust for each in found]).all(dim=0).sum())
    return _of_all(standing, model) / len(data)


def hold_out(data: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """What is trained on, and what is held out: `share` of each class, drawn with the seed.

    A class gives at least one picture as soon as it has two, so that every class is validated, and
    keeps at least one, so that every class is learned.
    """
    if not 0 < share < 1:
        raise BadParameterError(f"holdout: expected a share between 0 and 1, got {share}.")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data), generator=generator)
    labels = data.labels[order]
    chosen = torch.zeros(len(data), dtype=torch.bool)
    for label in range(len(data.classes)):
        members = order[labels == label]
        most = len(members) - 1
        count = min(max(1, round(share * len(members))), most) if most > 0 else 0
        chosen[members[:count]] = True
    if not bool(chosen.any()):
        raise BadParameterError(
            f"holdout: expected a class with two pictures or more, got {len(data)} pictures of "
            f"{len(data.classes)} classes with one each.",
            hint="Give validation data, or more pictures.",
        )
    return data.take((~chosen).nonzero()[:, 0]), data.take(chosen.nonzero()[:, 0])

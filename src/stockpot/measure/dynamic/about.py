"""What a result must say of its generator and oracle beside the scores, one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from stockpot.checkpoints.open import read_tensors
from stockpot.checkpoints.resolve import resolve
from stockpot.datasets.dataset import Dataset
from stockpot.dynamic.kinship import shared_tensors
from stockpot.dynamic.oracle import Setting, Vocabulary
from stockpot.dynamic.suitability import default_oracle_note, generator_notes, given_back
from stockpot.dynamic.task import Task
from stockpot.errors import BadParameterError
from stockpot.measure.dynamic.outcomes import Outcomes
from stockpot.measure.measurement import Context
from stockpot.models.classifier import Classifier
from stockpot.results.trust import UNRANKED
from stockpot.score.class_space import is_numbered, match_classes
from stockpot.types import ImageSize

_FIRST = 16
"""Images by which generator and oracle are looked at before the search."""


def first_images(model: Classifier, data: Dataset, context: Context) -> Tensor:
    """The first few images as the model's preprocessing gets them, in [0, 1]."""
    part = data.take(range(min(_FIRST, len(data))))
    found = [batch.images for batch in part.batches(_FIRST, model.preprocess.fit)]
    return torch.cat(found).to(context.device).float() / 255


def among(model: Classifier, classes: tuple[str, ...]) -> Callable[[Tensor], Tensor]:
    """The model's probabilities for images among these classes."""
    mapping = match_classes(model.classes, classes, "subset")
    return lambda pixels: mapping.logits(model(pixels).float()).softmax(dim=1)


def with_vocabulary(setting: Setting, vocabulary: Vocabulary, model: Classifier) -> Setting:
    """The setting of an oracle that chooses among more classes than the data's."""
    if vocabulary == "data":
        return setting
    if is_numbered(model.classes):
        raise BadParameterError(
            f"vocabulary={vocabulary}: expected a model that names its classes, got numbers.",
            hint="Use vocabulary=data.",
        )
    mapping = match_classes(model.classes, setting.classes, "subset")
    own = {place for group in mapping.groups for place in group} or set(mapping.outputs.tolist())
    rivals = tuple(name for place, name in enumerate(model.classes) if place not in own)
    return replace(setting, offered=vocabulary, rivals=rivals)


def about_generator(task: Task, model: Classifier, data: Dataset, few: Tensor) -> list[str]:
    """Whether it suits the data, and whether it learned through the model's own eyes."""
    size = ImageSize(*few.shape[-2:])
    notes = generator_notes(task.generator, data.name, size, lambda: given_back(task, few))
    training = getattr(task.generator, "upbringing", None)
    if training is None or not training.perception:
        return notes
    place = resolve(training.perception, "weights")
    if place.path is None:  # it is not on this machine, and is not worth a download
        return notes
    eyes = read_tensors(place.path)
    if share := shared_tensors(model, eyes.values()):
        notes.append(
            f"the generator {training.name} was trained on the features of {training.perception}, "
            f"which shares {100 * share:.0f} % of the weights of this model: its images are made "
            f"for these eyes, and the score is {UNRANKED}"
        )
    return notes


def about_oracle(name: str, outcomes: Outcomes, data: Dataset, *, named: bool) -> list[str]:
    """Whether it knows the classes, and whether it is weaker than the model that it judges."""
    right, model = float(outcomes.known.mean()), float(outcomes.correct.mean())
    notes = []
    if not named:
        notes += default_oracle_note(data.name, name, right, len(data.classes))
    if right < model:
        notes.append(
            f"the oracle {name} is weaker than the model it judges: it is right about "
            f"{100 * right:.1f} % of the images as they are, the model about {100 * model:.1f} %"
        )
    return notes

"""How a model's outputs meet a dataset's classes.

Names are compared without regard to case, spaces, hyphens and underscores; ImageNet's classes also
by WordNet's ids and words. A dataset may cover only some of a model's classes; then a prediction
is the best of all outputs (`all`, the stricter reading) or the best among the covered ones
(`subset`, the convention of ImageNet-R and -A). Where several outputs answer one class of the data,
the class has the score of its best output (ObjectNet: any of them is right) or the mean of their
probabilities (the categories of cue conflict), as the authors of the data have it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.datasets.natural.classes import (
    COUNT,
    NUMBER,
    answers,
    averages,
    imagenet_outputs,
    imagenet_places,
    plain,
    word_places,
)
from stockpot.errors import BadDataError

BY_POSITION = "classes_by_position"
"""The flag of results whose model does not name its classes."""
ClassSpace = Literal["all", "subset"]
Combine = Literal["best", "mean"]


@dataclass(frozen=True)
class ClassMap:
    """For each class of the data, the model's output that stands for it."""

    outputs: Tensor
    """One output for each class; where several answer it, the first."""
    space: ClassSpace
    description: str
    note: str = ""
    by_position: bool = False
    """Whether the model does not name its classes, so that their order alone was taken."""
    groups: tuple[tuple[int, ...], ...] = ()
    """All outputs that answer each class, where some class has more than one."""
    combine: Combine = "best"
    """What the outputs of one class make together."""

    def project(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and targets in one numbering."""
        return self.logits(logits), self.targets(labels)

    @property
    def as_it_is(self) -> bool:
        """Whether the outputs are compared as the model gives them."""
        return self.space == "all" and not self.groups

    def logits(self, logits: Tensor) -> Tensor:
        """The outputs among which the best one is the prediction."""
        if self.groups:
            return self._grouped(logits)
        return logits[:, self.outputs.to(logits.device)] if self.space == "subset" else logits

    def targets(self, labels: Tensor) -> Tensor:
        """The right ones among them."""
        if self.groups or self.space == "subset":
            return labels
        return self.outputs.to(labels.device)[labels]

    def _grouped(self, logits: Tensor) -> Tensor:
        """One column for each class and, in the space of all, one for the best of the rest."""
        columns = [column for group in self.groups for column in group]
        owners = [row for row, group in enumerate(self.groups) for _ in group]
        scores = logits if self.combine == "best" else F.log_softmax(logits, dim=1)
        where = torch.tensor(owners, device=logits.device).expand(len(logits), -1)
        best = scores.new_full((len(logits), len(self.groups)), -torch.inf)
        best = best.scatter_reduce(1, where, scores[:, columns], "amax")
        if self.combine == "mean":
            # The log of the mean probability, taken relative to the largest so that none vanishes.
            shares = (scores[:, columns] - best.gather(1, where)).exp()
            sums = torch.zeros_like(best).scatter_add(1, where, shares)
            sizes = sums.new_tensor([len(group) for group in self.groups])
            best = best + (sums / sizes).log()
        if self.space == "subset":
            return best
        others = sorted(set(range(logits.shape[1])) - set(columns))
        if not others:
            return best
        return torch.cat([best, scores[:, others].amax(dim=1, keepdim=True)], dim=1)


def match_classes(
    model_classes: tuple[str, ...], data_classes: tuple[str, ...], space: ClassSpace = "all"
) -> ClassMap:
    """Match by name; models that only number their outputs match a dataset of the same size."""
    if model_classes == data_classes:
        return ClassMap(torch.arange(len(data_classes)), space, f"same {len(data_classes)} classes")
    often = Counter(plain(name) for name in model_classes)
    # A name that two outputs have (there are two maillots) says nothing.
    positions = {
        plain(name): index for index, name in enumerate(model_classes) if often[plain(name)] == 1
    }
    unknown = [name for name in data_classes if plain(name) not in positions]
    numbered = len(model_classes) == len(data_classes) and is_numbered(model_classes)
    # Outputs that are only numbered are in ImageNet's order, whatever that of its names here.
    places = imagenet_places(data_classes) if numbered and len(data_classes) == COUNT else None
    if unknown and numbered and places in (None, tuple(range(COUNT))):
        description = f"{len(data_classes)} classes by position (the model does not name them)"
        note = (
            "the model numbers its classes and does not name them: each output was taken for the "
            "data's class of that number; in another order every score here would be wrong."
        )
        order = torch.arange(len(data_classes))
        return ClassMap(order, space, description, note, by_position=True)
    if unknown and (found := _as_imagenet(model_classes, data_classes, space)):
        return found
    rows = [positions.get(plain(name)) for name in data_classes]
    if unknown and (places := imagenet_places(data_classes)):
        # A model of some of the 1000 may call them otherwise: by ids, or by other words.
        told = {word_places().get(plain(name)): row for row, name in enumerate(model_classes)}
        rows = [told.get(place) for place in places]
    outputs = [row for row in rows if row is not None]
    if len(outputs) < len(rows):
        shown = ", ".join(unknown[:5]) + (", ..." if unknown[5:] else "")
        twice = " or has twice" if any(often[plain(name)] > 1 for name in unknown) else ""
        raise BadDataError(
            f"the data has {len(unknown)} of {len(data_classes)} classes that the model does not "
            f"know{twice}: {shown}. The model has {len(model_classes)}: "
            f"{', '.join(model_classes[:5])}, ...",
            hint="Use data with the model's class names, or give it a label map.",
        )
    if len(set(outputs)) < len(outputs):
        together = [
            name for name, row in zip(data_classes, rows, strict=True) if rows.count(row) > 1
        ]
        raise BadDataError(
            f"the data has several names for one class of the model: {', '.join(together[:5])}.",
            hint="Names are compared without regard to case, spaces, hyphens and underscores; give "
            "the pictures of one class one name.",
        )
    absent = sorted(set(range(len(model_classes))) - set(outputs))
    if not absent:
        description = f"same {len(data_classes)} classes, matched by name"
        return ClassMap(torch.tensor(outputs), space, description)
    names = ", ".join(model_classes[index] for index in absent[:5])
    more = ", ..." if absent[5:] else ""
    return ClassMap(
        torch.tensor(outputs),
        space,
        f"{len(data_classes)} of {len(model_classes)} classes, best of "
        + ("those" if space == "subset" else "all"),
        f"the data has no {len(absent)} of the model's {len(model_classes)} classes: {names}{more}",
    )


def _as_imagenet(
    model_classes: tuple[str, ...], data_classes: tuple[str, ...], space: ClassSpace
) -> ClassMap | None:
    """A model of ImageNet's 1000 classes on data whose classes they answer."""
    outputs, asked = imagenet_outputs(model_classes), answers(data_classes)
    if outputs is None or asked is None:
        return None
    groups = tuple(tuple(outputs[place] for place in places) for places in asked)
    count = sum(len(group) for group in groups)
    several = count > len(groups)
    first = torch.tensor([group[0] for group in groups])
    numbered = is_numbered(model_classes)
    note = "the model numbers its outputs: they were taken in ImageNet's usual order."
    note = note if numbered else ""
    if count == COUNT:
        description = "ImageNet's 1000 classes, in their usual order"
        return ClassMap(first, space, description, note, by_position=numbered)
    answered = f" answered by {count}" if several else ""
    best = "those" if space == "subset" else "all"
    return ClassMap(
        first,
        space,
        f"{len(groups)} classes{answered} of ImageNet's 1000, best of {best}"
        + (" by mean probability" if several and averages(data_classes) else ""),
        note,
        numbered,
        groups=groups if several else (),
        combine="mean" if averages(data_classes) else "best",
    )


def is_numbered(classes: tuple[str, ...]) -> bool:
    """Whether names only count: `0`, `1`, ... or `LABEL_0`, `LABEL_1`, ..."""
    counted = [str(index) for index in range(len(classes))]
    return [NUMBER.sub(r"\1", name) for name in classes] == counted

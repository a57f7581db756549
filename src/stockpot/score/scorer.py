"""The scorer: what is right for each image of a dataset, and what a model's outputs say of it.

Every measure, the choice of soups and the oracles ask it, so that the same answer is right
everywhere. Outputs are brought into a class space (`class_space`): all outputs, those of the
data's classes, or groups of outputs that answer one class. Where the data accepts several labels
for an image, any of them is right, and whoever makes a model wrong must make all of them wrong.
Outputs with a NaN or an infinity among them are no answer, and never right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.datasets.dataset import ACCEPTED, Dataset
from stockpot.datasets.natural.classes import plain
from stockpot.errors import BadDataError
from stockpot.score.class_space import ClassMap, ClassSpace, match_classes
from stockpot.score.predictions import NONE, best_columns, finite, predictions

Model = Callable[[Tensor], Tensor]
OTHER = "none of the data's classes"
SILENT = "no answer (NaN or infinite outputs)"


class Part(NamedTuple):
    """Images for which one column of a view of the outputs is right, and every other is wrong.

    Searches look at a model through such a view: it needs no word on which image is looked at.
    """

    places: Tensor
    """Which images of the batch."""
    targets: Tensor
    """The right column for each of them."""
    labels: Tensor
    """A right class of the data for each of them."""
    accepted: tuple[int, ...]
    """All right classes of the data where there are several; the same for all images here."""
    view: Callable[[Tensor], Tensor] | None
    """From outputs to these columns; none where they are the outputs themselves."""

    def of(self, model: Model) -> Model:
        """The model as it is looked at."""
        view = self.view
        return model if view is None else lambda pixels: view(model(pixels))


@dataclass(frozen=True)
class Scorer:
    """Which columns of the class space are right for every row of a dataset."""

    mapping: ClassMap
    model_classes: tuple[str, ...]
    data_classes: tuple[str, ...]
    labels: Tensor
    """The label of every row, in the data's numbering."""
    accepted: Tensor
    """All right classes of every row, in the data's numbering, filled up with -1."""

    @property
    def several(self) -> bool:
        """Whether some image has more than one right class."""
        return self.accepted.shape[1] > 1

    @property
    def description(self) -> str:
        """How outputs meet classes, for the result."""
        return self.mapping.description + (", any accepted label" if self.several else "")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know besides."""
        return (self.mapping.note,) if self.mapping.note else ()

    @property
    def targets(self) -> Tensor:
        """The column of every row's label."""
        return self.mapping.targets(self.labels)

    def take(self, rows: Sequence[int] | Tensor) -> Scorer:
        """The scorer of these rows."""
        index = torch.as_tensor(rows, dtype=torch.long, device=self.labels.device)
        return replace(self, labels=self.labels[index], accepted=self.accepted[index])

    def to(self, device: torch.device) -> Scorer:
        """The same, with what it knows of rows and classes on a device."""
        mapping = replace(self.mapping, outputs=self.mapping.outputs.to(device))
        labels, accepted = self.labels.to(device), self.accepted.to(device)
        return replace(self, mapping=mapping, labels=labels, accepted=accepted)

    @property
    def of_columns(self) -> Scorer:
        """The same for outputs that are columns of the class space already."""
        first = torch.arange(len(self.data_classes), device=self.labels.device)
        columns = ClassMap(self.mapping.targets(first), "all", self.mapping.description)
        return replace(self, mapping=columns)

    def logits(self, outputs: Tensor) -> Tensor:
        """One column for each possible answer; the best one is the prediction.

        A row with a NaN or an infinity, even in an output that does not count here, is all NaN.
        """
        logits = self.mapping.logits(outputs)
        return logits if self.mapping.as_it_is else _silenced(logits, outputs)

    def right(self, logits: Tensor, rows: Tensor | slice, top: int = 1) -> Tensor:
        """For the k best columns (n x k), whether each is right for its row."""
        best = predictions(logits)[:, None]
        if top > 1:
            best = torch.where(best == NONE, NONE, best_columns(logits, top))
        wanted = self._columns(rows).to(logits.device)
        return ((best[:, :, None] == wanted[:, None, :]) & (best != NONE)[:, :, None]).any(dim=2)

    def correct(self, outputs: Tensor, rows: Tensor | slice) -> Tensor:
        """Whether the prediction from a model's outputs is right for each row."""
        return self.right(self.logits(outputs), rows)[:, 0]

    def losses(self, logits: Tensor, rows: Tensor | slice) -> Tensor:
        """Minus the log of the probability that the columns give to what is right.

        It is infinite where a row is no answer: no comparison of losses may prefer that row.
        """
        wanted = self._columns(rows).to(logits.device)
        if not self.several:
            found = F.cross_entropy(logits, wanted[:, 0], reduction="none")
        else:
            shares = F.log_softmax(logits, dim=1).gather(1, wanted.clamp_min(0))
            found = -shares.masked_fill(wanted == NONE, -torch.inf).logsumexp(dim=1)
        return torch.where(finite(logits), found, torch.inf)

    def answer(self, prediction: int) -> str:
        """The name of a column."""
        if prediction == NONE:
            return SILENT
        if self.mapping.as_it_is:
            return self.model_classes[prediction]
        known = prediction < len(self.data_classes)
        return self.data_classes[prediction] if known else OTHER

    def parts(self, rows: Tensor) -> list[Part]:
        """The rows of a batch by what is right for them; one part unless several labels are."""
        wanted = self.accepted[rows]
        together: dict[tuple[int, ...], list[int]] = {}
        for place, row in enumerate(wanted.tolist()):
            classes = tuple(sorted({number for number in row if number != NONE}))
            together.setdefault(classes if len(classes) > 1 else (), []).append(place)
        return [self._part(classes, places, wanted) for classes, places in together.items()]

    def _part(self, classes: tuple[int, ...], places: list[int], wanted: Tensor) -> Part:
        where = torch.tensor(places, device=wanted.device)
        labels = wanted[where, 0]
        if not classes:
            view = None if self.mapping.as_it_is else self.logits
            return Part(where, self.mapping.targets(labels), labels, (), view)
        columns = sorted(set(self.mapping.targets(torch.tensor(classes)).tolist()))

        def view_of(outputs: Tensor) -> Tensor:
            return merged(self.logits(outputs), columns)

        first = torch.full_like(labels, columns[0])
        return Part(where, first, torch.full_like(labels, classes[0]), classes, view_of)

    def _columns(self, rows: Tensor | slice) -> Tensor:
        return self._right_columns[rows]

    @cached_property
    def _right_columns(self) -> Tensor:
        """Of all rows, found once: on a GPU every batch would wait for several small operations."""
        with torch.inference_mode(False), torch.no_grad():  # losses are also learned from
            wanted = self.accepted
            return torch.where(wanted == NONE, NONE, self.mapping.targets(wanted.clamp_min(0)))


def scorer_for(model_classes: tuple[str, ...], data: Dataset, space: ClassSpace = "all") -> Scorer:
    """The scorer of a model with these classes on a dataset."""
    mapping = match_classes(model_classes, _called(data, model_classes), space)
    rows = data.accepted
    if rows is None:
        accepted = data.labels[:, None]
    else:
        width = max((len(row) for row in rows), default=1)
        accepted = torch.tensor([[*row, *[NONE] * (width - len(row))] for row in rows])
    return Scorer(mapping, model_classes, data.classes, data.labels, accepted)


def _called(data: Dataset, model_classes: tuple[str, ...]) -> tuple[str, ...]:
    """The data's class names, or those of its convention where a model's head is named so."""
    told = data.vocabulary.names if data.vocabulary else ()
    known = {plain(name) for name in model_classes}
    if len(set(told)) < len(data.classes) or all(plain(name) in known for name in data.classes):
        return data.classes
    return told if all(plain(name) in known for name in told) else data.classes


def renumbered(data: Dataset, model_classes: tuple[str, ...]) -> Dataset:
    """The data in a model's numbering, for whoever learns from labels: label n is output n.

    A loss has one target. So of several accepted labels the first is learned, and data whose
    classes several outputs answer (ObjectNet, cue conflict) cannot be learned from.
    """
    scorer = scorer_for(model_classes, data)
    if scorer.mapping.groups:
        raise BadDataError(
            f"{data}: several of the model's outputs answer one class; training needs one output "
            "for each class.",
            hint="Such data is for measuring. Train on data with the model's own classes.",
        )
    outputs = scorer.mapping.outputs
    if torch.equal(outputs, torch.arange(len(model_classes))):
        return data
    columns = dict(data.columns)
    if data.accepted is not None:
        columns[ACCEPTED] = tuple(
            " ".join(str(int(outputs[number])) for number in row) for row in data.accepted
        )
    prompts: list[tuple[str, ...]] = [()] * len(model_classes)
    for number, captions in enumerate(data.prompts):
        prompts[int(outputs[number])] = captions
    return replace(
        data,
        labels=scorer.targets,
        classes=model_classes,
        columns=columns,
        prompts=tuple(prompts) if all(prompts) else (),
        vocabulary=None,  # such a model has a head of its own, and is told nothing
    )


def _silenced(logits: Tensor, outputs: Tensor) -> Tensor:
    return torch.where(finite(outputs)[:, None], logits, torch.nan)


def merged(values: Tensor, columns: Sequence[int]) -> Tensor:
    """The best of several columns in place of the first of them, without the others."""
    first, others = columns[0], set(columns[1:])
    kept = [column for column in range(values.shape[1]) if column not in others]
    place = kept.index(first)
    best = values[:, list(columns)].amax(dim=1, keepdim=True)
    if len(kept) == 1:
        # Every answer is right: a column that never wins keeps a margin to speak of.
        return torch.cat([best, best.detach() - 1], dim=1)
    return torch.cat([values[:, kept[:place]], best, values[:, kept[place + 1 :]]], dim=1)

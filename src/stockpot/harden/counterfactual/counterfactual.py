"""The hardening method: learn the labels, keep the features of pictures that lost their object.

Per batch: the clean pictures give the loss and (by one more backward pass through the same graph)
where their objects are; masked and filled they become counterfactuals, which have no label; on
them the features of the model must stay those of the model it started from.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError, BadParameterError
from stockpot.explain.attention import need_tower
from stockpot.explain.relevance import Layers, explain_forward
from stockpot.harden import hardeners
from stockpot.harden.counterfactual.distil import (
    Outputs,
    Scale,
    Teacher,
    feature_gap,
    frozen,
    outputs,
    soft_gap,
    taught,
)
from stockpot.harden.counterfactual.masks import (
    Mask,
    dropping,
    filled,
    hiding,
    object_cells,
    random_cells,
    true_cells,
)
from stockpot.harden.counterfactual.partners import (
    Bank,
    Fill,
    Kept,
    Source,
    batch_partners,
    chosen_partners,
)
from stockpot.harden.objective import Objective, Step
from stockpot.harden.optimise import apart
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_for
from stockpot.types import ModelRef, Natural, NonNegative, Part, Positive

_RANDOM_GRID = 8
"""Rows and columns of random masks where no transformer's patches give the grid."""


@hardeners.register(
    "counterfactual",
    paper="arXiv:2303.03052",
    head="trained",
    whole="it keeps the whole model as it started",
)
def counterfactual(
    *,
    mask: Mask = "object",
    fill: Fill = "single",
    threshold: Part = 0.3,
    rate: Part = 0.5,
    beta: NonNegative = 30.0,
    feature_scale: Scale = "raw",
    objects: Literal["relevance", "truth"] = "relevance",
    target: Literal["label", "predicted"] = "label",
    layers: Layers = "all",
    fixed_rate: bool = False,
    derange: bool = False,
    source: Source = "any",
    bank: Natural = 0,
    logit_weight: NonNegative = 0.0,
    temperature: Positive = 10.0,
    logits_on: Literal["clean", "masked"] = "clean",
    teacher: ModelRef = "",
) -> Objective:
    """Cross-entropy, and features of masked and refilled pictures as the starting model has them.

    Args:
        mask: what is masked: `object`, `context`, or `random` patches; `none` distils on clean
            pictures.
        fill: `single` takes masked patches from one other picture, `multi` each from its own,
            `none` hides them from the network.
        threshold: a patch belongs to the object if its relevance exceeds this share of the largest
            (`objects=truth`: if more than this share of it does).
        rate: the share of patches that a `random` mask covers.
        beta: the weight of the feature distance; 30 suits CLIP's embeddings at `raw` scale.
        feature_scale: `raw` squared distances, or `normalised` by the teacher's mean square, for
            backbones whose features have another scale.
        objects: where the objects are: by `relevance`, or by the `truth` of data that has masks
            (without augmentations, which masks would not follow).
        target: relevance for the true class, or for the predicted one.
        layers: relevance from all attention blocks, or from the last.
        fixed_rate: random masks cover the same number of patches in every picture (always so with
            `fill=none`) instead of each patch by chance.
        derange: with `single`, no picture is its own partner.
        source: what fills: `any` other picture, one of an `other_class`, or parts of
            `low_relevance`.
        bank: how many earlier pictures are kept to fill from, besides the batch.
        logit_weight: of a distance between softened predictions, which also holds the head.
        temperature: that softens them.
        logits_on: compare predictions on `clean` or on `masked` pictures.
        teacher: a model folder whose predictions are kept (WiSE-KD: a WiSE-FT model); by default
            the model as it starts.
    """
    return Counterfactual(
        mask=mask, fill=fill, threshold=threshold, rate=rate, beta=beta, scale=feature_scale,
        objects=objects, target=target, layers=layers, fixed=fixed_rate or fill == "none",
        derange=derange, source=source, bank=Bank(bank), logit_weight=logit_weight,
        temperature=temperature, logits_on=logits_on, teacher=teacher,
    )  # fmt: skip


@dataclass
class Counterfactual:
    """The objective; it keeps the teacher and the bank."""

    mask: Mask
    fill: Fill
    threshold: float
    rate: float
    beta: float
    scale: Scale
    objects: str
    target: str
    layers: Layers
    fixed: bool
    derange: bool
    source: Source
    bank: Bank
    logit_weight: float
    temperature: float
    logits_on: str
    teacher: str
    start: Classifier | None = None
    adviser: Teacher | None = None
    """Whose predictions are kept, where it is not the model as it starts."""

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """Keep the model as it starts, and load the teacher of the predictions."""
        if self.objects == "truth" and data.masks is None:
            raise BadDataError(
                f"objects=truth: {data.name} has no object masks.",
                hint="object_on_context has them; objects=relevance needs none.",
            )
        self.start = frozen(model)
        if self.teacher:
            given = load_for(self.teacher, data, device=model.device)
            self.adviser = Teacher(given, data.classes)
            if self.logit_weight and self.logits_on == "masked" and self.fill == "none":
                self._check_grids(model, given)

    def __call__(self, step: Step) -> Tensor:
        if self.start is None:
            self.start = frozen(step.model)
        pixels = step.model.preprocess.fit_tensor(step.pixels)
        if self.mask == "none":
            own = outputs(step.model, pixels)
            teacher = taught(self.start, pixels)
            advice = self._advice(self.start, pixels, pixels, teacher, None)
            return self._loss(step, own.logits, own, teacher, advice)
        logits, masked, objects = self._look(step, pixels)
        # Partners may be another process's, and what the bank keeps too.
        everything = Kept(
            step.model.preprocess.fit_tensor(step.whole.pixels),
            step.whole.labels,
            None if objects is None else step.gathered(objects),
        )
        seen = pixels
        if self.fill != "none":
            seen = self._fill(step, everything, pixels, masked)
        with self._without(step.model, masked), apart(step.model):
            student = outputs(step.model, seen)
        with self._without(self.start, masked):
            teacher = taught(self.start, seen)
        self.bank.add(*everything)
        advice = self._advice(self.start, pixels, seen, teacher, masked)
        return self._loss(step, logits, student, teacher, advice)

    def _loss(
        self,
        step: Step,
        logits: Tensor,
        student: Outputs,
        teacher: Outputs,
        advice: Tensor | None,
    ) -> Tensor:
        loss = F.cross_entropy(logits, step.labels)
        loss = loss + self.beta * feature_gap(student.features, teacher.features, self.scale)
        if advice is None:
            return loss
        own = student.logits if self.logits_on == "masked" else logits
        return loss + self.logit_weight * soft_gap(own, advice, self.temperature)

    def _advice(
        self,
        start: Classifier,
        pixels: Tensor,
        seen: Tensor,
        teacher: Outputs,
        masked: Tensor | None,
    ) -> Tensor | None:
        """The predictions to keep; on masked pictures nobody sees what the student does not."""
        if not self.logit_weight:
            return None
        if self.adviser is None:
            return taught(start, pixels).logits if self.logits_on == "clean" else teacher.logits
        if self.logits_on == "clean":
            return self.adviser.advice(pixels)
        with nullcontext() if masked is None else self._without(self.adviser.model, masked):
            return self.adviser.advice(seen)

    def _look(self, step: Step, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Logits of the clean pictures, masked cells, and where the objects are, if known."""
        if self.mask == "random" and self.source != "low_relevance":
            rows, columns = self._grid(step.model)
            drawn = random_cells(
                (len(step.whole), rows, columns), self.rate, step.generator, fixed=self.fixed
            )
            return step.model(pixels), step.own(drawn).to(pixels.device), None
        logits, objects = self._objects(step, pixels)
        if self.mask == "random":
            shape = (len(step.whole), objects.shape[1], objects.shape[2])
            drawn = random_cells(shape, self.rate, step.generator, fixed=self.fixed)
            return logits, step.own(drawn).to(pixels.device), objects
        return logits, objects if self.mask == "object" else ~objects, objects

    def _objects(self, step: Step, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the clean pictures, and where their objects are."""
        if self.objects == "truth":
            if step.masks is None:
                raise BadParameterError(
                    "objects=truth: the masks of the pictures do not follow augmentations.",
                    hint="Give augmentations=[], or objects=relevance.",
                )
            shares = true_cells(step.masks, self._grid(step.model))
            return step.model(pixels), (shares > self.threshold).to(pixels.device)
        labels = step.labels if self.target == "label" else None
        seen = explain_forward(step.model, pixels, labels, layers=self.layers)
        return seen.logits, object_cells(seen.relevance, self.threshold)

    def _fill(self, step: Step, everything: Kept, pixels: Tensor, masked: Tensor) -> Tensor:
        pool, labels, theirs = self.bank.pool(*everything)
        cells = step.gathered(masked.flatten(1))
        if self.source == "any" and not self.bank.size:
            partners = batch_partners(
                len(cells), cells.shape[1], self.fill, step.generator, derange=self.derange
            )
        else:
            known = None if theirs is None else theirs.flatten(1)
            partners = chosen_partners(
                self.source, self.fill, cells, everything.labels, labels, known, step.generator
            )
        return filled(pixels, pool, masked, step.own(partners).to(pixels.device))

    def _without(self, model: Classifier, masked: Tensor) -> AbstractContextManager[None]:
        if self.fill != "none":
            return nullcontext()
        hide = dropping if self.mask == "random" else hiding
        return hide(model.network, masked.flatten(1))

    def _check_grids(self, model: Classifier, adviser: Classifier) -> None:
        """Raise unless the same patches can be hidden from both."""
        need_tower(adviser.network, "fill=none with logits_on=masked")
        own, theirs = cell_grid(model), cell_grid(adviser)
        if own != theirs:
            raise BadParameterError(
                f"teacher: expected {own[0]} x {own[1]} patches as the model has, got "
                f"{theirs[0]} x {theirs[1]}: fill=none cannot hide the same ones from both.",
                hint="Use fill=single or fill=multi, or logits_on=clean.",
            )

    def _grid(self, model: Classifier) -> tuple[int, int]:
        if self.fill == "none":
            need_tower(model.network, "fill=none")
        return cell_grid(model)

    def state_dict(self) -> dict[str, Any]:
        """The bank."""
        return self.bank.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with a saved bank."""
        self.bank.load_state_dict(state)


def cell_grid(model: Classifier) -> tuple[int, int]:
    """Rows and columns of a model's cells: its patches, or 8 x 8 where it has none."""
    from stockpot.explain.attention import find_tower

    tower = find_tower(model.network)
    size = model.preprocess.size
    if tower is None:
        return min(_RANDOM_GRID, size.height), min(_RANDOM_GRID, size.width)
    return size.height // tower.patch[0], size.width // tower.patch[1]

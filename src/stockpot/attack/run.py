"""`stockpot.attack`: search around each image for one that the model gets wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from stockpot.attack import attacks
from stockpot.attack.checks.flags import Flags
from stockpot.attack.checks.forward_pass import in_training, optimises
from stockpot.attack.checks.outputs import is_randomised, is_softmax
from stockpot.attack.copies import Copies, Forward, Precision
from stockpot.attack.task import Goal, Outcome, Task, untouched
from stockpot.attack.threat import threat
from stockpot.attack.victim import Victim, evaluation_mode
from stockpot.engine.current import as_current
from stockpot.errors import BadParameterError
from stockpot.models.forward.folding import Model
from stockpot.score.predictions import finite, predictions
from stockpot.stages import stage
from stockpot.types import Norm, check_seed


@dataclass(frozen=True)
class AttackResult:
    """What an attack found, image by image."""

    images: Tensor
    """The worst image found; the original where it was misclassified to begin with.

    In float32 (float64 for input in float64), whatever the precision of input and model."""
    robust: Tensor
    """Right on the clean image and on everything that was tried."""
    correct: Tensor
    """Right on the clean image."""
    loss: Tensor
    """The attack's loss at `images`."""
    queries: Tensor
    """Forward passes spent on each image."""
    saved: int
    """Forward passes that were not needed because images had fallen."""
    flags: Flags
    stages: Mapping[str, Tensor] = field(default_factory=dict)
    """For attacks made of several: the robust images after each."""

    def __repr__(self) -> str:
        count, queries = len(self.robust), int(self.queries.sum())
        return (
            f"AttackResult({count:,} images: {int(self.correct.sum()):,} right, "
            f"{int(self.robust.sum()):,} robust; {queries:,} forward passes; "
            f"flags: {', '.join(self.flags.raised()) or 'none'})"
        )

    @property
    def accuracy(self) -> float:
        """The share of robust images."""
        return int(self.robust.sum()) / max(len(self.robust), 1)


def attack(
    model: Model,
    images: Tensor,
    labels: Tensor,
    *,
    norm: Norm = "linf",
    eps: str | float = "8/255",
    method: str = "apgd",
    steps: int | None = None,
    loss: str | None = None,
    restarts: int | None = None,
    seed: int | Sequence[int] = 0,
    goal: Goal = "accuracy",
    eot: int | None = None,
    precision: Precision = "fp32",
    forward: Forward | None = None,
    piece: int | None = None,
    copies: Copies | None = None,
    check: bool = True,
    **params: Any,
) -> AttackResult:
    """Attack a model on some images.

    Args:
        model: any callable from pixels in [0, 1] (NCHW) to logits; modules are put into evaluation
            mode meanwhile.
        images: float pixels in [0, 1] or uint8, NCHW.
        labels: class numbers, or label distributions (N x classes) for the loss `kl`.
        norm: `linf`, `l2` or `l1`.
        eps: the radius in pixel units; a number or text such as `8/255`.
        method: a name from `stockpot list attacks`.
        steps: the method's iterations (40 for `apgd`).
        loss: what the method raises (`ce` for `apgd`).
        restarts: how often it starts anew (1 for `apgd`).
        seed: image i uses seed + i; or one seed per image.
        goal: with `accuracy` an image is left alone once it is misclassified, with `loss` the
            highest loss is sought for every image.
        eot: forward passes averaged for every look at a randomised model (1; AutoAttack's `rand`
            has 20).
        precision: `bf16` runs the search in bfloat16; decisions are checked in full precision.
        forward: the search may run on a `compiled` model, or on a copy with batch norms `folded`
            into convolutions; decisions are checked on the model as it is. By default AutoAttack,
            which looks thousands of times, folds; the others run the model `plain`.
        piece: images per forward pass.
        copies: keeps what `forward` made for the next attack on the same model.
        check: look for signs of an unreliable result (a few forward passes on a few images, and one
            on those that fell).
        params: further parameters of the method.
    """
    aim = threat(norm, eps)
    pixels, hard, soft = pixels_and_labels(images, labels)
    given = {"steps": steps, "loss": loss, "restarts": restarts}
    chosen = params | {key: value for key, value in given.items() if value is not None}
    entry = attacks.get(method)
    if eot is not None and "eot" in entry.schema.model_fields:
        chosen["eot"] = eot
    settings = entry.validate(chosen)
    runs = forward or ("folded" if method == "autoattack" else "plain")
    victim = Victim(model, 1 if eot is None else eot, precision, runs, piece)
    with as_current(pixels.device), evaluation_mode(model):
        with stage("make"):
            victim.prepare(pixels, images.dtype, copies)
        with stage("forward"):
            clean = victim.exactly().logits(pixels)
        check_logits(clean, hard)
        correct = predictions(clean) == hard
        task = Task(pixels, hard, image_seeds(seed, pixels), aim, goal, soft)
        rows = (correct if goal == "accuracy" else torch.ones_like(correct)).nonzero()[:, 0]
        part = task.take(rows)
        outcome, disputed = untouched(part), 0
        if len(rows) and aim.radius > 0:
            with stage("attack"):
                outcome = entry.function(victim, part, **settings)
            if not victim.exact:
                outcome, disputed = _verified(entry.function, victim, part, outcome, settings)
        with stage("forward"):
            flags = _flags(victim, pixels, clean, outcome, disputed) if check else Flags()
    return _result(task, correct, rows, outcome, flags, victim.eot)


def pixels_and_labels(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Checked float pixels and class numbers, and label distributions where those were given."""
    # In half precision a ball has no edge: a step of 1/255 beside white is rounded to 0 or 2.
    pixels = images if images.dtype in (torch.float32, torch.float64) else images.float()
    pixels = pixels if images.is_floating_point() else pixels / 255
    if pixels.ndim != 4 or len(pixels) != len(labels):
        raise BadParameterError(
            "expected N x C x H x W images and N labels, "
            f"got shapes {tuple(images.shape)} and {tuple(labels.shape)}."
        )
    if len(pixels) and not (float(pixels.min()) >= 0 and float(pixels.max()) <= 1):  # or NaN
        raise BadParameterError(
            "expected pixels in [0, 1], got values from "
            f"{float(pixels.min()):g} to {float(pixels.max()):g}.",
            hint="Normalisation belongs inside the model.",
        )
    target = labels.to(pixels.device)
    if target.ndim != (2 if target.is_floating_point() else 1):
        raise BadParameterError(
            "expected N class numbers (integers), or label distributions (floats, N x classes), "
            f"got {str(target.dtype).removeprefix('torch.')} of shape {tuple(target.shape)}."
        )
    if target.is_floating_point():
        return pixels.detach(), target.argmax(dim=1), target
    return pixels.detach(), target.long(), None


def check_logits(logits: Tensor, labels: Tensor) -> None:
    """Complain about outputs that are no logits for these labels."""
    low, high = (int(labels.min()), int(labels.max())) if len(labels) else (0, -1)
    if logits.ndim != 2 or low < 0 or high >= logits.shape[1]:
        raise BadParameterError(
            "expected a model that gives N x classes logits for labels from 0 and below the number "
            f"of classes, got outputs of shape {tuple(logits.shape)} for labels {low} to {high}."
        )


def image_seeds(seed: int | Sequence[int], pixels: Tensor) -> Tensor:
    """A seed for each image."""
    if isinstance(seed, int):
        check_seed(seed)
        return torch.arange(seed, seed + len(pixels), device=pixels.device)
    seeds = torch.as_tensor(seed, dtype=torch.long, device=pixels.device)
    if seeds.shape != (len(pixels),):
        raise BadParameterError(
            f"seed: expected one per image ({len(pixels)}), got {tuple(seeds.shape)}."
        )
    return seeds


def _verified(
    function: Any, victim: Victim, task: Task, outcome: Outcome, settings: Mapping[str, Any]
) -> tuple[Outcome, int]:
    """Decide in full precision; where that disagrees, the attack is repeated in full precision."""
    exact = victim.exactly()
    with stage("forward"):
        wrong = predictions(exact.logits(outcome.images)) != task.labels
    disputed = wrong != outcome.fallen
    again = (outcome.fallen & ~wrong).nonzero()[:, 0]
    images, fallen, loss = outcome.images.clone(), wrong.clone(), outcome.loss.clone()
    queries = outcome.queries + exact.eot
    if len(again):
        with stage("attack"):
            repeat = function(exact, task.take(again), **settings)
        images[again], fallen[again], loss[again] = repeat.images, repeat.fallen, repeat.loss
        queries = queries.index_add(0, again, repeat.queries)
    checked = replace(outcome, images=images, fallen=fallen, loss=loss, queries=queries)
    return checked, int(disputed.sum())


def _flags(victim: Victim, pixels: Tensor, clean: Tensor, outcome: Outcome, disputed: int) -> Flags:
    exact = victim.exactly()
    count = int((~finite(clean)).sum())
    if bool(outcome.fallen.any()):
        count += int((~finite(exact.logits(outcome.images[outcome.fallen]))).sum())
    return Flags(
        randomised=is_randomised(exact, pixels),
        softmax=is_softmax(clean),
        few_classes=clean.shape[1] < outcome.needs,
        training=in_training(victim.model),
        optimises=optimises(victim.once, pixels),
        non_finite=count,
        zero_gradients=int(outcome.flat.sum()),
        square_beats_gradients=_fell_in(outcome, "square"),
        disputed=disputed,
    )


def _fell_in(outcome: Outcome, stage: str) -> int:
    """How many images fell in one stage of several, after standing through those before it."""
    names = list(outcome.stages)
    if stage not in names[1:]:
        return 0
    before = outcome.stages[names[names.index(stage) - 1]]
    return int((before & ~outcome.stages[stage]).sum())


def _result(
    task: Task, correct: Tensor, rows: Tensor, outcome: Outcome, flags: Flags, eot: int
) -> AttackResult:
    images = task.images.clone()
    robust = correct.clone()
    loss = torch.full_like(correct, torch.inf, dtype=torch.float32)
    queries = torch.full_like(task.labels, eot)  # the look at the clean image
    images[rows], loss[rows] = outcome.images, outcome.loss.float()
    robust[rows] = correct[rows] & ~outcome.fallen
    queries[rows] += outcome.queries
    stages = {}
    for name, standing in outcome.stages.items():
        stages[name] = correct.clone()
        stages[name][rows] = standing
    saved = int((outcome.planned - outcome.queries).clamp(min=0).sum())
    return AttackResult(images, robust, correct, loss, queries, saved, flags, stages)

"""Checks on outputs and gradients alone: what the model does when it is merely looked at."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.attack.checks.forward_pass import in_training, optimises
from stockpot.attack.checks.outputs import is_softmax
from stockpot.attack.losses import CLASSES_NEEDED, cross_entropy, margin
from stockpot.attack.victim import Victim
from stockpot.audit.judgement import forbidden, judged, told
from stockpot.audit.probes import Images, near_by
from stockpot.audit.subject import Subject
from stockpot.results.schema import Finding
from stockpot.score.predictions import predictions

_ROUNDING, _KERNELS = 1e-3, 0.05
"""Outputs that differ by less than this share of the largest are the same, in equal batches and in
others."""


def repeats(subject: Subject, images: Tensor, first: Tensor) -> list[Finding]:
    """The same picture, asked again and asked alone, has the same answer."""
    again = [subject.logits(images) for _ in range(3)]
    other = torch.stack([differs(first, each) for each in again]).any(dim=0)
    answers = torch.stack([predictions(each) != predictions(first) for each in again]).any(dim=0)
    n = len(images)
    alone = torch.cat([subject.logits(image[None]) for image in images[:8]])
    # Other batches run other kernels, which round otherwise: by up to a percent in short formats.
    together = differs(first[:8], alone, _KERNELS) & ~other[:8]
    return [
        forbidden(
            "same_outputs", int(other.sum()), n, "the outputs for a picture differ between calls",
            verdict="suspicious",
        ),
        judged(
            "same_answers", int(answers.sum()), n, "the answer to the same picture changes between "
            "calls: a number about it is about one throw",
        ),
        forbidden(
            "alone", int(together.sum()), len(alone), "the answer to a picture depends on the "
            "pictures beside it", verdict="convicted",
        ),
    ]  # fmt: skip


def gradients(subject: Subject, asked: Images) -> list[Finding]:
    """Gradients are there, are the same twice, and lead where the loss rises."""
    victim, n = Victim(subject), len(asked)
    # A little aside, where searches start too: on the picture itself two classes may be level.
    here = near_by(asked)
    rises = victim.ascend(here, margin, asked.labels)
    again = victim.ascend(here, margin, asked.labels)
    likely = victim.ascend(here, cross_entropy, asked.labels)
    dead = _flat(rises.gradient)
    saturated = _flat(likely.gradient) & ~dead
    turned = _cosine(rises.gradient, again.gradient) < 0.9
    # A step of one level either way: rounding to levels is crossed, and little else changes.
    step = rises.gradient.sign() / 255
    ahead, behind = (
        margin(subject.logits((here + way * step).clamp(0, 1)), asked.labels) for way in (1, -1)
    )
    misled = ~(ahead > behind) & ~dead
    cut = "; the outputs are cut off from the input" if subject.cut else ""
    return [
        judged(
            "gradient_exists", int(dead.sum()), n,
            f"the gradient of the margin is zero everywhere{cut}: gradient attacks are blind",
        ),
        judged(
            "loss_alive", int(saturated.sum()), n, "the gradient of the cross-entropy is zero, "
            "that of the margin is not: a saturated loss hides the model from plain attacks",
        ),
        judged(
            "gradient_repeats", int((turned & ~dead).sum()), n,
            "the gradient at the same picture points elsewhere when it is asked for again",
        ),
        judged(
            "gradient_leads", int(misled.sum()), n, "one level along the gradient raises the loss "
            "no more than one level against it",
        ),
    ]  # fmt: skip


def nature(subject: Subject, images: Tensor, first: Tensor) -> list[Finding]:
    """What the model is, whatever it answers."""
    n = len(images)
    facts = [
        ("logits", is_softmax(first), "the outputs are probabilities, not logits: losses flatten"),
        ("evaluating", in_training(subject.model), "a part of the model is in training mode"),
        (
            "only_looks", optimises(subject.look, images),
            "the model takes gradients or steps of an optimiser in its forward pass",
        ),
    ]  # fmt: skip
    few = first.shape[1] < CLASSES_NEEDED["dlr"]
    return [
        *(
            forbidden(name, n if fact else 0, n, words, verdict="suspicious")
            for name, fact, words in facts
        ),
        told(
            "many_classes", n if few else 0, n,
            "there are too few classes for the DLR loss: the margin stands in its place",
        ),
    ]  # fmt: skip


def differs(first: Tensor, second: Tensor, tolerance: float = _ROUNDING) -> Tensor:
    """For every row whether two outputs are not the same up to rounding; NaN equals NaN."""
    scale = first.nan_to_num(0, 0, 0).abs().amax(dim=1, keepdim=True).clamp(min=1e-12)
    gap = (first.nan_to_num(0) - second.nan_to_num(0)).abs() / scale
    return (gap.nan_to_num(0, 0, 0).amax(dim=1) > tolerance) | (
        first.isfinite() != second.isfinite()
    ).any(dim=1)


def _flat(gradient: Tensor) -> Tensor:
    return gradient.flatten(1).abs().amax(dim=1) == 0


def _cosine(first: Tensor, second: Tensor) -> Tensor:
    pair = (first.flatten(1).double(), second.flatten(1).double())
    found: Tensor = torch.nn.functional.cosine_similarity(*pair, dim=1)
    return found

"""The worst image near each training image, as adversarial training wants it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stockpot.attack.copies import Precision
from stockpot.attack.methods.apgd import Start, apgd
from stockpot.attack.task import Outcome, Task
from stockpot.attack.threat import Threat
from stockpot.attack.victim import Victim, evaluation_mode
from stockpot.harden.many.sharded import is_in_shards
from stockpot.harden.objective import Step
from stockpot.models.classifier import Classifier
from stockpot.models.forward.folding import renewed_copy
from stockpot.stages import stage

# In training APGD starts at the image and, in l_1, with sparser steps than in evaluation.
_TRAINING_SHARE = 0.05


@stage("attack")
def worst(
    step: Step,
    threat: Threat,
    steps: int,
    *,
    pixels: Tensor | None = None,
    soft: Tensor | None = None,
    start: Start = "clean",
) -> Outcome:
    """The images of highest loss that a short APGD run finds, in evaluation mode.

    The search looks at a copy of the model with batch norms folded into convolutions. Begun at the
    images themselves it draws nothing, so that on a GPU the whole step can be recorded.
    With soft targets the loss is the KL divergence from them, whose gradient is cross-entropy's.
    """
    images = (step.pixels if pixels is None else pixels).detach()
    if threat.radius == 0 or steps == 0:
        steps, start = 0, "clean"
    seeds = image_seeds(step) if start == "random" else torch.zeros_like(step.labels)
    task = Task(images, step.labels, seeds, threat, "loss", soft)
    precision = precision_of(images)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    with evaluation_mode(step.model):
        return apgd(
            Victim(searched(step.model, images, dtype), precision=precision),
            task,
            steps=steps,
            loss="ce" if soft is None else "kl",
            start=start,
            share=_TRAINING_SHARE,
        )


def searched(model: Classifier, images: Tensor, dtype: torch.dtype) -> nn.Module:
    """What an attack looks at: a folded copy, or the model itself where it cannot be copied."""
    return model if is_in_shards(model) else renewed_copy(model, images, dtype)


def image_seeds(step: Step) -> Tensor:
    """A seed for each image, for an attack that starts at random."""
    drawn = torch.randint(0, 2**62, (len(step.whole),), generator=step.generator)
    return step.own(drawn).to(step.labels.device, non_blocking=True)


def precision_of(images: Tensor) -> Precision:
    """As the training loop runs: its autocast also holds for the attack."""
    return "bf16" if torch.is_autocast_enabled(images.device.type) else "fp32"

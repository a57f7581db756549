"""Signs that a model hides from the search, as flags for programs and sentences for people.

Some are seen from a few images before the search; the others are counted while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.attack.checks.forward_pass import in_training, optimises
from stockpot.attack.checks.outputs import is_randomised, is_softmax
from stockpot.attack.checks.state import changes, differ
from stockpot.attack.victim import Victim, evaluation_mode
from stockpot.dynamic.climb import FAINT
from stockpot.dynamic.grid import on_its_grid
from stockpot.dynamic.task import Task
from stockpot.dynamic.ways.straight_through import StraightThroughGradient
from stockpot.dynamic.ways.way import margin
from stockpot.measure.dynamic.outcomes import Outcomes
from stockpot.models.classifier import Classifier
from stockpot.results.schema import Flag
from stockpot.results.statistics import wilson
from stockpot.score.predictions import predictions
from stockpot.types import ImageSize

_FAR = 3.0  # steps; how far along a gradient the loss must have risen
_ENOUGH = 4  # images with a gradient to follow, to say anything of it
_BETTER, _WORSE = 0.05, 0.2
"""How far the accuracy on reconstructions may lie from that on the images themselves. A generator
only takes away, so what it adds is suspect; what it takes away is common, up to a point."""


@dataclass(frozen=True)
class Signs:
    """What a few images tell of the model as a whole."""

    outputs: Tensor
    randomised: bool = False
    stateful: bool = False
    softmax: bool = False
    training: bool = False
    optimises: bool = False
    missing_gradients: bool = False
    gradients_mislead: bool = False
    no_way_through: bool = False
    """Gradients mislead even past hard steps."""

    @property
    def doubtful(self) -> bool:
        """Whether the gradient is not to be relied upon for any image."""
        return any((self.softmax, self.missing_gradients, self.gradients_mislead, self.hopeless))

    @property
    def hopeless(self) -> bool:
        """Whether no gradient is, not even one past hard steps."""
        return any((self.randomised, self.stateful, self.optimises, self.no_way_through))

    def afterwards(self, model: Classifier, few: Tensor) -> Signs:
        """The same, once more after the search: a model may change after a thousand answers."""
        if self.randomised or self.stateful or not len(few):
            return self
        with torch.no_grad(), evaluation_mode(model):
            return replace(self, stateful=differ(self.outputs, model(few)))


def look_for_signs(model: Classifier, task: Task, few: Tensor) -> Signs:
    """Look at a few images twice, with and without gradients, and one step along them."""
    with evaluation_mode(model):
        victim = Victim(model)
        outputs = victim.logits(few)
        stateful = changes(model, few)
        missing, misled, led = _followed(task, few)
        # Past its own cuts (those of ReLU6, say) an honest network is misled too: that says nothing
        # where the plain gradient leads, and is not looked at.
        past = replace(task, way=StraightThroughGradient())
        lost = not led and _followed(past, few)[1]
        return Signs(
            outputs=outputs,
            randomised=is_randomised(victim, few) and not stateful,
            stateful=stateful,
            softmax=is_softmax(outputs),
            training=in_training(model),
            optimises=optimises(model, few),
            missing_gradients=missing,
            gradients_mislead=misled,
            no_way_through=lost,
        )


def _followed(task: Task, few: Tensor) -> tuple[bool, bool, bool]:
    """Whether there is no gradient, whether following it leads down as often as up, or mostly up.

    None of the three where it is too small to follow for most images.
    """
    task = replace(task, generator=on_its_grid(task.generator, ImageSize(*few.shape[-2:])))
    encoded = task.encode(few, torch.arange(len(few), device=few.device))
    latents = encoded.latents.detach().requires_grad_()
    with torch.enable_grad():
        pixels = task.decode(latents, encoded.context)
        with torch.no_grad():
            answers = predictions(task.model(pixels).float()).clamp_min(0)
        climbed = task.look(pixels, answers, answers).climbed
    if not climbed.requires_grad or _unseen(climbed, pixels):
        return True, False, False
    gradient = task.gradient(climbed, pixels, latents)
    size = gradient.flatten(1).abs().amax(dim=1)
    ends = []
    with torch.no_grad():
        for way in (1, -1):
            moved = latents + way * _FAR * task.rules.step * gradient.sign()
            shown = task.decode(task.generator.clamp(moved), encoded.context)
            ends.append(margin(task.model(shown).float(), answers))
    told = (size >= FAINT) & (ends[0] != ends[1])
    down = told & (ends[0] < ends[1])
    enough, astray = int(told.sum()) >= _ENOUGH, bool(2 * down.sum() >= told.sum())
    return False, enough and astray, enough and not astray


def _unseen(climbed: Tensor, pixels: Tensor) -> bool:
    """Whether what is climbed does not come from these pixels, as far as gradients tell."""
    (slope,) = torch.autograd.grad(climbed.sum(), pixels, retain_graph=True, allow_unused=True)
    return slope is None


def flags_of(
    signs: Signs, seen: Mapping[str, NDArray[np.bool_]], outcomes: Outcomes
) -> tuple[list[Flag], list[str]]:
    """All signs of a search as flags, each with its sentence."""
    n = len(outcomes.labels)
    counts: dict[str, tuple[int, int]] = {
        name: (n, n) for name in _WHOLE if bool(getattr(signs, name))
    }
    for name, column in (
        ("zero_gradients", "zero"),
        ("vanishing_gradients", "faint"),
        ("no_code_flips", "still"),
        ("answers_beat_gradients", "answered"),
    ):
        if count := int(seen[column].sum()):
            counts[name] = (count, n)
    flags = [Flag(name=name, count=count, of=of) for name, (count, of) in counts.items()]
    notes = [_SENTENCES[flag.name].format(count=flag.count, of=flag.of) for flag in flags]
    gap = _gap(seen["recognised"], outcomes)
    return [*flags, *gap[0]], [*notes, *gap[1]]


def _gap(recognised: NDArray[np.bool_], outcomes: Outcomes) -> tuple[list[Flag], list[str]]:
    """Whether passing the generator alone changes how often the model is right, either way.

    Only images whose reconstruction the oracle accepts are looked at: they still show their class.
    The rule is on an interval: that of the share of images which changed sides.
    """
    kept = outcomes.reconstructed
    n = int(kept.sum())
    before, after = outcomes.correct[kept], recognised[kept]
    won, lost = int((after & ~before).sum()), int((before & ~after).sum())
    if not n:
        return [], []
    # Among those that changed sides, the share that won: an interval for the difference.
    share = wilson(won, won + lost)
    low, high = ((2 * bound - 1) * (won + lost) / n for bound in (share.low, share.high))
    if low > _BETTER:
        name = "better_on_reconstructions"
    elif high < -_WORSE:
        name = "worse_on_reconstructions"
    else:
        return [], []
    sentence = _SENTENCES[name].format(
        before=100 * before.mean(), after=100 * after.mean(), gap=100 * (won - lost) / n
    )
    return [Flag(name=name, count=max(won, lost), of=n)], [sentence]


_WHOLE = (
    "randomised",
    "stateful",
    "softmax",
    "training",
    "optimises",
    "missing_gradients",
    "gradients_mislead",
)
_SENTENCES = {
    "randomised": "the model is randomised: the same image gets different answers",
    "stateful": "the model changes between calls: what it says depends on what it saw before",
    "softmax": "the model outputs probabilities, not logits: its gradients are weak",
    "training": "a part of the model is in training mode: call eval() on it",
    "optimises": "the model optimises in its forward pass: gradients through it say little",
    "missing_gradients": "the model's outputs have no gradient with respect to the image",
    "gradients_mislead": "a step along the gradient lowers the loss as often as it raises it",
    "zero_gradients": "{count} of {of} images had a gradient of zero while the model was right",
    "vanishing_gradients": "{count} of {of} images had a gradient too small to follow",
    "no_code_flips": "{count} of {of} images went through five steps and more without a change of "
    "any code",
    "answers_beat_gradients": "{count} of {of} images fell to a search that does not rely on the "
    "model's gradients, after the gradient had failed: gradients are masked",
    "better_on_reconstructions": "the model is right about {before:.1f} % of the images and about "
    "{after:.1f} % of their plain reconstructions ({gap:+.1f} points): it may recognise the "
    "generator, and its FMR is not to be trusted",
    "worse_on_reconstructions": "the model is right about {before:.1f} % of the images and about "
    "{after:.1f} % of their plain reconstructions ({gap:+.1f} points): much of what it loses is "
    "lost to the generator's artefacts, not to the search",
}

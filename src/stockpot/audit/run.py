"""`stockpot.audit`: can the answer of an attack on this model be believed?"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stockpot.attack.run import check_logits, pixels_and_labels
from stockpot.attack.threat import threat
from stockpot.attack.victim import evaluation_mode
from stockpot.audit.behaviour import differs, gradients, nature, repeats
from stockpot.audit.judgement import FEWEST, forbidden
from stockpot.audit.probes import Images, Plan
from stockpot.audit.subject import Subject, state_of, untouched_copy
from stockpot.audit.trial import Claim, Point, Trial
from stockpot.errors import BadParameterError
from stockpot.models.forward.folding import Model
from stockpot.results.schema import Finding, Verdict
from stockpot.results.trust import worst_of
from stockpot.score.predictions import predictions
from stockpot.stages import stage
from stockpot.types import Norm


@dataclass(frozen=True)
class Audit:
    """What was found, and what follows from it."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    correct: Tensor
    """Who is right as it is; only these are asked further."""
    robust: Tensor
    """Who also withstood every attack within the radius."""
    by_eps: tuple[Point, ...]
    """The same attack at growing radii, the image itself first."""
    by_steps: tuple[Point, ...]
    """Attacks within the radius with more and more steps."""
    queries: int
    """Forward passes, counted in images."""

    def __repr__(self) -> str:
        against = ", ".join(each.name for each in self.findings if each.verdict != "cleared")
        return (
            f"Audit({self.verdict}{f' by {against}' if against else ''}: "
            f"{int(self.correct.sum()):,} of {len(self.correct):,} right, "
            f"{int(self.robust.sum()):,} robust; {self.queries:,} forward passes)"
        )

    def finding(self, name: str) -> Finding:
        """The finding of that name."""
        return next(each for each in self.findings if each.name == name)


def audit(
    model: Model,
    images: Tensor,
    labels: Tensor,
    *,
    norm: Norm = "linf",
    eps: str | float = "8/255",
    budget: int = 500,
    twin: Model | None = None,
    seed: int = 0,
) -> Audit:
    """Check by every known sign whether attacks on a model can be believed.

    More steps and a larger radius must not be weaker, random noise not better than gradients, a
    search without gradients (and images found on a plain twin) not stronger than one with them, no
    model must see anything in a ball that holds plain grey, and losses must grow with the radius.
    Gradients must exist, repeat and lead upwards; answers must repeat, be numbers and depend on
    the picture alone. The verdict is the worst of the findings, each by a rule fixed beforehand.

    Args:
        model: any callable from pixels in [0, 1] (NCHW) to logits; modules are put into evaluation
            mode meanwhile.
        images: float pixels in [0, 1] or uint8, NCHW. 64 are enough for most models.
        labels: class numbers.
        norm: `linf`, `l2` or `l1`.
        eps: the radius of the claim that is audited, in pixel units.
        budget: forward passes per image, at most; AutoAttack spends about 7,000 on an image that
            withstands it.
        twin: a model of the same task that hides nothing; images found on it are tried too.
        seed: of everything random.
    """
    ball, plan = threat(norm, eps), Plan.of(budget)
    pixels, truth, _ = pixels_and_labels(images, labels)
    if ball.radius == 0:
        raise BadParameterError("eps: a radius of 0 claims nothing that could be audited.")
    with evaluation_mode(model), stage("forward"):
        fresh = untouched_copy(model)
        subject = Subject.of(model, pixels, images.dtype)
        first = subject.logits(pixels)
        check_logits(first, truth)
        asked = Images(pixels, truth, torch.arange(len(pixels)).to(truth) + (seed << 32))
        return _audited(subject, fresh, asked, first, Claim(ball, plan, twin))


def _audited(
    subject: Subject, fresh: Model | None, shown: Images, first: Tensor, claim: Claim
) -> Audit:
    pixels = shown.pixels
    correct = predictions(first) == shown.labels
    # After a first look, at which honest models make what they keep.
    before = state_of(subject.model)
    rows = correct.nonzero()[:, 0]
    asked = shown.take(rows)
    n = len(asked)
    findings = [
        forbidden(
            "enough_images", FEWEST - n if n < FEWEST else 0, FEWEST,
            f"{n} images are right as they are, and fewer than {FEWEST} clear nobody",
            verdict="suspicious",
        ),
        *nature(subject, pixels, first),
        *repeats(subject, pixels, first),
    ]  # fmt: skip
    robust = correct.clone()
    looked = pixels
    by_eps: tuple[Point, ...] = ()
    by_steps: tuple[Point, ...] = ()
    if n:
        slopes = gradients(subject, asked)
        trial = Trial(subject, asked, claim)
        blind = any(finding.verdict != "cleared" for finding in slopes)
        with stage("attack"):
            findings += [*slopes, *trial.run(blind=blind)]
        robust[rows] = trial.robust
        # A copy that meets them first cannot know them by the originals.
        looked = torch.cat([trial.worst, pixels])
        by_eps, by_steps = tuple(trial.by_eps), tuple(trial.by_steps)
    findings.append(_state(subject, fresh, looked, before, findings))
    findings.append(
        forbidden(
            "finite", subject.broken, subject.seen, "outputs were NaN or infinite, which is no "
            "answer", verdict="convicted",
        )
    )  # fmt: skip
    verdict = worst_of(findings)
    return Audit(verdict, tuple(findings), correct, robust, by_eps, by_steps, subject.seen)


def _state(
    subject: Subject,
    fresh: Model | None,
    looked: Tensor,
    before: dict[tuple[int, str], Hashable],
    findings: Sequence[Finding],
) -> Finding:
    """Whether the model is another after it was asked: by what it holds and by what it answers."""
    n = len(looked)
    changed = state_of(subject.model) != before
    count = n if changed else 0
    # One that answers by chance differs from its copy without having changed.
    by_chance = any(each.name == "same_outputs" and each.count for each in findings)
    if fresh is not None and not changed and not by_chance:
        with evaluation_mode(fresh):
            copy = Subject.of(fresh, looked, torch.float32)
            count = int(differs(copy.logits(looked), subject.logits(looked)).sum())
    words = "the model has changed by being asked: answers depend on what was seen before"
    return forbidden("stateless", count, n, words, verdict="convicted")

"""FAB: walk along the decision boundary, ever closer to the image (arXiv:1907.02044)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stockpot.attack import attacks
from stockpot.attack.directions import random_start
from stockpot.attack.hyperplane import step_to_plane
from stockpot.attack.methods.apgd import likely_wrong
from stockpot.attack.projection import norm_of, per_image, project
from stockpot.attack.task import Outcome, Task, attempts, planned, take, untouched
from stockpot.attack.victim import Victim
from stockpot.errors import BadParameterError
from stockpot.score.predictions import predictions
from stockpot.types import Count, Natural, Norm


@attacks.register("fab", paper="arXiv:1907.02044")
def fab(
    victim: Victim,
    task: Task,
    *,
    steps: Natural = 100,
    restarts: Count = 1,
    targets: Count = 9,
    targeted: bool = True,
    alpha: float = 0.1,
    overshoot: float = 1.05,
    back: float = 0.9,
    patience: Natural = 0,
) -> Outcome:
    """Seek the nearest misclassified image by projecting on linearised decision boundaries.

    The loss is minus the distance of the nearest misclassified image found.

    Args:
        steps: iterations of one run.
        restarts: runs per target; the first starts at the image, the others at random points.
        targets: how many of the likeliest wrong classes are tried in turn.
        targeted: aim at one class at a time; otherwise at the nearest of the `targets` classes,
            which costs a backward pass for each in every iteration.
        alpha: the largest pull back to the original image.
        overshoot: how far to step beyond the linearised boundary.
        back: how much of the change is kept after crossing the boundary.
        patience: a walk that has come no nearer (by a thousandth) in this many steps stops, and
            where only accuracy counts one that at its pace will end well outside the ball; 0
            walks to the end.
    """
    if steps < 0 or restarts < 1 or targets < 1:
        raise BadParameterError(
            "fab: expected steps >= 0, restarts >= 1 and targets >= 1, "
            f"got {steps}, {restarts} and {targets}."
        )
    wrong = likely_wrong(victim, task, targets)
    aims = [column[:, None] for column in wrong.unbind(dim=1)] if targeted else [wrong]
    norm, eps = task.threat.norm, task.threat.radius
    settings = _Settings(norm, eps, steps, alpha, overshoot, back, patience)

    def attempt(part: Task, rows: Tensor, aim: int, restart: int) -> Outcome:
        start = part.images
        if restart:
            start = random_start(norm, start, part.seeds, eps / 2, 3, aim, restart)
        return _walk(victim, part, aims[aim][rows], start, settings)

    outcome = attempts(task, attempt, restarts=restarts, aims=len(aims))
    # The look that chose the targets; then one at every point of a walk, and one inside the ball.
    outcome = replace(outcome, queries=outcome.queries + victim.eot)
    return planned(outcome, (1 + len(aims) * restarts * (steps + 2)) * victim.eot)


_GRACE = 1.1


@dataclass(frozen=True)
class _Settings:
    norm: Norm
    eps: float
    steps: int
    alpha: float
    overshoot: float
    back: float
    patience: int


@dataclass
class _State:
    rows: Tensor
    origin: Tensor
    labels: Tensor
    classes: Tensor
    now: Tensor
    idle: Tensor
    """Steps since the walk last came nearer."""
    earlier: Tensor
    """The distance when it was last looked at."""


def _walk(victim: Victim, task: Task, classes: Tensor, start: Tensor, s: _Settings) -> Outcome:
    outcome = untouched(task)
    images, loss = outcome.images, outcome.loss
    fallen, queries, flat = outcome.fallen, outcome.queries, outcome.flat
    rows = torch.arange(len(task), device=start.device)
    state = _State(
        rows, task.images, task.labels, classes, start, torch.zeros_like(rows),
        torch.full_like(loss, torch.inf),
    )  # fmt: skip
    for number in range(s.steps + 1):
        gaps, slopes, wrong = victim.slopes(state.now, state.labels, state.classes)
        queries[state.rows] += victim.eot
        if number == 0:
            flat |= slopes.flatten(1).abs().amax(dim=1) == 0
        size = norm_of(s.norm, state.now - state.origin)
        closer = wrong & (-size > loss[state.rows])
        much = wrong & (-size > loss[state.rows] * 0.999)
        state.idle = torch.where(much, 0, state.idle + 1)
        chosen = state.rows[closer]
        images[chosen], loss[chosen] = state.now[closer], -size[closer]
        reached = wrong & (size <= s.eps)
        fallen[state.rows[reached]] = True
        if number == s.steps:
            break
        points = state.now
        # Past the boundary, the walk goes on from a point nearer to the image, with the plane
        # that was found where it stands: one look at the model serves both.
        nearer = state.origin + s.back * (points - state.origin)
        start_from = torch.where(per_image(wrong, points), nearer, points)
        state.now = _advance(state, gaps, slopes, points, start_from, s)
        done = reached & task.leave
        if s.patience:
            done |= state.idle >= s.patience
            block = max(1, s.patience // 2)
            if task.leave and number and number % block == 0:
                now = -loss[state.rows]
                done |= _too_slow(state.earlier, now, s.eps, (s.steps - number) / block)
                state.earlier = now
        if bool(done.any()):
            state = take(state, (~done).nonzero()[:, 0])
            if not len(state.rows):
                break
    # A point found just outside the ball may still be wrong when it is brought inside.
    near = (~fallen & (loss > -torch.inf)).nonzero()[:, 0]
    if len(near):
        images[near] = project(s.norm, task.images[near], images[near], s.eps)
        fallen[near] = predictions(victim.logits(images[near])) != task.labels[near]
        queries[near] += victim.eot
    return Outcome(images, fallen, loss, queries, outcome.planned, flat)


def _too_slow(earlier: Tensor, now: Tensor, eps: float, blocks: float) -> Tensor:
    """Whether a walk that goes on at its recent pace ends well outside the ball.

    A walk converges: it comes nearer by ever smaller shares, so the pace is a generous forecast.
    """
    pace = torch.where(torch.isinf(earlier), 0, now / earlier)
    return now * pace**blocks > _GRACE * eps


def _advance(
    state: _State, gaps: Tensor, slopes: Tensor, seen: Tensor, start: Tensor, s: _Settings
) -> Tensor:
    """Step to the nearest linearised boundary, from the walk and from the image, and mix both."""
    normal, gap = _nearest(gaps, slopes.flatten(2), s.norm)
    offset = (normal * seen.flatten(1)).sum(dim=1) - gap
    walk, origin = start.flatten(1), state.origin.flatten(1)
    steps = step_to_plane(
        s.norm,
        torch.cat([walk, origin]),
        torch.cat([normal, normal]),
        torch.cat([offset, offset]),
    )
    along, direct = steps.chunk(2)
    long_along = norm_of(s.norm, along).clamp(min=1e-8)
    long_direct = norm_of(s.norm, direct).clamp(min=1e-8)
    pull = (long_along / (long_along + long_direct)).clamp(0, s.alpha)[:, None]
    mixed = (walk + s.overshoot * along) * (1 - pull) + (origin + s.overshoot * direct) * pull
    return mixed.clamp(0, 1).view_as(state.now)


def _nearest(gaps: Tensor, slopes: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """Normal and gap of the nearest of several planes, image by image."""
    if gaps.shape[1] == 1:
        return slopes[:, 0], gaps[:, 0]
    dual: Norm = {"linf": "l1", "l2": "l2", "l1": "linf"}[norm]  # type: ignore[assignment]
    lengths = norm_of(dual, slopes.flatten(0, 1)).view_as(gaps)
    chosen = (gaps.abs() / lengths.clamp(min=1e-12)).argmin(dim=1)
    rows = torch.arange(len(chosen), device=chosen.device)
    return slopes[rows, chosen], gaps[rows, chosen]

"""FAB: walk along the decision boundary, ever closer to the image (arXiv:1907.02044)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from stockpot.attack import attacks
from stockpot.attack.blocks import Answers
from stockpot.attack.directions import random_start
from stockpot.attack.hyperplane import step_to_plane
from stockpot.attack.methods.apgd import likely_wrong
from stockpot.attack.projection import norm_of, per_image, project
from stockpot.attack.task import Outcome, Task, attempts, planned, untouched
from stockpot.attack.victim import Slopes, Victim
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
_EVERY = 10  # steps after which those leave who are done, where they leave in blocks


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
    done: Tensor
    fallen: Tensor
    origin: Tensor
    labels: Tensor
    classes: Tensor
    now: Tensor
    found: Tensor
    """The nearest misclassified point, and minus its distance."""
    found_loss: Tensor
    queries: Tensor
    idle: Tensor
    """Steps since the walk last came nearer."""
    earlier: Tensor
    """The distance when it was last looked at."""


def _walk(victim: Victim, task: Task, classes: Tensor, start: Tensor, s: _Settings) -> Outcome:
    outcome = untouched(task)
    rows = torch.arange(len(task), device=start.device)
    none = torch.zeros_like(outcome.fallen)
    state = _State(
        rows, none, none, task.images, task.labels, classes, start, task.images, outcome.loss,
        torch.zeros_like(rows), torch.zeros_like(rows), torch.full_like(outcome.loss, torch.inf),
    )  # fmt: skip
    # Which walks go too slowly is asked every half patience, and at no other time.
    pace = max(1, s.patience // 2)
    blocks, answers = victim.blocks(pace if s.patience else _EVERY), Answers.of(start, outcome.loss)
    flat, key = outcome.flat, ("fab", s, task.leave, victim.eot)
    for number in range(s.steps + 1):
        if number == 0:
            state, slopes = _look(victim, s, task.leave, state)
            flat = slopes.gradients.flatten(1).abs().amax(dim=1) == 0
            state.now = _onwards(s, state, slopes)
        elif number == s.steps:
            state, _ = _look(victim, s, task.leave, state)
        else:
            step = partial(_step, victim, s, task.leave)
            state = blocks.run(key, s.steps - number, step, state)
        if s.patience and task.leave and number and number % pace == 0 and number < s.steps:
            distance = -state.found_loss
            slow = _too_slow(state.earlier, distance, s.eps, (s.steps - number) / pace)
            state.done, state.earlier = state.done | slow, distance
        if blocks.due(number):
            state = blocks.settled(state, answers)
            if not len(state.rows):
                break
    state = blocks.settled(state, answers)
    answers.put(state.rows, state.found, state.fallen, state.found_loss, state.queries)
    return _brought_inside(victim, task, s, answers.outcome(flat))


def _look(victim: Victim, s: _Settings, leave: bool, state: _State) -> tuple[_State, Slopes]:
    """See where the walks stand, and remember the nearest misclassified points."""
    slopes = victim.slopes(state.now, state.labels, state.classes)
    size = norm_of(s.norm, state.now - state.origin)
    wrong = slopes.wrong & ~state.done
    closer = wrong & (-size > state.found_loss)
    much = wrong & (-size > state.found_loss * 0.999)
    reached = wrong & (size <= s.eps)
    done = state.done | reached if leave else state.done
    idle = torch.where(much, 0, state.idle + 1)
    state = replace(
        state,
        queries=state.queries + victim.eot * ~state.done,
        idle=idle,
        found=torch.where(per_image(closer, state.now), state.now, state.found),
        found_loss=torch.where(closer, -size, state.found_loss),
        fallen=state.fallen | reached,
        done=done | (idle >= s.patience) if s.patience else done,
    )
    return state, slopes


def _step(victim: Victim, s: _Settings, leave: bool, state: _State) -> _State:
    state, slopes = _look(victim, s, leave, state)
    return replace(state, now=_onwards(s, state, slopes))


def _onwards(s: _Settings, state: _State, slopes: Slopes) -> Tensor:
    """The next point of every walk."""
    points = state.now
    # Past the boundary, the walk goes on from a point nearer to the image, with the plane that was
    # found where it stands: one look at the model serves both.
    nearer = state.origin + s.back * (points - state.origin)
    start_from = torch.where(per_image(slopes.wrong, points), nearer, points)
    return _advance(state, slopes.gaps, slopes.gradients, points, start_from, s)


def _brought_inside(victim: Victim, task: Task, s: _Settings, found: Outcome) -> Outcome:
    """A point found just outside the ball may still be wrong when it is brought inside."""
    near = (~found.fallen & (found.loss > -torch.inf)).nonzero()[:, 0]
    if len(near):
        found.images[near] = project(s.norm, task.images[near], found.images[near], s.eps)
        logits = victim.exactly().logits(found.images[near])
        found.fallen[near] = predictions(logits) != task.labels[near]
        found.queries[near] += victim.eot
    return found


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

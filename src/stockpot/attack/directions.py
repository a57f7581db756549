"""Where to start and which way to step, per norm."""

from __future__ import annotations

from torch import Tensor

from stockpot.attack.draws import normal, uniform
from stockpot.attack.projection import l2_norm, per_image, project, project_l1
from stockpot.types import Norm


def random_start(norm: Norm, origin: Tensor, seeds: Tensor, eps: float, *place: int) -> Tensor:
    """A random valid image on the surface of the ball (l_inf, l_2) or inside it (l_1)."""
    shape = origin.shape[1:]
    if norm == "linf":
        noise = uniform(seeds, shape, *place).to(origin).mul_(2).sub_(1)
        noise = noise / per_image(noise.flatten(1).abs().amax(dim=1), noise).clamp(min=1e-12)
        return project(norm, origin, origin + eps * noise, eps)
    noise = normal(seeds, shape, *place).to(origin)
    if norm == "l2":
        return project(norm, origin, origin + eps * noise / l2_norm(noise).clamp(min=1e-12), eps)
    return origin + project_l1(origin, noise, eps)


def steepest(norm: Norm, gradient: Tensor, share: Tensor | None = None) -> Tensor:
    """The change of unit norm that raises the loss fastest to first order.

    For l_1 the steepest change would move a single value; `share` spreads it, with equal sizes,
    over that share of all values (one share per image), which makes far better use of a step.
    """
    if norm == "linf":
        return gradient.sign()
    if norm == "l2":
        return gradient / l2_norm(gradient).clamp(min=1e-12)
    if share is None:
        raise ValueError("a step in l_1 needs the share of values it moves")
    size = gradient.abs().flatten(1)
    count = (share * size.shape[1]).ceil().long().clamp(1, size.shape[1])
    # On a CPU the few largest suffice; an accelerator sorts all sooner than it tells how few.
    few = int(count.max()) if size.device.type == "cpu" else size.shape[1]
    largest = size.topk(few, dim=1).values if few < size.shape[1] else _sorted(size)
    floor = largest.gather(1, count[:, None] - 1)
    moved = gradient.flatten(1).sign() * (size >= floor)
    return (moved / moved.abs().sum(dim=1, keepdim=True).clamp(min=1)).view_as(gradient)


def _sorted(values: Tensor) -> Tensor:
    return values.sort(dim=1, descending=True).values

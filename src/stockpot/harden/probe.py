"""Linear probes: multinomial logistic regression on fixed features, along a path of penalties.

For each C the weights minimise  sum of cross-entropies + |W|^2 / (2 C)  (the bias is free), by
L-BFGS in float64 from the solution of the C before. Features are centred and divided by one number,
their overall standard deviation, while solving; the weights that come out fit them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.errors import BadDataError, BadParameterError

DEFAULT_PATH = tuple(10.0**power for power in range(-7, 3))
_TOLERANCE = 1e-7


class Probe(NamedTuple):
    """A linear head and the C it was fitted with."""

    weight: Tensor
    bias: Tensor
    strength: float

    def logits(self, features: Tensor) -> Tensor:
        """Of each row."""
        return F.linear(features.double(), self.weight, self.bias)


def probe_path(
    features: Tensor,
    labels: Tensor,
    classes: int,
    *,
    strengths: Sequence[float] = DEFAULT_PATH,
    iterations: int = 200,
) -> list[Probe]:
    """A probe for every C, each started from the one before.

    Args:
        features: [images, dimensions].
        labels: [images].
        classes: how many there are.
        strengths: the values of C; small ones penalise more. They are solved in rising order.
        iterations: the most L-BFGS steps per C.
    """
    if len(features) != len(labels) or not len(labels):
        raise BadDataError(
            f"a probe needs one label per row, got {len(features)} rows, {len(labels)} labels."
        )
    if not strengths or min(strengths) <= 0:
        raise BadParameterError(f"a probe needs C > 0, got {list(strengths)}.")
    rows = features.detach().double()
    centre = rows.mean(dim=0)
    spread = float((rows - centre).std(unbiased=False).clamp(min=1e-12))
    rows = (rows - centre) / spread
    weight = rows.new_zeros(classes, rows.shape[1])
    bias = rows.new_zeros(classes)
    path = []
    for strength in sorted(strengths):
        weight, bias = _solve(rows, labels, weight, bias, strength, iterations)
        own = weight / spread
        path.append(Probe(own, bias - own @ centre, strength))
    return path


def best_probe(path: Sequence[Probe], features: Tensor, right: Callable[[Tensor], Tensor]) -> Probe:
    """The probe that is right most often; among equals the most penalised.

    Args:
        path: the probes.
        features: of held-out images.
        right: from logits to whether each of these images is classified rightly.
    """
    counts = [int(right(probe.logits(features)).sum()) for probe in path]
    return path[counts.index(max(counts))]


def probe_loss(
    rows: Tensor, labels: Tensor, weight: Tensor, bias: Tensor, strength: float
) -> Tensor:
    """What is minimised, divided by the number of rows."""
    fit = F.cross_entropy(F.linear(rows, weight, bias), labels)
    return fit + weight.square().sum() / (2 * strength * len(rows))


def _solve(
    rows: Tensor, labels: Tensor, weight: Tensor, bias: Tensor, strength: float, iterations: int
) -> tuple[Tensor, Tensor]:
    weight, bias = weight.clone().requires_grad_(), bias.clone().requires_grad_()
    solver = torch.optim.LBFGS(
        [weight, bias],
        max_iter=iterations,
        history_size=20,
        tolerance_grad=_TOLERANCE,
        tolerance_change=1e-18,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        solver.zero_grad()
        with torch.enable_grad():
            loss = probe_loss(rows, labels, weight, bias, strength)
            loss.backward()  # type: ignore[no-untyped-call]
        return loss

    solver.step(closure)  # type: ignore[no-untyped-call]
    return weight.detach(), bias.detach()

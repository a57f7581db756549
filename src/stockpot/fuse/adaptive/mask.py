"""A relaxed Bernoulli mask over all weights, its gradient, and the fusion it leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from stockpot.checkpoints.layouts import plain_name
from stockpot.fuse.kinds import Slab, TensorFuser
from stockpot.fuse.learning.pool import TaskPool

_NEVER_ZERO = 1e-8


class Mask:
    """One number in (0, 1) per weight, scaled so that its mean over each tensor is 1.

    m = sigmoid((logits + log u - log(1 - u)) / temperature), u uniform; then m / mean(m).
    """

    def __init__(self, pool: TaskPool, temperature: float, seed: int) -> None:
        """Logits of zero: every weight is as likely to be changed as not.

        Args:
            pool: the members.
            temperature: of the relaxed draw.
            seed: of the draws.
        """
        self._pool = pool
        self._temperature = temperature
        self._generator = torch.Generator().manual_seed(seed)
        self.logits = torch.zeros_like(pool.flat).requires_grad_(True)
        self.change = torch.zeros_like(pool.flat)
        """The members' changes, each times its coefficient, added up."""
        self._draw = torch.zeros_like(pool.flat)
        self.values = torch.zeros_like(pool.flat)
        self.draw(seed=seed)

    def draw(self, seed: int | None = -1) -> None:
        """Draw a mask: the next one, the one of a seed, or (None) one that nobody can repeat.

        Args:
            seed: -1 goes on with the generator.
        """
        generator = self._generator
        if seed is None:
            generator = torch.Generator()
            generator.seed()
        elif seed >= 0:
            generator = torch.Generator().manual_seed(seed + 1)
        uniform = torch.rand(len(self.logits), generator=generator).clamp_(_NEVER_ZERO, 1 - 1e-7)
        noise = torch.logit(uniform).to(self.logits.device)
        self._draw = ((self.logits.detach() + noise) / self._temperature).sigmoid_()
        for span in self._pool.spans:
            part = self._draw[span]
            self.values[span] = part / part.mean().clamp(min=_NEVER_ZERO)

    def mix(self, coefficients: Tensor) -> None:
        """Add the changes up with coefficients, members x tensors."""
        pool = self._pool
        for number, span in enumerate(pool.spans):
            torch.mv(pool.deltas[:, span].T, coefficients[:, number], out=self.change[span])

    def form(self) -> None:
        """Turn the working model into base + mask x change."""
        pool = self._pool
        torch.addcmul(pool.base, self.values, self.change, out=pool.flat)
        pool.keep_variances()

    def pull(self) -> Tensor:
        """The gradient with respect to the coefficients, members x tensors."""
        pool = self._pool
        masked = pool.gradient * self.values
        return torch.stack([pool.deltas[:, span] @ masked[span] for span in pool.spans], dim=1)

    def gradient(self) -> Tensor:
        """The gradient with respect to the logits.

        With s = m / mean(m) and g the gradient in s: dL/dm = (g - mean(g s)) / mean(m).
        """
        pool = self._pool
        found = pool.gradient * self.change
        for span in pool.spans:
            m, g = self._draw[span], found[span]
            found[span] = (g - (g * self.values[span]).mean()) / m.mean().clamp(min=_NEVER_ZERO)
        return found * self._draw * (1 - self._draw) / self._temperature


def masked_fuser(names: Sequence[str], tensors: Mapping[str, Tensor]) -> TensorFuser:
    """base + mask x sum of coefficients x changes.

    Args:
        names: the fused tensors.
        tensors: `coefficients`, members x tensors, and `mask.NAME` of each.
    """
    columns = tensors["coefficients"].T
    of = {plain_name(name): column for name, column in zip(names, columns, strict=True)}

    def merge(slab: Slab) -> Tensor:
        plain = plain_name(slab.name)
        factors = of[plain].tolist()
        total = slab.delta(0).mul_(factors[0])
        for index in range(1, slab.count):
            total += slab.delta(index) * factors[index]
        mask = tensors[f"mask.{plain}"].to(total.device, total.dtype)
        return total.mul_(mask).add_(slab.base)

    return TensorFuser(merge)

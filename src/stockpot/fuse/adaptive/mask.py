"""A relaxed Bernoulli mask over all weights, its gradient, and the fusion it leads to."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from stockpot.attack.draws import uniform
from stockpot.checkpoints.layouts import plain_name
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.learning.task_pool import TaskPool

_NEVER_ZERO = 1e-8
_FINISHED = -1
"""The number of the mask that is kept; those drawn while it learns count from 0."""


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
        self._seed = seed
        self._drawn = 0
        self.logits = torch.zeros_like(pool.flat).requires_grad_(True)
        self.change = torch.zeros_like(pool.flat)
        """The members' changes, each times its coefficient, added up."""
        self.soft = torch.full_like(pool.flat, 0.5)
        """The draw before it is scaled."""
        self.values = torch.ones_like(pool.flat)

    def state_dict(self) -> dict[str, Any]:
        """The logits, and how many masks were drawn."""
        return {"logits": self.logits.detach(), "drawn": self._drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.logits.data.copy_(state["logits"])
        self._drawn = int(state["drawn"])

    def draw(self) -> None:
        """Draw the next mask, while it learns."""
        self._set(self._uniforms(self._seed, self._drawn))
        self._drawn += 1

    def finish(self, *, resample: bool = False) -> None:
        """Draw the mask to keep: the seed's own, on any device, or one that nobody can repeat."""
        self._set(self._uniforms(secrets.randbits(32) if resample else self._seed, _FINISHED))

    def _uniforms(self, seed: int, number: int) -> Iterator[Tensor]:
        """The numbers of one mask, made where they are used: the same on every device.

        Every tensor has draws of its own, which do not depend on the order of the tensors.
        """
        for name, span in zip(self._pool.names, self._pool.spans, strict=True):
            key = torch.tensor([_number(seed, name)], device=self.logits.device)
            yield uniform(key, (span.stop - span.start,), number)[0]

    def _set(self, uniforms: Iterable[Tensor]) -> None:
        for span, numbers in zip(self._pool.spans, uniforms, strict=True):
            noise = torch.logit(numbers.to(self.logits.device).clamp(_NEVER_ZERO, 1 - 1e-7))
            part = ((self.logits.detach()[span] + noise) / self._temperature).sigmoid_()
            self.soft[span] = part
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
        return self._pool.pull_from(self._pool.gradient * self.values)

    def gradient(self) -> Tensor:
        """The gradient with respect to the logits.

        With s = m / mean(m) and g the gradient in s: dL/dm = (g - mean(g s)) / mean(m).
        """
        pool = self._pool
        found = pool.gradient * self.change
        for span in pool.spans:
            m, g = self.soft[span], found[span]
            found[span] = (g - (g * self.values[span]).mean()) / m.mean().clamp(min=_NEVER_ZERO)
        return found * self.soft * (1 - self.soft) / self._temperature


def _number(seed: int, name: str) -> int:
    text = f"{seed}/{plain_name(name)}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")


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

"""Training that has left the numbers: noticed before its state is saved, and told with the step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from stockpot.errors import UserError
from stockpot.harden.many.processes import any_of
from stockpot.harden.many.sharded import local


class LossWatch:
    """The losses since the last look; until then nothing waits for a GPU."""

    def __init__(self, step: int, total: int) -> None:
        self._done, self._total = step, total
        self._saved = step
        self._losses: list[Tensor] = []

    def add(self, loss: Tensor) -> None:
        """Take the loss of the next step."""
        self._losses.append(loss.detach().float())

    def check(self, weights: Iterable[Tensor]) -> None:
        """Raise if a loss since the last look, or a weight now, is no number."""
        if self._losses:
            good = torch.isfinite(torch.stack(self._losses)).tolist()
            if not all(good):
                step = self._done + good.index(False) + 1
                value = float(self._losses[good.index(False)])
                self._fail(f"the loss is no longer a number: {value} at step {step:,}")
        self._done += len(self._losses)
        self._losses.clear()
        own = (local(one) for one in weights if one.is_floating_point())
        lost = not all(bool(torch.isfinite(one).all()) for one in own)
        if any_of(lost)[0]:
            self._fail(f"weights are no longer numbers after step {self._done:,}")

    def saved(self, step: int) -> None:
        """The state after this step is on disk."""
        self._saved = step

    def _fail(self, what: str) -> None:
        kept = f" The state after step {self._saved:,} is kept." if self._saved else ""
        raise UserError(
            f"{what} of {self._total:,}.{kept}", hint="Try a smaller lr, or precision=fp32."
        )

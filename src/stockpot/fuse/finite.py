"""Finite in, finite out: what a method or a dtype turned into no number is refused."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.checkpoints.source import Source
from stockpot.errors import BadCheckpointError, UserError


class Inputs:
    """What was read for a piece of work, and whether all of it was numbers.

    Asking a GPU makes it wait for all that was begun. So its values are summed where they are, and
    the sums are asked for once, when the piece is done.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[Tensor, Source, str]] = []

    def check(self, values: Tensor, source: Source, name: str) -> None:
        """Raise where values on the CPU are no numbers; remember the sum of others."""
        if values.device.type == "cpu":
            if not _is_finite(values):
                raise _refused(source, name, values)
        else:
            self._sums.append((values.sum(), source, name))

    def settle(self) -> None:
        """Raise where any of the remembered values were no numbers."""
        sums, self._sums = self._sums, []
        if not sums or bool(torch.isfinite(torch.stack([each for each, _, _ in sums])).all()):
            return
        # A sum may be too large for its dtype where every value is a number: look closer.
        for source, name in dict.fromkeys((source, name) for _, source, name in sums):
            values = source.read(name)
            if not bool(torch.isfinite(values).all()):
                raise _refused(source, name, values)


def _refused(source: Source, name: str, values: Tensor) -> BadCheckpointError:
    kind = "NaN" if bool(torch.isnan(values).any()) else "an infinite value"
    return BadCheckpointError(
        f"{source.label}: tensor {name!r} holds {kind}; nothing was written.",
        hint="Leave the checkpoint out, or skip the tensor with --exclude.",
    )


def written(values: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    """Values in the dtype of the result; raises where that cannot hold a finite one.

    What a model brings along without being fused (a mask of -inf) stays what it is.
    """
    cast = values.to(dtype)
    if cast.dtype == values.dtype or not cast.is_floating_point() or _is_finite(cast):
        return cast
    lost = torch.isfinite(values) & ~torch.isfinite(cast.float())
    if bool(lost.any()):
        largest = float(values[lost].abs().max())
        raise UserError(
            f"the fused {name!r} has values of up to {largest:.6g}, and "
            f"{str(dtype).removeprefix('torch.')} ends at {torch.finfo(dtype).max:g}; "
            "nothing was written.",
            hint="Write another dtype (dtype=fp32 or bf16), or merge with a smaller scale.",
        )
    return cast


def check_merged(values: Tensor, name: str, method: str) -> None:
    """Raise where a method made NaN or infinities; all that it read was finite."""
    if values.is_floating_point() and not _is_finite(values):
        kind = "NaN" if bool(torch.isnan(values).any()) else "an infinite value"
        raise UserError(
            f"{method}: {name!r} came out with {kind}; nothing was written.",
            hint="Try accumulate=fp64, a smaller scale, or leave the tensor out with exclude=.",
        )


def _is_finite(values: Tensor) -> bool:
    # A sum is the cheapest look at every element; only a strange sum is worth a closer one.
    values = values.float() if values.element_size() < 4 else values
    return bool(torch.isfinite(values.sum()) or torch.isfinite(values).all())

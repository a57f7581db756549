"""Finite in, finite out: what a method or a dtype turned into no number is refused."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.errors import UserError


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

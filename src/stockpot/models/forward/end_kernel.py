"""The end of a convolution as a Triton kernel; to be imported only where there is a GPU."""

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048


@triton.jit  # type: ignore[untyped-decorator]
def _end(  # type: ignore[no-untyped-def]
    maps, bias, rest, count, channels: tl.constexpr, adds: tl.constexpr, block: tl.constexpr
):
    # No types of Python here: Triton would look them up as values.
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < count
    value = tl.load(maps + place, mask=inside, other=0).to(tl.float32)
    value += tl.load(bias + place % channels, mask=inside, other=0).to(tl.float32)
    if adds:
        value += tl.load(rest + place, mask=inside, other=0).to(tl.float32)
    # What is no number stays none.
    tl.store(maps + place, tl.where(value < 0, 0.0, value), mask=inside)


def run_end(maps: Tensor, bias: Tensor, rest: Tensor | None) -> Tensor:
    """`relu(maps + bias + rest)` in place; all dense with channels last."""
    count = maps.numel()
    _end[(triton.cdiv(count, _BLOCK),)](
        maps, bias, maps if rest is None else rest, count,
        channels=maps.shape[1], adds=rest is not None, block=_BLOCK, num_warps=8,
    )  # fmt: skip
    return maps

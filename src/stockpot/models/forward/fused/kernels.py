"""Kernels of the fused layers; to be imported only where there is a GPU."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_PLACES, _COLUMNS = 1024, 16

# No types of Python inside kernels: Triton would look them up as values.


@triton.jit  # type: ignore[untyped-decorator]
def _enter(pixels, table, out, area, colours, width: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    image = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    channel = tl.arange(0, width)[None, :]
    inside = place < area
    real = inside & (channel < colours)
    level = tl.load(pixels + (image * colours + channel) * area + place, mask=real, other=0)
    value = tl.load(table + channel * 256 + level.to(tl.int32), mask=real, other=0.0)
    tl.store(out + (image * area + place) * width + channel, value, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _enter_halved(  # type: ignore[no-untyped-def]
    pixels, table, out, height, wide, rows, columns, before,
    width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    part = tl.arange(0, width)[None, :]
    colour = part % 3
    y = 2 * (place // columns - before) + part // 6
    x = 2 * (place % columns - before) + (part // 3) % 2
    shown = place < rows * columns
    real = shown & (part < 12) & (y >= 0) & (y < height) & (x >= 0) & (x < wide)
    level = tl.load(pixels + ((image * 3 + colour) * height + y) * wide + x, mask=real, other=0)
    value = tl.load(table + colour * 256 + level.to(tl.int32), mask=real, other=0.0)
    tl.store(out + (image * rows * columns + place) * width + part, value, mask=shown)


@triton.jit  # type: ignore[untyped-decorator]
def _look_up(pixels, table, out, area, colours, block: tl.constexpr):  # type: ignore[no-untyped-def]
    plane = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < area
    level = tl.load(pixels + plane * area + place, mask=inside, other=0)
    value = tl.load(table + (plane % colours) * 256 + level.to(tl.int32), mask=inside, other=0.0)
    tl.store(out + plane * area + place, value, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _pool(  # type: ignore[no-untyped-def]
    maps, out, height, wide, rows, columns, channels, side: tl.constexpr, stride: tl.constexpr,
    padding: tl.constexpr, block: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    line = tl.program_id(0).to(tl.int64)
    image, row = line // rows, line % rows
    column = tl.program_id(1) * block + tl.arange(0, block)[:, None]
    channel = tl.arange(0, width)[None, :]
    shown = (column < columns) & (channel < channels)
    best = tl.full((block, width), float("-inf"), tl.float32)
    for down in tl.static_range(side):
        y = row * stride - padding + down
        for right in tl.static_range(side):
            x = column * stride - padding + right
            inside = shown & (y >= 0) & (y < height) & (x >= 0) & (x < wide)
            at = ((image * height + y) * wide + x) * channels + channel
            value = tl.load(maps + at, mask=inside, other=float("-inf")).to(tl.float32)
            # What is no number stays none.
            best = tl.where((value > best) | (value != value), value, best)
    tl.store(out + (line * columns + column) * channels + channel, best, mask=shown)


@triton.jit  # type: ignore[untyped-decorator]
def _add_norm(  # type: ignore[no-untyped-def]
    change, tokens, weight, bias, total, out, eps, features, width: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * features
    place = tl.arange(0, width)
    inside = place < features
    added = tl.load(change + row + place, mask=inside, other=0.0).to(tl.float32)
    added += tl.load(tokens + row + place, mask=inside, other=0.0).to(tl.float32)
    # The next layers read the sum as it is stored.
    added = added.to(total.dtype.element_ty).to(tl.float32)
    tl.store(total + row + place, added, mask=inside)
    mean = tl.sum(added, axis=0) / features
    centred = tl.where(inside, added - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / features + eps)
    factor = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + place, centred * scale * factor + shift, mask=inside)


def enter(pixels: Tensor, table: Tensor, width: int) -> Tensor:
    """Levels to values by a table (channels x 256), NCHW to NHWC with zeros up to `width`."""
    count, colours, height, wide = pixels.shape
    out = torch.empty(
        (count, width, height, wide), dtype=table.dtype, device=pixels.device,
        memory_format=torch.channels_last,
    )  # fmt: skip
    area = height * wide
    grid = triton.cdiv(area, _PLACES // 2), count
    _enter[grid](pixels, table, out, area, colours, width=width, block=_PLACES // 2)
    return out


def enter_halved(pixels: Tensor, table: Tensor, width: int, before: int, after: int) -> Tensor:
    """Levels to values, four neighbours of three colours as the channels of one place.

    Places are those of half the sides, with zeros around: `before` above and left, `after` below
    and right. Channel `6 down + 3 right + colour` is the neighbour that lies so far down and right.
    """
    count, _, height, wide = pixels.shape
    rows, columns = (size // 2 + before + after for size in (height, wide))
    out = torch.empty(
        (count, width, rows, columns), dtype=table.dtype, device=pixels.device,
        memory_format=torch.channels_last,
    )  # fmt: skip
    grid = triton.cdiv(rows * columns, _PLACES // 4), count
    _enter_halved[grid](
        pixels, table, out, height, wide, rows, columns, before, width=width, block=_PLACES // 4
    )
    return out


def look_up(pixels: Tensor, table: Tensor) -> Tensor:
    """The same in the order of the pixels."""
    count, colours, height, wide = pixels.shape
    out = torch.empty(pixels.shape, dtype=table.dtype, device=pixels.device)
    area = height * wide
    grid = triton.cdiv(area, _PLACES), count * colours
    _look_up[grid](pixels, table, out, area, colours, block=_PLACES)
    return out


def pool(maps: Tensor, side: int, stride: int, padding: int) -> Tensor:
    """The largest value of each window; dense maps with channels last."""
    count, channels, height, wide = maps.shape
    rows, columns = ((size + 2 * padding - side) // stride + 1 for size in (height, wide))
    out = torch.empty(
        (count, channels, rows, columns), dtype=maps.dtype, device=maps.device,
        memory_format=torch.channels_last,
    )  # fmt: skip
    grid = count * rows, triton.cdiv(columns, _COLUMNS)
    _pool[grid](
        maps, out, height, wide, rows, columns, channels, side=side, stride=stride,
        padding=padding, block=_COLUMNS, width=triton.next_power_of_2(channels),
    )  # fmt: skip
    return out


def add_norm(
    change: Tensor, tokens: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """`change + tokens`, and its layer norm; dense, of one dtype."""
    total, out = torch.empty_like(tokens), torch.empty_like(tokens)
    features = tokens.shape[-1]
    _add_norm[(tokens.numel() // features,)](
        change, tokens, weight, bias, total, out, eps, features,
        width=triton.next_power_of_2(features), num_warps=4,
    )  # fmt: skip
    return total, out

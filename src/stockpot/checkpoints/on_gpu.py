"""All weights of a checkpoint on a GPU, read in pieces that go there as they come.

To read them into memory of the machine first takes new pages for all of them, and to send each by
itself from there takes Python as many calls as there are tensors, and the driver a copy of its own.
Here two pieces of pinned memory take turns: one is read while the other is on its way. The tensors
are parts of one piece of memory of the GPU, cut by a few calls: at each call another thread may
take its turn in Python, and whoever loads beside those who ask a GPU would wait long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from stockpot.checkpoints.safetensors_file import SafetensorsSource
from stockpot.checkpoints.source import TensorInfo

PIECE = 16 << 20
LINE = 16
"""Bytes at whose multiples a tensor must begin, so that every kernel can read it."""

Part = tuple[str, int, TensorInfo]
"""A tensor: name, first byte, and what it is."""


def tensors_on(source: SafetensorsSource, device: torch.device) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, on the device; those of a file share their memory."""
    cuda = device.type == "cuda"
    files = [source.extent(number) for number in range(len(source.files))]
    longest = min(PIECE, max((stop - start for start, stop in files), default=0))
    rooms = [torch.empty(longest, dtype=torch.uint8, pin_memory=cuda) for _ in range(2)]
    leaves: list[torch.cuda.Event | None] = [None, None]
    found: dict[str, Tensor] = {}
    turn = 0
    for number, (start, stop) in enumerate(files):
        parts = sorted(source.within(number), key=lambda part: part[1])
        before = _before(parts, start)
        whole = torch.empty(before + stop - start, dtype=torch.uint8, device=device)
        for begin in range(start, stop, PIECE):
            count = min(PIECE, stop - begin)
            left, room = leaves[turn], rooms[turn][:count]
            if left is not None:
                left.synchronize()
            source.read_into(number, begin, room)
            place = before + begin - start
            whole[place : place + count].copy_(room, non_blocking=True)
            leaves[turn] = torch.cuda.current_stream(device).record_event() if cuda else None
            turn = 1 - turn
        found.update(_cut(whole, [(name, at - start + before, info) for name, at, info in parts]))
    if cuda:
        torch.cuda.current_stream(device).synchronize()  # whoever asks next may use another stream
    return found


def _before(parts: list[Part], start: int) -> int:
    """Bytes to leave free before a file's tensors, so that most of them begin at a line."""
    fitting: Counter[int] = Counter()
    for _, begin, info in parts:
        fitting[(start - begin) % LINE] += info.nbytes
    return max(fitting, key=lambda count: fitting[count], default=0)


def _cut(whole: Tensor, parts: list[Part]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a piece of memory: parts of it, or copies where they do not begin at a line.

    Args:
        whole: the memory, as bytes.
        parts: the tensors, where they begin in it, in this order.
    """
    for run in _runs(parts):
        begin, dtype = run[0][1], run[0][2].dtype
        values = whole[begin : run[-1][1] + run[-1][2].nbytes]
        if begin % dtype.itemsize:
            values = values.clone()  # what is not at its own multiple cannot even be looked at
        pieces = torch.split(values.view(dtype), [info.numel for _, _, info in run])
        for (name, at, info), piece in zip(run, pieces, strict=True):
            own = piece if not dtype.is_floating_point or at % LINE == 0 else piece.clone()
            yield name, own if len(info.shape) == 1 else own.view(info.shape)


def _runs(parts: list[Part]) -> Iterator[list[Part]]:
    """Tensors of one type that follow one another without a gap."""
    run: list[Part] = []
    for part in parts:
        if run and (run[-1][2].dtype, run[-1][1] + run[-1][2].nbytes) != (part[2].dtype, part[1]):
            yield run
            run = []
        run.append(part)
    if run:
        yield run

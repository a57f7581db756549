"""All weights of a checkpoint on a GPU, read in pieces that go there as they come.

To read them into memory of the machine first takes new pages for all of them, and to send each by
itself from there takes Python as many calls as there are tensors, and the driver a copy of its own.
Here two pieces of pinned memory take turns: one is read while the other is on its way.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.checkpoints.safetensors_file import SafetensorsSource

PIECE = 32 << 20


def tensors_on(source: SafetensorsSource, device: torch.device) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, each in memory of its own on the device."""
    cuda = device.type == "cuda"
    files = [source.extent(number) for number in range(len(source.files))]
    longest = min(PIECE, max((stop - start for start, stop in files), default=0))
    rooms = [torch.empty(longest, dtype=torch.uint8, pin_memory=cuda) for _ in range(2)]
    leaves: list[torch.cuda.Event | None] = [None, None]
    found: dict[str, Tensor] = {}
    turn = 0
    for number, (start, stop) in enumerate(files):
        whole = torch.empty(stop - start, dtype=torch.uint8, device=device)
        for begin in range(start, stop, PIECE):
            count = min(PIECE, stop - begin)
            left, room = leaves[turn], rooms[turn][:count]
            if left is not None:
                left.synchronize()
            source.read_into(number, begin, room)
            whole[begin - start : begin - start + count].copy_(room, non_blocking=True)
            leaves[turn] = torch.cuda.current_stream(device).record_event() if cuda else None
            turn = 1 - turn
        for name, begin, info in source.within(number):
            # Copied: what begins at any byte of another's memory is not fit for every kernel.
            values = whole[begin - start : begin - start + info.nbytes].clone()
            found[name] = values.view(info.dtype).view(info.shape)
    if cuda:
        torch.cuda.current_stream(device).synchronize()  # whoever asks next may use another stream
    return found

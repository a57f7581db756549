"""Everything random in training follows from a seed and a number, such as that of the step.

So all processes of a training, and a run that was stopped and goes on, draw the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator


def generator_of(seed: int, number: int, salt: int = 0) -> Generator:
    """A generator on the CPU, the same in every process and on every device."""
    return Generator().manual_seed(_word(seed, number, salt))


@contextmanager
def layers_draw_from(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """Inside, dropout and stochastic depth draw what belongs to this step.

    Layers can only draw from torch's global generators. These are lent to the step: seeded for it,
    and afterwards as they were. Of many processes each draws for all (`many/layers.py`).
    """
    own = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=own):
        word = _word(seed, step, "layers:0")
        torch.default_generator.manual_seed(word)
        if own:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(word)
        yield


def _word(*parts: object) -> int:
    text = hashlib.sha256(":".join(map(str, parts)).encode()).digest()
    return int.from_bytes(text[:7], "big")

"""A kernel and the plain operations that it stands for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor


class Kernel:
    """The way to one fused function, `module:name` in this package."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.usable: bool | None = None
        """Not known before its first result was compared."""

    def __call__(self, plain: Callable[[], Tensor], device: torch.device, *inputs: Any) -> Tensor:
        """What the kernel gives for these inputs, or the plain operations where it must not."""
        if device.type != "cuda" or self.usable is False or not _has_triton():
            return plain()
        try:
            with torch.cuda.device(device):
                found = self._function()(*inputs)
        except Exception as problem:  # of whatever kind: a compiler may be missing
            return self._give_up(plain(), f"does not run ({type(problem).__name__}: {problem})")
        if self.usable is None:
            expected = plain()
            if not torch.equal(found, expected):
                return self._give_up(expected, "differs from the plain operations")
            self.usable = True
        return found

    def _give_up(self, result: Tensor, why: str) -> Tensor:
        self.usable = False
        warnings.warn(
            f"the fused kernel {self.place} {why}; corrupting goes on without it, more slowly.",
            stacklevel=3,
        )
        return result

    def _function(self) -> Callable[..., Tensor]:
        module, name = self.place.split(":")
        return getattr(import_module(f"{__package__}.{module}"), name)  # type: ignore[no-any-return]


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None

"""A GPU begins to work beside what a command does meanwhile: importing, reading, decoding.

The driver takes most of a second to start and to make a context, and so do the libraries for
convolutions and products to be loaded. Both wait for nothing but themselves, so threads do it that
die with the process, and whoever needs the GPU first waits for the rest of it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_DRIVER, _CONTROL = "libcuda.so.1", "/dev/nvidiactl"


def has_gpu(device: str) -> bool:
    """Whether a device by name, as `pick_device` takes it, is an NVIDIA GPU that the system has."""
    kind, _, number = device.partition(":")
    known = kind in ("auto", "cuda") and (number.isdecimal() or not number)
    return known and Path(_CONTROL).exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != ""


def wake(device: str) -> threading.Thread | None:
    """Start the driver for a device by name, as `pick_device` takes it; torch is not needed yet.

    The context is the one that torch will use. Without a driver, nothing happens: whoever asks for
    the device will say so.
    """
    return _beside(_wake, int(device.partition(":")[2] or 0)) if has_gpu(device) else None


def _wake(number: int) -> None:
    try:
        driver = ctypes.CDLL(_DRIVER)
        place, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(place), number) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), place)
    except (OSError, AttributeError):
        return


def load_libraries(device: torch.device) -> threading.Thread | None:
    """Load what convolves and multiplies on a GPU, by doing each once, and Triton."""
    if device.type != "cuda":
        return None
    _beside(_know_triton)
    return _beside(_use, device)


def _use(device: torch.device) -> None:
    import torch

    try:
        for dtype in (torch.float32, torch.bfloat16):
            values = torch.ones(1, 8, 8, 8, dtype=dtype, device=device)
            torch.conv2d(values, values)
            torch.mm(values[0, 0], values[0, 0])
    except RuntimeError:
        return  # who needs it will hear


def _know_triton() -> None:
    """Triton hashes all of itself before it looks up the first kernel, and keeps the hash."""
    try:
        from triton.runtime.cache import triton_key

        triton_key()
    except Exception:  # of whatever kind: there may be none, or another one
        return


def _beside(work: Callable[..., None], *given: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=given, name="gpu start", daemon=True)
    thread.start()
    return thread

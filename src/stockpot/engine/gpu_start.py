"""A GPU begins to work beside what a command does meanwhile: importing, reading, decoding.

The driver takes most of a second to start and to make a context, and so do the libraries for
convolutions and products to be loaded. Both wait for nothing but themselves, so threads do it that
die with the process, and whoever needs the GPU first waits for the rest of it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_DRIVER = "libcuda.so.1"


def wake(device: str) -> threading.Thread | None:
    """Start the driver for a device by name, as `pick_device` takes it; torch is not needed yet.

    The context is the one that torch will use. Without a driver, nothing happens: whoever asks for
    the device will say so.
    """
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cuda") or not (number.isdecimal() or not number):
        return None
    return _beside(_wake, int(number or 0))


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

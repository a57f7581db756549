"""A GPU begins to work beside what a command does meanwhile: importing, reading, decoding.

The driver takes up to two seconds to start and to make a context, and the libraries for
convolutions and products take a while to be loaded. Both wait for nothing but themselves, so
threads do it, and whoever needs the GPU first waits for the rest of it.
To take everything apart in the end, piece by piece, would take time as well, and is left to the
system.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import sys
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


_awake = False


def wake(device: str) -> bool:
    """Start the driver for a device by name, as `pick_device` takes it, and import torch meanwhile.

    The context is the one that torch will use. Without a GPU, nothing happens and the answer is no:
    whoever asks for the device will say so.
    """
    global _awake
    if has_gpu(device):
        _awake = True
        _beside(_wake, int(device.partition(":")[2] or 0), waits=False)
        # Files are read without the interpreter lock, so that two who import help each other.
        _beside(importlib.import_module, "torch", waits=False)
    return _awake


def leave(code: object) -> None:
    """End a command that has woken a GPU, with the code of its `SystemExit`; others are left to
    end as they do.
    """
    if _awake and (code is None or isinstance(code, int)):
        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()
        os._exit(code or 0)


def _wake(number: int) -> None:
    try:
        driver = ctypes.CDLL(_DRIVER)
        place, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(place), number) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), place)
    except (OSError, AttributeError):
        return


def load_libraries(device: torch.device) -> None:
    """Load what convolves and multiplies on a GPU, by doing each once, and Triton."""
    if device.type == "cuda":
        _beside(_know_triton)
        _beside(_use, device)


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


def _beside(work: Callable[..., object], *given: object, waits: bool = True) -> None:
    """Work in a thread; `waits` says whether the process may not end before it has.

    One that ended while torch is at work would be aborted.
    """
    threading.Thread(target=work, args=given, name="gpu start", daemon=not waits).start()

"""What a command begins before it is parsed, and how it ends, where it works on a GPU.

The driver takes up to two seconds to start and to make a context, and torch as long to be imported.
Both wait for nothing but themselves, so threads begin with them while the rest is imported; a third
has Triton hash itself, which it does before it looks up the first kernel. To take everything apart
in the end, piece by piece, would take time as well, and is left to the system. Objects that are
imported stay: to look for garbage among them would take a tenth of the time again.
Nothing but the standard library is imported here.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

_DRIVER, _CONTROL = "libcuda.so.1", "/dev/nvidiactl"
_COMMANDS = ("measure",)
_TURN = 0.0002
"""Seconds for which a thread may keep others from running Python. torch lets others in at every
operation, and so does each look at a file: whoever feeds the GPU would wait 5 ms each time while a
model is read beside it."""
_begun = False


def begin(words: Sequence[str]) -> bool:
    """Begin with a command line; says whether there is a GPU on which it will work.

    The context is the one that torch will use. Whoever needs the GPU or torch waits for the rest.
    """
    global _begun
    if words and words[0] in _COMMANDS:
        gc.disable()
    number = gpu_number(words)
    if number is not None and not _begun:
        _begun = True
        sys.setswitchinterval(_TURN)
        threading.Thread(target=_wake, args=(number,), name="driver", daemon=True).start()
        threading.Thread(target=_prepare, args=(number,), name="torch", daemon=True).start()
        threading.Thread(target=_hash_triton, name="triton", daemon=True).start()
    return _begun


def settled() -> None:
    """What a command needs is imported: what is made from now on may be garbage."""
    gc.freeze()
    gc.enable()


def has_begun() -> bool:
    """Whether this is a command that works on a GPU."""
    return _begun


def gpu_number(words: Sequence[str]) -> int | None:
    """Which GPU a command line asks for; none where it asks for none, or there is none."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    if not words or words[0] not in _COMMANDS or "--help" in words or hidden:
        return None
    joined = [part for word in words for part in word.split("=", 1)]
    device = joined[joined.index("--device") + 1 :][:1] if "--device" in joined else ["auto"]
    kind, _, number = (device or ["auto"])[0].partition(":")
    known = kind in ("auto", "cuda") and (number.isdecimal() or not number)
    return int(number or 0) if known and Path(_CONTROL).exists() else None


def _wake(number: int) -> None:
    try:
        driver = ctypes.CDLL(_DRIVER)
        place, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(place), number) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), place)
    except (OSError, AttributeError):
        return  # no driver: whoever asks for the device will say so


def _prepare(number: int) -> None:
    """Import torch, and let it make itself at home on the GPU."""
    torch = importlib.import_module("torch")
    try:
        torch.zeros(1, device=f"cuda:{number}")
    except Exception:  # of whatever kind: whoever asks for the device will say so
        return


def _hash_triton() -> None:
    """Triton reads 400 MB of its own, and keeps what it finds."""
    try:
        importlib.import_module("triton.runtime.cache").triton_key()
    except Exception:  # of whatever kind: there may be none, or another one
        return


def leave(code: object) -> None:
    """End a command that has begun here, with the code of its `SystemExit`; others end as ever."""
    if _begun and (code is None or isinstance(code, int)):
        atexit._run_exitfuncs()  # they may have words too
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)

"""Keep the memory that one look at a model frees, for the next look.

On Linux the C library gives large blocks back to the system as soon as they are freed, and every
page of a new block costs a fault when it is first written. An attack allocates and frees the same
activations thousands of times: there the faults can take a fifth of the time. The setting holds for
a whole process, so a program makes it (the command line and the workers of an engine do), and a
library call never does.
"""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's malloc.h
_LARGEST_BLOCK = 32 << 20  # the most that glibc accepts
_KEPT = 512 << 20


@cache
def keep_freed_memory() -> bool:
    """Let this process keep up to 512 MB that it has freed; says whether the system can do that."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False  # not glibc: other allocators keep memory by themselves
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) and mallopt(_TRIM_THRESHOLD, _KEPT))

"""What of the machine this process may use: cores and memory."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_workers = 1


def usable_cores() -> int:
    """Cores that this process may use; a container or `taskset` often grants fewer than exist."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = min(cores, len(os.sched_getaffinity(0)))
    try:
        quota, period = (_CGROUP / "cpu.max").read_text(encoding="ascii").split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores  # no such file, or "max": no quota


def usable_memory() -> int:
    """Bytes that this process may still take without swapping, as far as the system tells."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        facts = dict(line.split(":") for line in lines)
        free = int(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        free = 4 * 2**30
    try:
        granted = int((_CGROUP / "memory.max").read_text(encoding="ascii"))
        taken = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        free = min(free, max(0, granted - taken))
    except (OSError, ValueError):
        pass  # no such file, or "max": no limit
    return free // _workers


def share_with(workers: int) -> None:
    """Tell this process that so many like it share the memory."""
    global _workers
    _workers = max(1, workers)

"""A command run as a process of its own: its times, and the most memory and files that it held."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

STOCKPOT = [sys.executable, "-m", "stockpot"]
"""The command line as a user has it, of the interpreter that runs the benchmark."""


class Cost(NamedTuple):
    seconds: float
    private_mb: float
    cpu: float = 0.0
    note: str = ""
    files: int = 0
    device_mb: float = 0.0
    """Of a GPU, whoever holds it: what its driver counts, above what it counted before."""

    def spent(self, device: str) -> float:
        """Seconds of the processor, which others share; of the clock where a GPU does the work."""
        return self.cpu if device == "cpu" else self.seconds


def environment() -> dict[str, str]:
    """That of this process, with bytecode kept as on a user's machine.

    Without it importing torch takes three times as long; `stockpot doctor` says so where it is
    switched off.
    """
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def watch(command: list[str], patience: float | None = None, device: str = "cpu") -> Cost:
    """Run a command; its times and the peaks of its private memory (RssAnon) and open files."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    held = _held(device)
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    peak = files = 0
    taken = 0.0

    def look() -> None:
        nonlocal peak, files, taken
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
                files = max(files, len(os.listdir(f"/proc/{process.pid}/fd")))
            except OSError:
                return
            for line in status.splitlines():
                if line.startswith("RssAnon"):
                    peak = max(peak, int(line.split()[1]))
            taken = max(taken, _held(device) - held)
            time.sleep(0.01)

    thread = threading.Thread(target=look)
    thread.start()
    note = ""
    try:
        output, _ = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        note = "stopped, not finished: the ratio is at most this"
    seconds = time.perf_counter() - started
    thread.join()
    if process.returncode and not note:
        raise RuntimeError(f"{' '.join(command[:4])} failed:\n{output[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, peak * 1024 / 1e6, cpu, note, files, taken)


def _held(device: str) -> float:
    if device == "cpu":
        return 0.0
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return (total - free) / 1e6


def now(device: str) -> float:
    """Seconds as `Cost.spent` counts them, of this process, when the device has done its work."""
    if device == "cpu":
        return time.process_time()
    import torch

    torch.cuda.synchronize(device)
    return time.perf_counter()


class Line(NamedTuple):
    """Seconds by size: what comes with every further one, and what comes once."""

    slope: float
    once: float


def line(sizes: tuple[int, int], seconds: tuple[float, float]) -> Line:
    """The line through two points."""
    slope = (seconds[1] - seconds[0]) / (sizes[1] - sizes[0])
    return Line(slope, seconds[0] - slope * sizes[0])


def two(text: str) -> tuple[int, int]:
    """Two sizes in an option: `2,10`."""
    few, many = (int(part) for part in text.split(","))
    if not 0 < few < many:
        raise ValueError(f"expected two rising numbers such as 2,10, got {text}")
    return few, many

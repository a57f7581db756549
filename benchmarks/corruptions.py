"""`stockpot.corrupt`: milliseconds per image, against a copy in memory and a published program.

    python benchmarks/corruptions.py                         # CPU, one thread, with the peer
    python benchmarks/corruptions.py --peer-python PYTHON    # the peer in another environment
    python benchmarks/corruptions.py --device cuda           # microseconds, all severities

The floor is a copy of the same pictures in memory (on a GPU the bandwidth of one), taken in the
same run. The peer is `imagecorruptions`. Its newest code was never released under that name, and
1.1.2, the release, fails on current libraries; `pip install imagecorruptions-imaug` (1.1.5) is a
release of the newest code, with numba, and runs as it is. Where it does not run, the reason is told
and what was recorded of it on another machine. CPU figures are CPU time of one thread, the best of
several runs, so that other load on the machine matters less.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import stockpot
from stockpot.corrupt import BENCHMARK, EXTRA, SEVERITIES

PICTURES = Path(__file__).parents[1] / "tests" / "oracles" / "data" / "corruptions.npz"
BATCH = 16
SEVERITY = 3

# Sums over the fifteen, CPU ms of one core for a picture of 224 px at severity 3: imagecorruptions'
# repository of 2025-05, and 1.1.2 with the libraries of its time.
RECORDED = {"the newest code": 144.3, "1.1.2": 1400.0}

PEER = """
import json, os, sys, time, warnings
warnings.filterwarnings("ignore")
import cv2, numpy as np
from imagecorruptions import corrupt
cv2.setNumThreads(1)
pictures = np.load(sys.argv[1])["images_224"]
pictures = [pictures[row % len(pictures)] for row in range(int(sys.argv[2]))]
best = {}
for name in sys.argv[4].split(","):
    corrupt(pictures[0], corruption_name=name, severity=int(sys.argv[3]))
    times = []
    begin = time.process_time()
    while len(times) < 5 or time.process_time() - begin < 0.5:
        start = time.process_time()
        for picture in pictures:
            corrupt(picture, corruption_name=name, severity=int(sys.argv[3]))
        times.append((time.process_time() - start) / len(pictures) * 1e3)
    best[name] = min(times)
print(json.dumps(best))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, help="images at once, with a GPU (256)")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with the peer")
    given = parser.parse_args()
    if given.device == "cpu" and given.batch:
        parser.error(f"--batch: only with a GPU; a CPU takes {BATCH} images, as its peer does")
    torch.set_num_threads(1)
    if given.device == "cpu":
        on_cpu(given.peer_python)
    else:
        on_gpu(given.device, given.batch or 256)


def pictures(count: int) -> Tensor:
    with np.load(PICTURES) as file:
        images = torch.from_numpy(file["images_224"]).permute(0, 3, 1, 2).contiguous()
    return images.repeat(-(-count // len(images)), 1, 1, 1)[:count]


def on_cpu(peer_python: str) -> None:
    images = pictures(BATCH)
    copied = best_of(images.clone) / BATCH * 1e3
    peer = measured_peer(peer_python)
    print(f"{platform.processor() or platform.machine()}, one thread, torch {torch.__version__}")
    print(f"224 px, batch {BATCH}, severity {SEVERITY}, CPU ms per image; a copy of the pictures "
          f"takes {copied:.4f}\n")  # fmt: skip
    print(f"{'stockpot.corrupt':20s}{'ours':>9s}{'of a copy':>11s}{'peer':>9s}{'peer/ours':>11s}")
    sums = [0.0, 0.0]
    for name in BENCHMARK + EXTRA:
        ours = best_of(lambda name=name: stockpot.corrupt(images, name, SEVERITY)) / BATCH * 1e3
        theirs = peer.get(name)
        print(line(name, ours, copied, theirs), flush=True)
        if name in BENCHMARK:
            sums = [sums[0] + ours, sums[1] + (theirs or 0.0)]
    total = sums[0]
    print(line("sum of the fifteen", total, len(BENCHMARK) * copied, sums[1] or None))
    for version, recorded in RECORDED.items():
        print(f"imagecorruptions, {version}, as recorded elsewhere: {recorded:.0f} ms for these")


def line(name: str, ours: float, copied: float, theirs: float | None) -> str:
    """A row of the table."""
    row = f"{name:20s}{ours:9.3f}{ours / copied:11.1f}"
    if theirs is None:
        return row
    slower = "  slower" if ours > theirs else ""
    return f"{row}{theirs:9.3f}{theirs / ours:11.1f}{slower}"


def measured_peer(python: str) -> dict[str, float]:
    """The peer's milliseconds by name; none, and a line that says why, where it does not run."""
    names = ",".join(BENCHMARK + EXTRA)
    command = [python, "-c", PEER, str(PICTURES), str(BATCH), str(SEVERITY), names]
    environment = {**os.environ, "NUMBA_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no word"])[-1]
        print(f"no peer: {last} ({python}; --peer-python names another)")
        return {}
    found: dict[str, float] = json.loads(result.stdout)
    return found


def best_of(work: Callable[[], object]) -> float:
    work()
    times: list[float] = []
    begin = time.process_time()
    while len(times) < 5 or time.process_time() - begin < 0.5:
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def on_gpu(device: str, batch: int) -> None:
    images = pictures(batch).to(device)
    bandwidth = copy_bandwidth(device)
    moved = 2 * images[0].numel()  # an 8-bit picture read once and written once
    table: dict[str, list[float]] = {}
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, batch {batch}, 224 px")
    print(f"microseconds per image; copy bandwidth measured {bandwidth / 1e12:.2f} TB/s\n")
    columns = "".join(f"{f's{severity}':>8s}" for severity in SEVERITIES)
    print(f"{'corruption':20s}{columns}{'mean':>8s}{'of bandwidth':>14s}{'MB/image':>10s}")
    for name in BENCHMARK + EXTRA:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        table[name] = [
            gpu_seconds(lambda n=name, s=severity: stockpot.corrupt(images, n, s)) / batch * 1e6
            for severity in SEVERITIES
        ]
        held = (torch.cuda.max_memory_allocated() - before) / batch / 1e6
        mean = sum(table[name]) / len(SEVERITIES)
        cells = "".join(f"{value:8.2f}" for value in table[name])
        share = moved / (mean / 1e6) / bandwidth
        print(f"{name:20s}{cells}{mean:8.2f}{share:14.1%}{held:10.1f}")
    grid = [value for name in BENCHMARK for value in table[name]]
    mean = sum(grid) / len(grid)
    print(f"\n15 x 5 grid: {mean:.2f} us per image, {1e6 / mean:,.0f} images per second")


def gpu_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Median of several timings between events, after warming up."""
    for _ in range(2):
        work()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return sorted(times)[len(times) // 2]


def copy_bandwidth(device: str) -> float:
    """Bytes read and written per second when copying a gibibyte."""
    source = torch.empty(2**30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / gpu_seconds(lambda: target.copy_(source))


if __name__ == "__main__":
    main()

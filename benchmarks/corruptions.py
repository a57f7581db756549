"""Milliseconds per corrupted image, beside the fastest published implementation.

    python benchmarks/corruptions.py                         # CPU, one thread, with the peer
    python benchmarks/corruptions.py --peer-python PYTHON    # the peer in another environment
    python benchmarks/corruptions.py --device cuda           # microseconds, all severities

The peer is `imagecorruptions`. Its newest code was never released under that name, and 1.1.2, the
release, fails on current libraries; `pip install imagecorruptions-imaug` (1.1.5) is a release of
the newest code, with numba, and runs as it is. Where it is not installed the table uses times that
were recorded for it (Python 3.11, numpy 2.4, scikit-image 0.26, one core), scaled by how long this
machine takes for the peer's shot noise, which is two numpy calls. CPU figures are CPU time of one
thread, the best of several runs, so that other load on the machine matters less.
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

# imagecorruptions, repository of 2025-05, ms per 224 px image at severity 3.
RECORDED = {
    "gaussian_noise": 4.6,
    "shot_noise": 10.7,
    "impulse_noise": 3.2,
    "defocus_blur": 3.6,
    "glass_blur": 11.1,
    "motion_blur": 5.8,
    "zoom_blur": 59.4,
    "snow": 8.8,
    "frost": 4.9,
    "fog": 3.4,
    "brightness": 15.5,
    "contrast": 1.6,
    "elastic_transform": 11.0,
    "pixelate": 0.3,
    "jpeg_compression": 0.4,
    "speckle_noise": 2.8,
    "gaussian_blur": 2.3,
    "spatter": 4.3,
    "saturate": 16.5,
}
# imagecorruptions 1.1.2 with the libraries of its time: the sum over the fifteen.
RECORDED_OLD_SUM = 1400.0

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
    parser.add_argument("--batch", type=int, default=256, help="images at once on a GPU")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with the peer")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.device == "cpu":
        numbers = on_cpu(arguments.peer_python)
    else:
        numbers = on_gpu(arguments.device, arguments.batch)
    if arguments.json:
        arguments.json.write_text(json.dumps(numbers, indent=1))


def pictures(count: int) -> Tensor:
    with np.load(PICTURES) as file:
        images = torch.from_numpy(file["images_224"]).permute(0, 3, 1, 2).contiguous()
    return images.repeat(-(-count // len(images)), 1, 1, 1)[:count]


def on_cpu(peer_python: str) -> dict[str, float]:
    images = pictures(BATCH)
    ours = {
        name: best_of(lambda name=name: stockpot.corrupt(images, name, SEVERITY)) / BATCH * 1e3
        for name in BENCHMARK + EXTRA
    }
    peer = measured_peer(peer_python)
    if peer:
        source = "imagecorruptions measured in this run"
    else:
        factor = calibration(images)
        peer = {name: ms * factor for name, ms in RECORDED.items()}
        source = f"imagecorruptions as recorded, times {factor:.2f} for this machine"
    print(f"{platform.processor() or platform.machine()}, one thread, torch {torch.__version__}")
    print(f"224 px, batch {BATCH}, severity {SEVERITY}, CPU ms per image; peer: {source}\n")
    print(f"{'corruption':20s}{'ours':>9s}{'peer':>9s}{'peer/ours':>11s}")
    for name in BENCHMARK + EXTRA:
        slower = "  slower" if ours[name] > peer[name] else ""
        print(
            f"{name:20s}{ours[name]:9.3f}{peer[name]:9.3f}{peer[name] / ours[name]:11.1f}{slower}"
        )
    total, peer_total = (sum(table[name] for name in BENCHMARK) for table in (ours, peer))
    print(f"{'sum of the fifteen':20s}{total:9.2f}{peer_total:9.2f}{peer_total / total:11.1f}")
    print(f"against 1.1.2 with old libraries, as recorded: {RECORDED_OLD_SUM / total:.0f} times")
    return ours


def measured_peer(python: str) -> dict[str, float]:
    names = ",".join(BENCHMARK + EXTRA)
    command = [python, "-c", PEER, str(PICTURES), str(BATCH), str(SEVERITY), names]
    environment = {**os.environ, "NUMBA_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return json.loads(result.stdout) if result.returncode == 0 else {}


def calibration(images: Tensor) -> float:
    picture = images[0].permute(1, 2, 0).numpy()
    generator = np.random.RandomState(0)

    def shot_noise() -> None:
        np.clip(generator.poisson(picture / 255.0 * 12) / 12.0, 0, 1) * 255

    return best_of(shot_noise) * 1e3 / RECORDED["shot_noise"]


def best_of(work: Callable[[], object]) -> float:
    work()
    times: list[float] = []
    begin = time.process_time()
    while len(times) < 5 or time.process_time() - begin < 0.5:
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def on_gpu(device: str, batch: int) -> dict[str, object]:
    images = pictures(batch).to(device)
    bandwidth = copy_bandwidth(device)
    moved = 2 * images[0].numel()  # an 8-bit picture read once and written once
    table: dict[str, list[float]] = {}
    memory: dict[str, float] = {}
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
        memory[name] = (torch.cuda.max_memory_allocated() - before) / batch / 1e6
        mean = sum(table[name]) / len(SEVERITIES)
        cells = "".join(f"{value:8.2f}" for value in table[name])
        share = moved / (mean / 1e6) / bandwidth
        print(f"{name:20s}{cells}{mean:8.2f}{share:14.1%}{memory[name]:10.1f}")
    grid = [value for name in BENCHMARK for value in table[name]]
    mean = sum(grid) / len(grid)
    print(f"\n15 x 5 grid: {mean:.2f} us per image, {1e6 / mean:,.0f} images per second")
    return {"microseconds": table, "megabytes": memory, "images_per_second": 1e6 / mean}


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

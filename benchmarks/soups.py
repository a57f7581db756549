"""The soup evaluator against bare forward passes, and racing against the whole grid.

    python benchmarks/soups.py                       # zoo members; a sample of the 480 soups
    python benchmarks/soups.py --full                # all 480, and racing over 20 draws
    python benchmarks/soups.py --family vit-b16 --device cuda --full --bf16

The time of our soups and of as many bare forward passes of one model, on the same batches, is
taken in turns, so that both meet the same machine. Forming a soup, predictions and losses are ours
to pay. `--tf32` lets a GPU multiply in TF32, `--bf16` in bfloat16, on both sides; with `--bare 4`
bare passes are timed beside every fourth group of soups and counted four times. Racing chooses on
half of the images and is scored on the other half, as is the grid.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.load import load_dataset
from stockpot.models.classifier import Classifier
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.pool.family import read_pool
from stockpot.pool.pool import Pool
from stockpot.season.evaluate import evaluate
from stockpot.season.grids import affine_grid
from stockpot.season.matrix import Matrix
from stockpot.season.methods.racing import race
from stockpot.season.shots import Shots, read_shots
from stockpot.types import ImageSize

ZOO = ["icons-vit-plain", "icons-vit-colour", "icons-vit-cutmix", "icons-vit"]


def vit_b16(n: int) -> tuple[list, Dataset]:
    """Untrained members of ViT-B/16's size near each other: for time, not for accuracy."""
    side, names = ImageSize(224, 224), tuple(f"class {index}" for index in range(1000))
    first = new_huggingface("vit", classes=names, preprocess=Preprocess(side, side), seed=0)
    members: list = [first]
    for seed in (1, 2, 3):
        generator = torch.Generator().manual_seed(seed)
        members.append(
            {
                name: tensor + 0.02 * torch.randn(tensor.shape, generator=generator)
                for name, tensor in first.state_dict().items()
            }
        )
    generator = torch.Generator().manual_seed(9)
    pixels = torch.randint(0, 256, (n, 3, 224, 224), generator=generator).to(torch.uint8)
    labels = torch.randint(0, 1000, (n,), generator=generator)
    fingerprint = pixel_fingerprint(pixels, labels, names)
    return members, Dataset("noise", "test", TensorImages(pixels), labels, names, fingerprint)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def bare(model: Classifier, shots: Shots, times: int) -> None:
    with torch.inference_mode():
        for _ in range(times):
            for batch in shots.batches:
                model(batch)


def timed(
    pool: Pool, soups: torch.Tensor, shots: Shots, turn: int, every: int, until: float
) -> tuple[Matrix, float, float]:
    """All soups, and as many bare passes; what was reached where time runs out."""
    parts, ours, floor, passes, done = [], 0.0, 0.0, 0, 0
    evaluate(pool, soups[:1], shots)
    for number, chunk in enumerate(soups.split(turn)):
        if time.perf_counter() > until:
            break
        if number % every == 0:
            floor += seconds(lambda c=chunk: bare(pool.model, shots, len(c)), pool.device)
            passes += len(chunk)
        ours += seconds(lambda c=chunk: parts.append(evaluate(pool, c, shots)), pool.device)
        done += len(chunk)
        if number % 24 == 23:
            print(f"  {done} soups: ratio {ours / (floor / passes * done):.3f}", flush=True)
    joined = [
        np.concatenate([getattr(p, f) for p in parts]) for f in ("weights", "correct", "loss")
    ]
    return Matrix(*joined), ours, floor / passes * done


def raced(matrix: Matrix, draws: int) -> None:
    gaps, shares = [], []
    n = matrix.correct.shape[1]
    for seed in range(draws):
        order = np.random.default_rng(seed).permutation(n)
        seen, held_out = order[: n // 2], order[n // 2 :]

        def judge(alive: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            cells = np.ix_(alive, rows)
            return matrix.correct[cells].sum(axis=1), matrix.loss[cells].sum(axis=1)

        result = race(matrix.weights, seen, judge, first=0.03, keep=0.25)
        score = matrix.correct[:, held_out].mean(axis=1)
        gaps.append(100 * (score[matrix.best(seen)] - score[result.winner]))
        shares.append(100 * result.images / (len(matrix.weights) * len(seen)))
    print(
        f"racing, {draws} draws, {n // 2} images to choose on: {np.mean(shares):.1f} % of the "
        f"grid's cost; held-out gap to the grid's choice {np.mean(gaps):+.2f} points "
        f"(sd {np.std(gaps):.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", choices=["zoo", "vit-b16"], default="zoo")
    parser.add_argument("--images", type=int, default=0, help="0: 1000 with --full, else 128")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--full", action="store_true", help="all 480 soups, and racing")
    parser.add_argument("--every", type=int, default=1, help="with --full: every so-many-th soup")
    parser.add_argument("--tf32", action="store_true", help="single precision by TF32 on a GPU")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 where the device can")
    parser.add_argument("--bare", type=int, default=1, help="bare passes beside every so-many-th")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop, with what there is")
    options = parser.parse_args()
    until = time.perf_counter() + options.seconds
    if options.tf32:
        torch.set_float32_matmul_precision("high")
    n, device = options.images or (1000 if options.full else 128), torch.device(options.device)
    members, data = (ZOO, load_dataset("icons", limit=n)) if options.family == "zoo" else vit_b16(n)
    pool = read_pool(members, device)
    shots = read_shots(data, pool.model, device=device, batch_size=options.batch_size)
    grid = affine_grid(4, low=-0.4, high=1.4, step=0.2)
    soups = grid[:: options.every] if options.full else grid[::40]
    with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
        matrix, ours, floor = timed(pool, soups, shots, 4, options.bare, until)
    print(
        f"{options.family}, {device}: {len(matrix.weights)} of {len(grid)} soups x "
        f"{len(shots)} images: ours {ours:.1f} s, bare forward passes {floor:.1f} s, "
        f"ratio {ours / floor:.2f} (target 1.3)"
    )
    if options.full and options.every == 1 and options.family == "zoo":
        accuracy = 100 * matrix.accuracy()
        alone = [
            100 * matrix.correct[(matrix.weights == row).all(axis=1)].mean() for row in np.eye(4)
        ]
        print(f"best soup {accuracy.max():.1f} %, best member {max(alone):.1f} %")
        raced(matrix, draws=20)


if __name__ == "__main__":
    main()

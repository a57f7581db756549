"""How many predictions change with the precision of forward passes, and what it saves.

    python benchmarks/precision.py                         # CPU: full precision and bf16
    python benchmarks/precision.py --device cuda --compile # all of them

For one model of each architecture in the zoo: 10,000 pictures (icons as they are, then corrupted in
turn by the fifteen corruptions, where answers are near to one another) go through the passes that
every measure uses, in each precision, and are compared with the plain module in full precision.

The rule, which is older than the numbers: `auto` is the fastest precision for which, in every
architecture, at most one prediction in 200 changes (by the upper end of a 95 % Wilson interval) and
right answers are gained as often as lost (an exact sign test, 5 % divided by the number of models).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import product

import torch
from scipy.stats import binomtest
from torch import Tensor

from stockpot.corrupt import BENCHMARK
from stockpot.corrupt.apply import corrupt
from stockpot.datasets.dataset import TensorImages
from stockpot.datasets.load import load_dataset
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.forward.options import Forward
from stockpot.models.forward.passes import Passes
from stockpot.models.load import load_for
from stockpot.results.statistics import wilson
from stockpot.score.predictions import predictions
from stockpot.score.scorer import scorer_for
from stockpot.types import Precision

MODELS = ("icons-nominal", "icons-resnet", "icons-convnext", "icons-vit", "clip-base")
MOST = 1 / 200


def pictures(count: int) -> tuple[Tensor, Tensor]:
    """So many icons and their rows in the dataset: first as they are, then corrupted."""
    data = load_dataset("icons", split="test")
    assert isinstance(data.images, TensorImages)
    parts, rows = [data.images.pixels], [torch.arange(len(data))]
    for severity, name in product((3, 1, 5, 2, 4), BENCHMARK):
        if sum(map(len, parts)) >= count:
            break
        parts.append(corrupt(data.images.pixels, name, severity, seed=0))
        rows.append(rows[0])
    return torch.cat(parts)[:count], torch.cat(rows)[:count]


def answers(run: Callable[[Tensor], Tensor], images: Tensor, size: int) -> tuple[Tensor, float]:
    """Logits of all images, and images per second after the first batch."""
    parts = [run(images[:size])]
    _wait(images)
    start = time.perf_counter()
    parts += [run(part) for part in torch.split(images[size:], size)]
    _wait(images)
    seconds = time.perf_counter() - start
    return torch.cat(parts), (len(images) - size) / seconds


def _wait(images: Tensor) -> None:
    if images.is_cuda:
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precisions", default="fp32,tf32,bf16")
    parser.add_argument("--compile", action="store_true", help="compiled passes too")
    options = parser.parse_args()
    data = load_dataset("icons", split="test")
    plain_images, rows = pictures(options.images)
    images = plain_images.to(options.device)
    names = options.models.split(",")
    known: list[Precision] = ["fp32", "tf32", "bf16"]
    ways = [Forward(precision) for precision in known if precision in options.precisions]
    if not options.device.startswith("cuda"):
        ways = [way for way in ways if way.precision != "tf32"]
    if options.compile:
        ways += [Forward(way.precision, compile=True) for way in ways]
    print(
        f"{len(images):,} pictures on {options.device}, batch {options.batch}, "
        f"torch {torch.__version__}"
    )
    columns = f"changed  [95 % of all]  {'lost':>6s} {'gained':>6s}  images/s  of plain"
    print(f"{'model':15s} {'passes':36s} {columns}")
    kept: dict[Forward, bool] = dict.fromkeys(ways, True)
    for name in names:
        model = load_for(name, data, device=options.device, keep=True).eval()
        scorer = scorer_for(model.classes, data)
        with evaluating(model):
            meant, speed = answers(_plain(model), images, options.batch)
            told = predictions(meant)
            right = scorer.correct(meant, rows)
            print(f"{name:15s} {'the module in full precision':36s} {'':39s} {speed:9,.0f}")
            for way in ways:
                run = Passes(model, way, options.batch)
                found, fast = answers(run, images, options.batch)
                changed = int((predictions(found) != told).sum())
                now = scorer.correct(found, rows)
                lost, gained = int((right & ~now).sum()), int((~right & now).sum())
                low, high, _ = wilson(changed, len(images))
                even = binomtest(lost, lost + gained).pvalue if lost + gained else 1.0
                kept[way] &= high <= MOST and even >= 0.05 / len(names)
                shares = f"[{100 * low:.2f}, {100 * high:.2f}] %"
                line = f"{name:15s} {run.facts!s:36s} {changed:7d}  {shares}"
                line += f" {lost:6d} {gained:6d} {fast:9,.0f} {fast / speed:9.2f}"
                print(line, flush=True)
                for note in run.notes:
                    print(f"  note: {note}")
    for way, holds in kept.items():
        print(f"{way!s:16s} {'keeps' if holds else 'breaks'} the rule")


def _plain(model: Classifier) -> Callable[[Tensor], Tensor]:
    from stockpot.models.forward.arithmetic import products

    def run(images: Tensor) -> Tensor:
        with products(tf32=False):
            return model(images).float()

    return run


if __name__ == "__main__":
    main()

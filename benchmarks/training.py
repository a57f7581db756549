"""`stockpot.harden` on a GPU: a step recorded as one CUDA graph, and launched kernel by kernel.

    python benchmarks/training.py --device cuda                       # nominal and adversarial
    python benchmarks/training.py --device cuda --method max --width 64

The public function trains a small ResNet on random pictures of 32 px. Milliseconds of a step are
those of the fastest epoch after the first, in which libraries choose their kernels and the step is
recorded. For the second column recording is switched off, and nothing else. On a CPU nothing is
recorded.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from unittest.mock import patch

import torch

import stockpot
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.engine import pick_device
from stockpot.models.classifier import Classifier
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

CLASSES = tuple(f"class{number}" for number in range(10))


def pictures(count: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return Dataset("noise", "train", TensorImages(pixels), torch.arange(count) % 10, CLASSES, "n")


def network(width: int) -> Classifier:
    side = ImageSize(32, 32)
    return new_huggingface(
        "small_resnet", classes=CLASSES, preprocess=Preprocess(side, side), seed=0,
        embedding_size=width, hidden_sizes=[width, 2 * width, 4 * width, 8 * width],
        depths=[2, 2, 2, 2], layer_type="basic",
    )  # fmt: skip


def step(method: str, options: argparse.Namespace, data: Dataset) -> float:
    """Milliseconds of one step, in the fastest of all epochs but the first."""
    model = network(options.width).to(pick_device(options.device))
    ends = [time.perf_counter()]
    stockpot.harden(
        method, model, data, epochs=1 + options.epochs, batch_size=options.batch, optimizer="sgd",
        lr=0.01, precision=options.precision, report=lambda *_: ends.append(time.perf_counter()),
    )  # fmt: skip
    each = [later - sooner for sooner, later in pairwise(ends)]
    return 1000 * min(each[1:]) / options.steps


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--method", action="append", help="of hardening; can be repeated")
    parser.add_argument("--width", type=int, default=16, help="64 is a ResNet-18")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=24, help="of an epoch")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--precision", default="bf16")
    options = parser.parse_args()
    data = pictures(options.steps * options.batch)
    print(f"width {options.width}, batch {options.batch}, {options.precision}, {options.device}")
    for method in options.method or ["nominal", "adversarial"]:
        recorded = step(method, options, data)
        with patch("stockpot.harden.slopes._WORTH", 10**9):
            launched = step(method, options, data)
        print(f"{method:12s} launched {launched:7.2f} ms a step, recorded {recorded:7.2f}, "
              f"ratio {recorded / launched:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()

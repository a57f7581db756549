"""`stockpot.harden` on a GPU: a step recorded as one CUDA graph, and launched kernel by kernel.

    python benchmarks/training.py --device cuda                       # nominal and adversarial
    python benchmarks/training.py --device cuda --method max --width 64

The public function trains a small ResNet on random pictures of 32 px for a few epochs and for more;
milliseconds of a step are the slope between the two, so that start and recording are not in them.
What records is switched off for the second column, and nothing else. On a CPU nothing is recorded.
"""

from __future__ import annotations

import argparse
import time
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


def seconds(method: str, options: argparse.Namespace, data: Dataset, epochs: int) -> float:
    """Of the whole call."""
    model = network(options.width).to(pick_device(options.device))
    start = time.perf_counter()
    stockpot.harden(
        method, model, data, epochs=epochs, batch_size=options.batch, optimizer="sgd", lr=0.01,
        precision=options.precision,
    )  # fmt: skip
    return time.perf_counter() - start


def step(method: str, options: argparse.Namespace, data: Dataset) -> float:
    """Milliseconds of one step."""
    few, more = 2, 2 + options.epochs
    seconds(method, options, data, few)  # libraries choose their kernels
    taken = seconds(method, options, data, more) - seconds(method, options, data, few)
    return 1000 * taken / (options.epochs * options.steps)


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

"""`stockpot.harden`: milliseconds of a step, against a bare step of the same network.

    python benchmarks/training.py                                     # on a CPU, a minute
    python benchmarks/training.py --device cuda                       # nominal and adversarial
    python benchmarks/training.py --device cuda --method max --width 64

The public function trains a small ResNet on random pictures of 32 px. Milliseconds of a step are
those of the fastest epoch after the first, in which libraries choose their kernels and a GPU
records the step as one CUDA graph; a CPU records nothing. The floor is a bare step in the same run:
forward, backward and SGD on a batch that is on the device already, in the same arithmetic, launched
kernel by kernel. `adversarial` and `max` search before each step, ten passes forward and backward
for each norm, so their floor is as many bare passes and one bare step; a search on a folded copy
may be faster. Seconds are of the processor on a CPU, of the clock on a GPU.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

import stockpot
from parts.stages import print_each, recorded_stages
from parts.watched import now
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.models.classifier import Classifier
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

CLASSES = tuple(f"class{number}" for number in range(10))
SEARCH = 10
"""Steps of a search."""
SEARCHES = {"nominal": 0, "adversarial": 1, "max": 3}
"""How many searches a step has: `max` has one for each norm."""
USUAL = {"cpu": (32, 3, 2, "fp32"), "": (512, 24, 4, "bf16")}
"""Batch, steps of an epoch, epochs after the first and precision; the second is of a GPU."""


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


def step(method: str, given: argparse.Namespace, data: Dataset) -> tuple[float, dict[str, float]]:
    """Milliseconds of one step, in the fastest of all epochs but the first; stages of them all."""
    search = {"steps": SEARCH} if SEARCHES[method] else {}
    ends = [now(given.device)]
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "trained"
        stockpot.harden(
            method, network(given.width), data, epochs=1 + given.epochs, batch_size=given.batch,
            optimizer="sgd", lr=0.01, precision=given.precision, device=given.device, out=out,
            report=lambda *_: ends.append(now(given.device)), **search,
        )  # fmt: skip
        stages = recorded_stages(out)
    each = [later - sooner for sooner, later in pairwise(ends)]
    return 1000 * min(each[1:]) / given.steps, stages


def bare(given: argparse.Namespace, data: Dataset) -> tuple[float, float]:
    """Milliseconds of a step and of a search's pass, with nothing around them."""
    model = network(given.width).to(given.device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batch = next(iter(data.batches(given.batch)))
    pixels = batch.images.to(given.device).float() / 255
    labels = batch.labels.to(given.device)
    low = given.precision == "bf16"

    def loss(seen: torch.Tensor) -> torch.Tensor:
        with torch.autocast(torch.device(given.device).type, torch.bfloat16, enabled=low):
            return nn.functional.cross_entropy(model(seen).float(), labels)

    def whole() -> None:
        optimizer.zero_grad()
        loss(pixels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def looking() -> None:
        seen = pixels.clone().requires_grad_()
        torch.autograd.grad(loss(seen), seen)

    def least(work: Callable[[], None]) -> float:
        taken = []
        for _ in range(max(3, given.steps)):
            begin = now(given.device)
            work()
            taken.append(now(given.device) - begin)
        return 1000 * min(taken)

    found = least(whole)
    model.eval()  # a search looks at the network as it answers
    return found, least(looking)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--method", action="append", choices=SEARCHES, help="can be repeated")
    parser.add_argument("--width", type=int, default=16, help="64 is a ResNet-18")
    parser.add_argument("--batch", type=int, help="32, on a GPU 512")
    parser.add_argument("--steps", type=int, help="of an epoch; 3, on a GPU 24")
    parser.add_argument("--epochs", type=int, help="after the first; 2, on a GPU 4")
    parser.add_argument("--precision", help="fp32, on a GPU bf16")
    given = parser.parse_args()
    usual = USUAL["cpu" if given.device == "cpu" else ""]
    for name, value in zip(("batch", "steps", "epochs", "precision"), usual, strict=True):
        if getattr(given, name) is None:
            setattr(given, name, value)
    data = pictures(given.steps * given.batch)
    noted = ", nothing is recorded" if given.device == "cpu" else ""
    print(f"width {given.width}, batch {given.batch}, {given.precision}, {given.device}, "
          f"torch {torch.__version__}, {torch.get_num_threads()} threads{noted}")  # fmt: skip
    for method in given.method or ["nominal", "adversarial"]:
        before = bare(given, data)
        ours, stages = step(method, given, data)
        one, look = map(min, before, bare(given, data))
        looks = SEARCH * SEARCHES[method]
        floor, told = one + looks * look, f"a bare step {one:.2f}"
        told += f" and {looks} bare passes of {look:.2f}" if looks else ""
        print(f"stockpot.harden {method:12s} {ours:8.2f} ms a step, {told}: "
              f"{ours / floor:.2f} of the floor", flush=True)  # fmt: skip
        steps = given.steps * (1 + given.epochs)
        print_each(stages, steps * floor / 1000, f"floor of all {steps} steps")


if __name__ == "__main__":
    main()

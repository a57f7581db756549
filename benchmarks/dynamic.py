"""`stockpot measure --with dynamic`: a whole run against the networks' arithmetic, and batches.

    python benchmarks/dynamic.py                            # 32 and 128 images, budget 10
    python benchmarks/dynamic.py --device cuda --model resnet-18 --images 2000,10000 --budget 50 \
        --batch 2000 --precision bf16

The first part runs the command as a process of its own, start included, with two numbers of images:
the slope is what an image costs, the rest comes once. The larger run shows the stages that its
result tells (`attack` is the search). The floor is what the networks cost on as many candidates as
were looked at: generator and model forward and backward, the oracle forward, in one batch, taken
before and after; the lesser counts. The second part calls `stockpot.measure` with batches of one
image and of many, without an oracle, so that every image spends its whole budget; again the slope
over two numbers of images is what an image costs. Its floor is the same arithmetic. A CPU is
timed by the seconds of its processor, a GPU by the clock.

The model is the zoo's small one for CIFAR-10; `resnet-18` is a new one of 11 M weights, against
which every image is searched for as long as the oracle allows. The oracle is the zoo's expert for
the data. Where CIFAR-10 is not at hand, icons and their ResNet take its place.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import stockpot
from parts.synthetic_pool import new_resnet_18
from parts.watched import line, now, two, watch
from stockpot.dynamic.generators import generators
from stockpot.dynamic.grid import on_its_grid
from stockpot.dynamic.oracles.networks import expert_for
from stockpot.errors import UserError
from stockpot.models.forward.folding import folded
from stockpot.types import ImageSize

ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="cifar10-nominal", help="or resnet-18, for a new one")
    parser.add_argument("--images", type=two, default="32,128", help="two numbers")
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--generators", default="vqgan,colour,frequency,warp", help="in batches")
    parser.add_argument("--alone", type=int, default=16, help="images searched one by one")
    parser.add_argument("--parts", default="whole,batches")
    given = parser.parse_args()
    given.data = "cifar10"
    try:
        stockpot.load_dataset(given.data)
    except UserError as problem:
        print(f"icons and their ResNet instead of CIFAR-10: {problem}")
        given.data, given.model = "icons", "icons-resnet"
    print(f"{given.model} on {given.data}, budget {given.budget}, {given.precision}, "
          f"{given.device}, torch {torch.__version__}, {torch.get_num_threads()} threads, seconds "
          f"of the {'processor' if given.device == 'cpu' else 'clock'}", flush=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        if given.model == "resnet-18":
            given.model = str(new_resnet_18(Path(name) / "resnet-18"))
        if "whole" in given.parts:
            whole(given, Path(name) / "run")
        if "batches" in given.parts:
            batches(given)


def whole(given: argparse.Namespace, out: Path) -> None:
    """The command from start to end, its stages, and the floor of its candidates."""
    command = [sys.executable, "-m", "stockpot", "measure", given.model, "--data", given.data,
               "--with", "dynamic", "--device", given.device, "--batch-size", str(given.batch),
               "-p", f"budget={given.budget}", "-p", f"precision={given.precision}"]  # fmt: skip
    bare = arithmetic(given, "vqgan", min(given.batch, given.images[0]))
    before = bare()
    costs, results = [], []
    for images in given.images:
        place = out / str(images)
        costs.append(
            watch([*command, "--limit", str(images), "-o", str(place)], None, given.device)
        )
        text = next((place / "results").glob("*.json")).read_text(encoding="utf-8")
        results.append(json.loads(text))
    least = {name: min(one, before[name]) for name, one in bare().items()}
    # Beside the search, the model sees each image as it is and the one that is returned.
    few, many = (
        result["cost"]["images"] - 2 * images
        for result, images in zip(results, given.images, strict=True)
    )
    spent = [cost.spent(given.device) for cost in costs]
    slope, once = line(given.images, (spent[0], spent[1]))
    floor = sum(least.values())
    each = floor * (many - few) / (given.images[1] - given.images[0])
    scores = {score["metric"]: score["value"] for score in results[1]["scores"]}
    print(f"stockpot measure --with dynamic: {given.images[1]} images in {spent[1]:.1f} s "
          f"({costs[1].seconds:.1f} s of the clock), {costs[1].private_mb:.0f} MB private, "
          f"{costs[1].device_mb:.0f} MB of the device, {many:,} candidates, validation rate "
          f"{scores['validation_rate']:.2f}; floor {many * floor:.1f} s, ratio "
          f"{spent[1] / (many * floor):.2f}")  # fmt: skip
    print(f"  an image {1000 * slope:.1f} ms, floor {1000 * each:.1f} ms, ratio "
          f"{slope / each:.2f}; once {once:.1f} s")  # fmt: skip
    print("  floor: " + ", ".join(f"{name} {one / floor:.0%}" for name, one in least.items()))
    stages = results[1]["cost"]["stages"]
    shares = ", ".join(f"{name} {seconds:.1f} s ({seconds / sum(stages.values()):.0%})"
                       for name, seconds in stages.items())  # fmt: skip
    print(f"  stages by the clock: {shares}", flush=True)


def batches(given: argparse.Namespace) -> None:
    """The same images one at a time and in a batch, nothing refused."""
    data = stockpot.load_dataset(given.data)
    for name in given.generators.split(","):
        asked = {"generator": name, "oracle": "none", "budget": given.budget,
                 "precision": given.precision}  # fmt: skip

        def taken(size: int, count: int, asked: dict[str, Any] = asked) -> float:
            begin = now(given.device)
            stockpot.measure(given.model, {"dynamic": asked}, data=data.limited(count),
                             batch_size=size, device=given.device)  # fmt: skip
            return now(given.device) - begin

        spent = {}
        for size, few in ((1, given.alone), (given.batch, given.batch)):
            taken(size, 1)  # what the process needs once
            spent[size] = line((few, 2 * few), (taken(size, few), taken(size, 2 * few))).slope
        least = sum(arithmetic(given, name, given.batch, oracle=False)().values()) * given.budget
        print(f"stockpot.measure, {name}: {1000 * spent[given.batch]:.2f} ms/image in batches of "
              f"{given.batch}, {1000 * spent[1]:.2f} ms one at a time: "
              f"{spent[1] / spent[given.batch]:.1f} times; floor {1000 * least:.2f} ms/image: "
              f"ratio {spent[given.batch] / least:.2f}", flush=True)  # fmt: skip


def arithmetic(
    given: argparse.Namespace, generator: str, size: int, *, oracle: bool = True
) -> Callable[[], dict[str, float]]:
    """Takes the seconds of each network for one candidate of one image, in a batch."""
    data = stockpot.load_dataset(given.data).limited(size)
    model = stockpot.load_model(given.model).to(given.device).eval().requires_grad_(False)
    images = next(iter(data.batches(size, model.preprocess.fit))).images.to(given.device) / 255
    labels = data.labels.to(given.device)
    network = folded(model, images)  # as the measure has it
    maker = generators.get(generator)().to(torch.device(given.device))
    maker = on_its_grid(maker, ImageSize(*images.shape[-2:]))
    with torch.no_grad():
        latents, context = maker.encode(images, torch.arange(size, device=given.device))
    latents = latents.float().requires_grad_(True)
    pixels = images.clone().requires_grad_(True)

    def cast(*, suits: bool) -> torch.autocast:
        half = suits and given.precision == "bf16"
        return torch.autocast(given.device.partition(":")[0], torch.bfloat16, enabled=half)

    def make() -> None:
        with cast(suits=maker.half):
            made: Tensor = maker.decode(latents, context).float()
        torch.autograd.grad(made, latents, images)

    def look() -> None:
        with cast(suits=True):
            loss = F.cross_entropy(network(pixels).float(), labels)
        torch.autograd.grad(loss, pixels)

    parts: dict[str, Callable[[], Any]] = {"generator": make, "model": look}
    if oracle:
        expert = stockpot.load_model(expert_for(given.data), classes=data.classes)
        judge = expert.to(given.device).eval()
        parts["oracle"] = torch.no_grad()(lambda: judge(images))

    def taken() -> dict[str, float]:
        return {name: _least(part, given.device) / size for name, part in parts.items()}

    return taken


def _least(part: Callable[[], Any], device: str) -> float:
    part()
    found = []
    for _ in range(ROUNDS):
        begin = now(device)
        part()
        found.append(now(device) - begin)
    return min(found)


if __name__ == "__main__":
    main()

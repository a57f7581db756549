"""`stockpot measure --with dynamic`: a whole run against the networks' arithmetic, and batches.

    python benchmarks/dynamic.py                            # 16 and 64 images, budget 5
    python benchmarks/dynamic.py --device cuda --model resnet-18 --images 2000,10000 --budget 50 \
        --batch 2000 --precision bf16

The first part, `whole`, runs the command as a process of its own, start included, with two numbers
of images: the slope is what an image costs, the rest comes once. The larger run shows the stages
that its result tells (`attack` is the search). The floor is what the networks cost on as many
candidates as were looked at: generator and model forward and backward, the oracle forward, in one
batch, taken before and after; the lesser counts. The second part, `batches`, calls
`stockpot.measure` with batches of one image and of many, without an oracle, so that every image
spends its whole budget; again the slope over two numbers of images is what an image costs. Its
floor is the same arithmetic, and the stages are those of the largest batches. A CPU is timed by the
seconds of its processor, and with one thread unless OMP_NUM_THREADS says otherwise, as threads that
wait for each other spend them too; a GPU by the clock. Stages are by the clock.

The model is the zoo's small one for CIFAR-10; `resnet-18` is a new one of 11 M weights, against
which every image is searched for as long as the oracle allows. The oracle is the zoo's expert for
the data. Where CIFAR-10 is not at hand, icons and their ResNet take its place, unless another model
was asked for.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import stockpot
from parts.bare import Seconds, least, timed
from parts.stages import print_stages, read_results
from parts.synthetic_pool import new_resnet_18
from parts.watched import STOCKPOT, line, two, watch
from stockpot.dynamic.generators import generators
from stockpot.dynamic.grid import on_its_grid
from stockpot.dynamic.oracles.networks import expert_for
from stockpot.errors import UserError
from stockpot.models.forward.folding import folded
from stockpot.results.schema import CellResult
from stockpot.types import ImageSize

PARTS = {
    "whole": {"images": (16, 64)},
    "batches": {"generators": "vqgan,colour,frequency,warp", "alone": 8},
}
"""The parts, and what is taken for the options that are theirs alone."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", help="of CIFAR-10, by default cifar10-nominal; resnet-18: a new "
                                        "one")  # fmt: skip
    parser.add_argument("--budget", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--images", type=two, help="two numbers, of the part whole; by default "
                                                   "16,64")  # fmt: skip
    parser.add_argument("--generators", help="of the part batches; by default all four")
    parser.add_argument("--alone", type=int, help="images searched one by one, of the part batches;"
                                                  " by default 8")  # fmt: skip
    given = parser.parse_args()
    parts = given.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts: expected {' or '.join(PARTS)}, got {', '.join(unknown)}")
    for part, usual in PARTS.items():
        for name, value in usual.items():
            if part not in parts and getattr(given, name) is not None:
                parser.error(f"--{name} is of the part {part}, which is not among --parts")
            if getattr(given, name) is None:
                setattr(given, name, value)
    given.data = at_hand(given.model)
    given.model = given.model or {"cifar10": "cifar10-nominal"}.get(given.data, "icons-resnet")
    print(f"{given.model} on {given.data}, budget {given.budget}, {given.precision}, "
          f"{given.device}, torch {torch.__version__}, {torch.get_num_threads()} threads, seconds "
          f"of the {'processor' if given.device == 'cpu' else 'clock'}", flush=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        if given.model == "resnet-18":
            given.model = str(new_resnet_18(Path(name) / "resnet-18"))
        if "whole" in parts:
            whole(given, Path(name) / "run")
        if "batches" in parts:
            batches(given)


def at_hand(model: str | None) -> str:
    """CIFAR-10, or icons where it is not there and no model was asked for that knows its classes.

    Raises:
        UserError: it is not there.
    """
    try:
        stockpot.load_dataset("cifar10")
    except UserError as problem:
        if model:
            raise
        print(f"icons and their ResNet instead of CIFAR-10: {problem}")
        return "icons"
    return "cifar10"


def whole(given: argparse.Namespace, out: Path) -> None:
    """The command from start to end, its stages, and the floor of its candidates."""
    command = [*STOCKPOT, "measure", given.model, "--data", given.data,
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
        results += read_results(place)
    floors = {name: min(one, before[name]) for name, one in bare().items()}
    # Beside the search, the model sees each image as it is and the one that is returned.
    few, many = (
        result.cost.images - 2 * images
        for result, images in zip(results, given.images, strict=True)
    )
    spent = [cost.spent(given.device) for cost in costs]
    slope, once = line(given.images, (spent[0], spent[1]))
    floor = sum(one.spent for one in floors.values())
    each = floor * (many - few) / (given.images[1] - given.images[0])
    print(f"stockpot measure --with dynamic: {given.images[1]} images in {spent[1]:.1f} s "
          f"({costs[1].seconds:.1f} s of the clock), {costs[1].private_mb:.0f} MB private, "
          f"{costs[1].device_mb:.0f} MB of the device, {many:,} candidates, validation rate "
          f"{results[1].score('validation_rate').value:.2f}; floor {many * floor:.1f} s, ratio "
          f"{spent[1] / (many * floor):.2f}")  # fmt: skip
    print(f"  an image {1000 * slope:.1f} ms, floor {1000 * each:.1f} ms, ratio "
          f"{slope / each:.2f}; once {once:.1f} s")  # fmt: skip
    shares = ", ".join(f"{name} {one.spent / floor:.0%}" for name, one in floors.items())
    print(f"  floor: {shares}; stages of the command:")
    print_stages(results[1:], many * sum(one.clock for one in floors.values()), "floor")


def batches(given: argparse.Namespace) -> None:
    """The same images one at a time and in a batch, nothing refused."""
    data = stockpot.load_dataset(given.data)
    for name in given.generators.split(","):
        asked = {"generator": name, "oracle": "none", "budget": given.budget,
                 "precision": given.precision}  # fmt: skip

        def taken(
            size: int, count: int, asked: dict[str, Any] = asked
        ) -> tuple[Seconds, list[CellResult]]:
            run = partial(
                stockpot.measure, given.model, {"dynamic": asked}, data=data.limited(count),
                batch_size=size, device=given.device,
            )  # fmt: skip
            # The first time takes what the process needs once.
            return min(
                (timed(run, given.device) for _ in range(2)), key=lambda found: found[0].spent
            )

        spent, results = {}, []
        for size, few in ((1, given.alone), (given.batch, given.batch)):
            short, _ = taken(size, few)
            long, results = taken(size, 2 * few)
            spent[size] = line((few, 2 * few), (short.spent, long.spent)).slope
        parts = arithmetic(given, name, given.batch, oracle=False)().values()
        floor = Seconds(*map(sum, zip(*parts, strict=True))).times(given.budget)
        many, one = 1000 * spent[given.batch], 1000 * spent[1]
        bare = 1000 * floor.spent
        print(f"stockpot.measure, {name}: {many:.2f} ms/image in batches of {given.batch}, "
              f"{one:.2f} ms one at a time: {one / many:.1f} times; floor {bare:.2f} ms/image: "
              f"ratio {many / bare:.2f}; stages of {2 * given.batch} images:",
              flush=True)  # fmt: skip
        print_stages(results, 2 * given.batch * floor.clock, "floor")


def arithmetic(
    given: argparse.Namespace, generator: str, size: int, *, oracle: bool = True
) -> Callable[[], dict[str, Seconds]]:
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

    def taken() -> dict[str, Seconds]:
        return {name: least(part, given.device).times(1 / size) for name, part in parts.items()}

    return taken


if __name__ == "__main__":
    main()

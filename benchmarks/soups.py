"""`stockpot.season` with a grid of soups against its bare forward passes, and racing against it.

    python benchmarks/soups.py                       # zoo members; a grid of 10 soups
    python benchmarks/soups.py --full --draws 20     # all 480, and racing over 20 draws
    python benchmarks/soups.py --family vit-b16 --device cuda --full --precision bf16

`stockpot.season` is called as a user calls it: members read and identified, images drawn, every
soup formed and asked about the images to choose on, the chosen one and all members asked about the
others, scores with intervals. The floor is as many bare forward passes of one model on batches of
the same size that lie on the device already, in the same arithmetic; their rate is taken before and
after, so that both meet the same machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import stockpot
from parts.stages import print_each
from parts.watched import now
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.models.classifier import Classifier
from stockpot.models.forward.arithmetic import products
from stockpot.models.forward.options import chosen_forward
from stockpot.models.huggingface import new_huggingface
from stockpot.models.load import load_for
from stockpot.models.preprocess import Preprocess
from stockpot.season.seasoned import Seasoned
from stockpot.types import ImageSize

ZOO = ["icons-vit-plain", "icons-vit-colour", "icons-vit-cutmix", "icons-vit"]
FEW = {"low": 0.0, "high": 1.0, "step": 0.5}
"""A grid of a few soups, where time is short."""


def vit_b16(n: int) -> tuple[list[Any], Dataset]:
    """Untrained members of ViT-B/16's size near each other: for time, not for accuracy."""
    side, names = ImageSize(224, 224), tuple(f"class {index}" for index in range(1000))
    first = new_huggingface("vit", classes=names, preprocess=Preprocess(side, side), seed=0)
    members: list[Any] = [first]
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


def zoo(n: int) -> tuple[list[Any], Dataset]:
    """Embedded members and pictures."""
    return [*ZOO], stockpot.load_dataset("icons", limit=n)


def seconds_of_a_pass(model: Classifier, batches: Sequence[Tensor], precision: str) -> float:
    """Seconds in which one model sees all batches, which are on its device."""
    device, times = model.device.type, 4
    low = torch.autocast(device, torch.bfloat16, enabled=precision == "bf16")
    with torch.inference_mode(), products(precision == "tf32"), low:
        model(batches[0])
        begin = now(device)
        for _ in range(times):
            for batch in batches:
                model(batch)
        return (now(device) - begin) / times


def raced(members: Sequence[Any], data: Dataset, draws: int, run: dict[str, Any]) -> None:
    """Racing and the grid on the same draws: what each costs, and how good its choice is."""
    gaps, shares, times = [], [], []
    for seed in range(draws):
        spent, found = [], list[Seasoned]()
        for method in ("grid", "racing"):
            begin = now(run["device"])
            found.append(stockpot.season(method, members, data, seed=seed, **run))
            spent.append(now(run["device"]) - begin)
        grid, race = found
        looked = [float(each.record.details["images"]) for each in found]
        gaps.append(100 * (grid.accuracy.value - race.accuracy.value))
        shares.append(100 * looked[1] / looked[0])
        times.append(spent[1] / spent[0])
    print(f"racing, {draws} draws: {np.mean(shares):.1f} % of the grid's images, "
          f"{np.mean(times):.2f} of its seconds; held-out gap to the grid's choice "
          f"{np.mean(gaps):+.2f} points (sd {np.std(gaps):.2f})")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", choices=["zoo", "vit-b16"], default="zoo")
    parser.add_argument("--images", type=int, default=0, help="0: 1000 with --full, else 128")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--full", action="store_true", help="all 480 soups")
    parser.add_argument("--draws", type=int, default=0, help="races, each beside a grid")
    parser.add_argument("--precision", default="auto", help="as `stockpot season` takes it")
    options = parser.parse_args()
    n, device = options.images or (1000 if options.full else 128), torch.device(options.device)
    precision = chosen_forward(options.precision, False, device).precision
    members, data = vit_b16(n) if options.family == "vit-b16" else zoo(n)
    run: dict[str, Any] = {"shots": n // 2, "device": str(device), "precision": precision,
                           "batch_size": options.batch_size}  # fmt: skip
    run |= {} if options.full else FEW
    model = load_for(members[0], data, device=device).eval()
    part = data.take(range(n // 2)).batches(options.batch_size, model.preprocess.fit)
    batches = [batch.images.to(device) for batch in part]
    before = seconds_of_a_pass(model, batches, precision)
    begin = now(str(device))
    found = stockpot.season("grid", members, data, **run)
    ours = now(str(device)) - begin
    each = (before + seconds_of_a_pass(model, batches, precision)) / 2
    if found.matrix is None:
        raise SystemExit("a grid gives back what each soup answered")
    soups, seen = found.matrix.correct.shape
    # The others are looked at by the soup that was chosen and by every member.
    passes = soups * seen + (len(members) + 1) * len(found.held_out)
    floor = each * passes / (n // 2)
    clock = "the processor" if device.type == "cpu" else "the clock"
    print(f"{options.family}, {device}, {precision}: stockpot.season of {soups} soups x {seen} "
          f"images and {len(members) + 1} models x {len(found.held_out)}: {ours:.1f} s of {clock}, "
          f"bare forward passes {floor:.1f} s, ratio {ours / floor:.2f} (wanted: at most 1.3)",
          flush=True)  # fmt: skip
    print_each(found.record.details["stages"], floor, "floor")
    print(f"the soup {100 * found.accuracy.value:.1f} %, best member "
          f"{max(100 * s.value for s in found.member_accuracy.values()):.1f} %")  # fmt: skip
    if options.draws:
        raced(members, data, options.draws, run)


if __name__ == "__main__":
    main()

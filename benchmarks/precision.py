"""`stockpot.measure` in each precision: how many predictions change, and what the passes take.

    python benchmarks/precision.py                         # CPU: full precision and bf16
    python benchmarks/precision.py --device cuda --compile # all of them
    python benchmarks/precision.py --models icons-vit,icons-convnext --precisions fp32 --rounds 5

For one model of each architecture in the zoo: pictures (icons as they are, then corrupted in turn
by the fifteen corruptions, where answers are near to one another) are measured by
`stockpot.measure(NAME, "clean", precision=...)` with records of every image, and what they say is
compared with the plain module in full precision. The floor is that module's bare passes over the
same pixels in the same run. All ways take turns, and the least of the rounds counts. Passes and
stages are told by the clock, the whole call on a CPU by CPU time, which others do not move as much.

The rule, which is older than the numbers: `auto` is the fastest precision for which, in every
architecture, at most one prediction in 200 changes (by the upper end of a 95 % Wilson interval) and
right answers are gained as often as lost (an exact sign test, 5 % divided by the number of models).
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest
from torch import Tensor

import stockpot
from parts.bare import Seconds, asked, timed
from parts.stages import print_stages, seconds_by_stage
from stockpot.corrupt import BENCHMARK
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.engine import keep_freed_memory
from stockpot.models.classifier import Classifier
from stockpot.models.forward.arithmetic import products
from stockpot.models.forward.options import Forward
from stockpot.models.load import load_for
from stockpot.results.schema import CellResult
from stockpot.results.statistics import wilson
from stockpot.types import Precision

MODELS = ("icons-nominal", "icons-resnet", "icons-convnext", "icons-vit", "clip-base")
MOST = 1 / 200


class Round(NamedTuple):
    """What one call of `stockpot.measure` took and found."""

    whole: Seconds
    result: CellResult
    said: NDArray[np.str_]
    """The prediction for every picture, by name."""

    @property
    def forward(self) -> float:
        """Seconds of the clock in forward passes."""
        return seconds_by_stage([self.result])["forward"]


def pictures(count: int) -> Dataset:
    """So many icons: first as they are, then corrupted."""
    data = stockpot.load_dataset("icons", split="test")
    assert isinstance(data.images, TensorImages)
    parts = [data.images.pixels]
    for severity, name in product((3, 1, 5, 2, 4), BENCHMARK):
        if sum(map(len, parts)) >= count:
            break
        parts.append(stockpot.corrupt(data.images.pixels, name, severity, seed=0))
    pixels = torch.cat(parts)[:count]
    labels = data.labels.repeat(len(parts))[:count]
    mark = pixel_fingerprint(pixels, labels, data.classes)
    return replace(
        data, images=TensorImages(pixels), labels=labels, fingerprint=mark, columns={}, masks=None
    )


def plain(model: Classifier, batches: tuple[Tensor, ...]) -> Tensor:
    """Logits of the module as it is, in full precision."""
    with products(tf32=False):
        return asked(model, batches)


def measured(name: str, data: Dataset, way: Forward, options: argparse.Namespace) -> Round:
    """What a user is told of the model in a precision."""
    with tempfile.TemporaryDirectory() as out:
        run = partial(
            stockpot.measure, name, "clean", data=data, out=out,
            device=options.device, batch_size=options.batch, precision=way.precision,
            compile=way.compile, log_samples=True,
        )  # fmt: skip
        whole, (result,) = timed(run, options.device)
        (records,) = (Path(out) / "results").glob("*.samples.parquet")
        said = pq.read_table(records, columns=["prediction"])["prediction"].to_pylist()
    return Round(whole, result, np.array(said, dtype=np.str_))


def ways_of(options: argparse.Namespace) -> list[Forward]:
    """The precisions that were asked for and that the device has."""
    known: list[Precision] = ["fp32", "tf32", "bf16"]
    if not options.device.startswith("cuda"):
        known.remove("tf32")
    plainly = [Forward(one) for one in known if one in options.precisions.split(",")]
    return plainly + [Forward(way.precision, compile=True) for way in plainly if options.compile]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, help="by default 10,000, and 1,500 on a CPU")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precisions", default="fp32,tf32,bf16")
    parser.add_argument("--compile", action="store_true", help="compiled passes too")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    keep_freed_memory()  # as `measure` does: the floor has it too
    data = pictures(options.images or (1_500 if options.device == "cpu" else 10_000))
    ways = ways_of(options)
    names = options.models.split(",")
    print(f"{len(data):,} pictures on {options.device}, batch {options.batch}, "
          f"torch {torch.__version__}, {torch.get_num_threads()} threads")  # fmt: skip
    kept = dict.fromkeys(ways, True)
    for name in names:
        for way, holds in compared(name, data, ways, 0.05 / len(names), options).items():
            kept[way] &= holds
    for way, holds in kept.items():
        print(f"{way!s:16s} {'keeps' if holds else 'breaks'} the rule")


def compared(
    name: str, data: Dataset, ways: list[Forward], level: float, options: argparse.Namespace
) -> dict[Forward, bool]:
    """Tell of one model; whether each way keeps the rule."""
    model = load_for(name, data, device=options.device).eval()  # a dual encoder is told the words
    assert isinstance(data.images, TensorImages)
    batches = torch.split(data.images.pixels.to(options.device), options.batch)
    plain(model, batches[:1])  # what the process needs once
    floors: list[Seconds] = []
    rounds: dict[Forward, list[Round]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        took, logits = timed(partial(plain, model, batches), options.device)
        floors.append(took)
        for way in ways:
            rounds[way].append(measured(name, data, way, options))
    floor = Seconds(*map(min, zip(*floors, strict=True)))
    told = np.array(model.classes)[logits.argmax(dim=1).cpu().numpy()]
    print(f"{name}, the floor: {floor.clock:.2f} s, {len(data) / floor.clock:,.0f} images/s")
    return {way: tell(told, found, data, floor, level) for way, found in rounds.items()}


def tell(
    told: NDArray[np.str_], found: list[Round], data: Dataset, floor: Seconds, level: float
) -> bool:
    """A few lines of one way; whether it keeps the rule."""
    best = min(found, key=lambda one: one.forward)
    truth = np.array(data.classes)[data.labels.numpy()]
    right, now_right = told == truth, best.said == truth
    changed = int((best.said != told).sum())
    lost, gained = int((right & ~now_right).sum()), int((~right & now_right).sum())
    low, high, _ = wilson(changed, len(data))
    whole = min(one.whole.spent for one in found)
    print(f"{best.result.forward!s:28s} changed {changed} [{100 * low:.2f}, {100 * high:.2f}] % of "
          f"all, lost {lost}, gained {gained}; {len(data) / best.forward:,.0f} images/s, passes "
          f"{best.forward / floor.clock:.2f} of the floor, all {whole / floor.spent:.2f}",
          flush=True)  # fmt: skip
    print_stages([best.result], floor.clock, "floor")
    for note in best.result.notes:
        print(f"  note: {note}")
    even = binomtest(lost, lost + gained).pvalue if lost + gained else 1.0
    return bool(high <= MOST and even >= level)


if __name__ == "__main__":
    main()

"""What an audit costs beside the AutoAttack that it guards, on the same images in the same run.

    python benchmarks/audit.py                       # the small robust CNN of the tests
    python benchmarks/audit.py --count 100
    python benchmarks/audit.py --model icons-linf --data icons --count 64

Both sides are the public functions, one thread: `stockpot.audit`, and as its peer `stockpot.attack`
with `method="autoattack"` (standard, whole FAB walks). Printed are forward passes per image,
CPU seconds, what is left standing, and the ratios (wanted: below 1 for a model that withstands
something). A model that falls at once costs AutoAttack a few passes an image; there is no robust
accuracy to guard then, and the audit costs more.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import stockpot  # noqa: E402
from oracles.attack_reference import load_images, load_model  # noqa: E402
from parts.stages import print_each  # noqa: E402
from stockpot.engine import keep_freed_memory  # noqa: E402
from stockpot.score.scorer import scorer_for  # noqa: E402
from stockpot.stages import timed  # noqa: E402


def main() -> None:
    """Print one line for each side and one for the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="robust", help="robust, nominal, or a model's name")
    parser.add_argument("--data", default="icons", help="for a model of your own")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--eps", default="8/255")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as the command does
    model, images, labels = subject(arguments.model, arguments.data, arguments.count)
    n = len(images)
    start = time.process_time()
    with timed() as clock:
        found = stockpot.audit(model, images, labels, eps=arguments.eps)
        stages = clock.taken()
    ours = time.process_time() - start
    tell("audit", found.queries / n, ours, int(found.robust.sum()), n, f": {found.verdict}")
    start = time.process_time()
    guarded = stockpot.attack(model, images, labels, eps=arguments.eps, method="autoattack")
    theirs = time.process_time() - start
    passes = int(guarded.queries.sum()) / n
    tell("AutoAttack standard", passes, theirs, int(guarded.robust.sum()), n)
    print(
        f"ratio audit / AutoAttack: {found.queries / n / passes:.3f} of the forward passes, "
        f"{ours / theirs:.3f} of the CPU time (wanted: below 1)"
    )
    print_each(stages, theirs, "CPU time of AutoAttack")


def subject(name: str, data: str, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A model with images and the outputs that are right for them."""
    if name in ("robust", "nominal"):
        return load_model(name), *load_images(count)
    model = stockpot.load_model(name)
    sample = stockpot.load_dataset(data, limit=count)
    (batch,) = sample.batches(count, model.preprocess.fit)
    (part,) = scorer_for(model.classes, sample).parts(batch.rows)
    return model, batch.images, part.targets


def tell(what: str, passes: float, seconds: float, standing: int, n: int, more: str = "") -> None:
    """One line."""
    print(
        f"{what}: {passes:.0f} forward passes an image, {seconds:.1f} s, "
        f"{standing} of {n} standing{more}",
        flush=True,
    )


if __name__ == "__main__":
    main()

"""The published order over several trainings of the pool: answers, kept, and judged.

`pools_again.py merge` writes again.npz beside this file, a bit for each answer; `tables.py` fills
README.md from it.
"""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from searched import VERDICTS
from study import EXPERT_OF
from untuned import BASE, ORDER

from stockpot.files import write_atomic
from stockpot.results.few_seeds import Difference, over_seeds
from stockpot.results.schema import CellResult
from stockpot.results.tables import markdown

sys.path.append(str(Path(__file__).parents[1]))
from trainings import ALONE, each, in_order, several

HERE = Path(__file__).parent
KEPT = HERE / "again.npz"
EXPERTS = "experts"
BESIDE = ("fisher", "iso_c", "tsv_m", "smile")
"""Methods that are no part of the published order: told, and not judged."""
Answers = dict[str, dict[str, NDArray[np.bool_]]]
"""By model and task, which images are answered rightly."""


def answers(results: Sequence[CellResult]) -> Answers:
    """Of the run on one pool; of experts only what each says on its own task."""
    found: Answers = {}
    for cell in results:
        model, task = cell.key.model, cell.key.data
        if cell.key.measure != "clean" or (
            model in EXPERT_OF.values() and model != EXPERT_OF[task]
        ):
            continue
        name = EXPERTS if model in EXPERT_OF.values() else model
        found.setdefault(name, {})[task] = np.asarray(cell.outcome("correct"), bool)
    return found


def keep(pools: Mapping[str, Answers]) -> None:
    """Write the answers of all pools."""
    flat = {(number, model, task): flags for number, of in pools.items()
            for model, tasks in of.items() for task, flags in tasks.items()}  # fmt: skip
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        names=np.array(list(flat)),
        counts=np.array([len(flags) for flags in flat.values()], np.int32),
        bits=np.packbits(np.concatenate(list(flat.values()))),
    )
    write_atomic(KEPT, stream.getvalue())


def kept() -> list[Answers]:
    """The answers of all pools, the zoo's first."""
    if not KEPT.exists():
        return []
    with np.load(KEPT) as file:
        names, counts = file["names"], file["counts"]
        bits = np.unpackbits(file["bits"], count=int(counts.sum())).astype(bool)
    pools: dict[str, Any] = {}
    for (number, model, task), flags in zip(
        names.tolist(), np.split(bits, np.cumsum(counts)[:-1]), strict=True
    ):
        pools.setdefault(number, {}).setdefault(model, {})[task] = flags
    return [pools[number] for number in in_order(pools)]


def difference(pools: Sequence[Answers], first: str, second: str) -> Difference | None:
    """What the second is better than the first, where every pool has both."""
    if not all({first, second} <= of.keys() for of in pools):
        return None
    tasks = list(EXPERT_OF)
    sides = [[{task: of[name][task] for task in tasks} for name in (second, first)] for of in pools]
    return over_seeds([(own, other) for own, other in sides])


def order_again(pools: Sequence[Answers]) -> str:
    """Whether each method of the published order beats the one before it, in every training."""
    body = []
    for first, second in itertools.pairwise(ORDER):
        found = difference(pools, first, second)
        told = ["-", "-", 0, "not measured"]
        if found is not None:
            told = [str(found.alone), each(found.each), len(pools), VERDICTS[found.said()]]
        body.append([f"{first} < {second}", *told])
    # The first and last columns are named as those of the first run, which this table replaces.
    columns = ("published order", "difference of means, points [95 %]", "each training",
               "trainings", "here")  # fmt: skip
    return markdown(columns, body)


def over_base(pools: Sequence[Answers]) -> str:
    """Every method's mean in each training, and over the base."""
    body = []
    for name in dict.fromkeys((*ORDER, *BESIDE)):
        if not all(name in of for of in pools):
            continue
        means = [np.mean([of[name][task].mean() for task in EXPERT_OF]) for of in pools]
        found = difference(pools, BASE, name) if name != BASE else None
        shown = (str(found.alone), each(found.each)) if found else ("", "")
        body.append([name, " ".join(f"{100 * mean:.1f}" for mean in means), *shown])
    columns = ("method", "mean, each training", "over the base [95 %]", "each training")
    return markdown(columns, body)


def from_data() -> dict[str, str]:
    """The places of README.md that follow from again.npz."""
    pools = kept()
    if not pools:
        return {"trainings": ALONE, "methods": ALONE}
    return {
        "trainings": several(len(pools), order_again(pools)),
        "methods": several(len(pools), over_base(pools)),
    }

"""FMR of the networks of `study.py`, as the addition to plan.md says.

    python studies/real_networks/dynamic.py runs/real_networks --pictures imagenet-sample-images

Writes dynamic.csv and signs.csv beside this file. What is finished lies in the folder; stopped
and started again, it goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from defences import design
from study import FEW, NETWORKS, marks, network, photographs, source

import stockpot
from stockpot.datasets.dataset import Dataset
from stockpot.files import write_atomic
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text

HERE = Path(__file__).parent
ORACLES = {
    "mobilenet_v2": "resnet50",
    "resnet50": "lite2",
    "lite0": "resnet50",
    "lite1": "resnet50",
    "lite2": "resnet50",
}
"""Who judges whom: another family, as strong or stronger on these photographs."""
SEARCH = {"generator": "colour", "oracle": "classifier", "budget": 8, "per_class": False}
RECORDS = ("correct", "known", "validated", "moved", "withstood")


FIRST, SECOND = (0,), (1, 2)
"""Rounds of defences whose pictures were searched in the first run, and in the second."""


def pictures(count: int, wanted: Sequence[int] = SECOND) -> list[int]:
    """Those of some rounds of defences."""
    return sorted(row for shown in design(count) if shown.round in wanted for row in shown.pictures)


def folder_of(run: Path, name: str, wanted: Sequence[int] = SECOND) -> Path:
    return run / ("dynamic" if wanted == FIRST else "dynamic-second") / name


def searched(run: Path, data: Dataset) -> None:
    """A search against each network."""
    for name in NETWORKS:
        folder = folder_of(run, name)
        if folder.exists():
            continue
        start, began = time.process_time(), folder.with_name(f".{name}")
        place, options = source(ORACLES[name], run)
        judge = {"model": place, "options": options}
        stockpot.measure(
            {name: network(name, run)},
            {"dynamic": {**SEARCH, "oracle_params": judge, "pictures": 0}},
            data=data.take(pictures(len(data))),
            out=began,
            batch_size=FEW,
        )
        began.rename(folder)
        print(f"{name}: {time.process_time() - start:.0f} s", flush=True)


def searched_answers(run: Path, count: int, wanted: Sequence[int]) -> list[dict[str, Any]]:
    """What became of each picture, for the networks that were searched."""
    done = [name for name in NETWORKS if folder_of(run, name, wanted).exists()]
    found = {}
    for name in done:
        (cell,) = load_results(folder_of(run, name, wanted))
        found[name] = np.stack([cell.outcome(record) for record in RECORDS], axis=1)
    return [
        {"round": wanted[0], "picture": picture,
         **{name: marks(found[name][place]) for name in done}}
        for place, picture in enumerate(pictures(count, wanted) if done else ())
    ]  # fmt: skip


def search_signs(run: Path) -> list[dict[str, Any]]:
    """Of each network: whether it was searched without gradients too, and how many fell then."""
    found = []
    for name in NETWORKS:
        if folder_of(run, name).exists():
            (cell,) = load_results(folder_of(run, name))
            flags = {flag.name: flag.count for flag in cell.flags}
            again = any(score.metric == "perturbed_accuracy_after" for score in cell.scores)
            found.append({
                "network": name, "again": "yes" if again else "no",
                "fell": flags.get("answers_beat_gradients", 0),
            })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--pictures", type=Path, required=True, help="the clone that holds them")
    given = parser.parse_args()
    data = photographs(given.run, given.pictures)
    searched(given.run, data)
    both = [row for run in (FIRST, SECOND) for row in searched_answers(given.run, len(data), run)]
    write_atomic(HERE / "dynamic.csv", csv_text(both))
    write_atomic(HERE / "signs.csv", csv_text(search_signs(given.run)))


if __name__ == "__main__":
    main()

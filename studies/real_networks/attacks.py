"""The networks of `study.py` under attack, as the addition to plan.md says.

    python studies/real_networks/attacks.py runs/real_networks --pictures imagenet-sample-images

Writes its rounds into attacked.csv beside this file. What is finished lies in the folder; stopped
and started again, it goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from study import FEW, NETWORKS, THIRD, add_rounds, marks, network, numbered, photographs, rounds

import stockpot
from stockpot.datasets.dataset import Dataset
from stockpot.models.classifier import Classifier
from stockpot.results.store import load_results

HERE = Path(__file__).parent
RADII = ("0.25/255", "0.5/255", "1/255", "2/255", "4/255")
ATTACK = {
    "protocol": "robustbench-imagenet",
    "attacks": "apgd-ce,apgd-t",
    "steps": 10,
    "targets": 3,
}
MORE = 5
"""Rounds of the third run."""


def attack_rounds(count: int) -> list[list[int]]:
    """The pictures of each round of attacks: those of the rounds of corruption."""
    rows: dict[int, list[int]] = {}
    for number, _, some in rounds(count):
        rows.setdefault(number, []).extend(some)
    return [sorted(some) for some in rows.values()]


def attacked(run: Path, data: Dataset, wanted: Collection[int], minutes: float) -> None:
    """Every network under attack, round by round, as long as a further round fits."""
    began = time.monotonic()
    models = {name: network(name, run) for name in NETWORKS}
    norms, longest, used = ",".join("linf" for _ in RADII), 0.0, 0.0
    for number, rows in enumerate(attack_rounds(len(data))):
        if number not in wanted:
            continue
        start = time.monotonic()
        left = minutes * 60 - (start - began)
        new = not any((run / "attacked").glob(f"{number}-*"))
        if new and left < longest:
            break
        for name, model in models.items():
            asked = {**ATTACK, "norms": norms, "eps": ",".join(RADII)}
            place = f"{number}-{name}"
            seconds = under_attack(run / "attacked" / place, {name: model}, data.take(rows), asked)
            if seconds is not None:
                used += seconds
                print(f"{place}: {seconds:.0f} s, {used:.0f} in all", flush=True)
        longest = max(longest, time.monotonic() - start)


def under_attack(
    folder: Path, models: Mapping[str, Classifier], data: Dataset, asked: Mapping[str, Any]
) -> float | None:
    """Attack and keep the result; how long it took, or nothing where it was done before."""
    if folder.exists():
        return None
    start, began = time.process_time(), folder.with_name(f".{folder.name}")
    stockpot.measure(
        dict(models), {"adversarial": dict(asked)}, data=data, out=began, batch_size=2 * FEW
    )
    began.rename(folder)
    return time.process_time() - start


def attack_answers(run: Path, count: int) -> list[dict[str, Any]]:
    """Answers to a picture as it is and under attack, radius by radius.

    Of the first round what is there counts; later ones only when they are whole.
    """
    records = ["correct", *(f"robust:linf:{eps}" for eps in RADII)]
    rows: list[dict[str, Any]] = []
    for number, pictures in enumerate(attack_rounds(count)):
        folders = {name: run / "attacked" / f"{number}-{name}" for name in NETWORKS}
        done = [name for name, folder in folders.items() if folder.exists()]
        if not done or (number and len(done) < len(NETWORKS)):
            continue
        found = {}
        for name in done:
            (cell,) = load_results(folders[name])
            found[name] = np.stack([cell.outcome(record) for record in records], axis=1)
        for place, picture in enumerate(pictures):
            said = {name: marks(found[name][place]) for name in done}
            rows.append({"round": number, "picture": picture, **said})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--pictures", type=Path, required=True, help="the clone that holds them")
    parser.add_argument(
        "--rounds", default=f"{THIRD}-{THIRD + MORE - 1}", help="which; none writes what is there"
    )
    parser.add_argument("--minutes", type=float, default=np.inf, help="for rounds of attacks")
    given = parser.parse_args()
    data = photographs(given.run, given.pictures)
    attacked(given.run, data, numbered(given.rounds), given.minutes)
    add_rounds(HERE / "attacked.csv", attack_answers(given.run, len(data)), ("round", "picture"))


if __name__ == "__main__":
    main()

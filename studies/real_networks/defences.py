"""The networks of `study.py` behind defences, as the addition to plan.md says.

    python studies/real_networks/defences.py runs/real_networks --pictures imagenet-sample-images

Writes defended.csv beside this file: whole rounds alone. What is finished lies in the folder;
stopped and started again, it goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from study import NETWORKS, add_rounds, marks, network, numbered, photographs, rounds

import stockpot
from stockpot.corrupt import BENCHMARK
from stockpot.datasets.dataset import Dataset
from stockpot.results.store import load_results

HERE = Path(__file__).parent
DEFENCES: dict[str, Any] = {
    "none": "none",
    "clahe": "clahe",
    "nlm": "nlm",
    "ten_crop": "ten_crop",
    "mirror": {"ten_crop": {"crop": 1.0}},
}
FEWER = {"ten_crop": ("mobilenet_v2", "resnet50", "lite0")}
"""Networks for which a defence is taken, where not for all: ten crops cost most."""
GROUPS, OF_EACH = 5, 5
FIRST, SECOND, THIRD = range(1), range(1, 6), range(10, 25)
"""Rounds of the runs; the third, whose pictures no run before had shown, is judged."""
ROUNDS = (*FIRST, *SECOND, *THIRD)


class Shown(NamedTuple):
    """Some pictures, and what happens to them."""

    round: int
    severity: int
    group: int
    pictures: tuple[int, ...]

    @property
    def corruptions(self) -> tuple[str, ...]:
        """Three of the fifteen; the groups take every fifth, so that kinds are mixed."""
        return BENCHMARK[self.group :: GROUPS]

    @property
    def place(self) -> str:
        """The folder of the answers."""
        return f"{self.round}-{self.severity}"


def design(count: int) -> Iterator[Shown]:
    """In each round each severity meets one group, on pictures that were shown at it before.

    In five rounds, such as those of the second run, each has met each; the third has fifteen.
    """
    known: dict[int, list[int]] = {}
    for _, severity, rows in rounds(count):
        known.setdefault(severity, []).extend(rows)
    for number in ROUNDS:
        for severity, rows in known.items():
            some = rows[number * OF_EACH : (number + 1) * OF_EACH]
            yield Shown(number, severity, (severity - 1 + 2 * number) % GROUPS, tuple(some))


def networks_behind(defence: str) -> tuple[str, ...]:
    return FEWER.get(defence, NETWORKS)


def defended(run: Path, data: Dataset, wanted: Collection[int], minutes: float) -> None:
    """Every network behind every defence, round by round until the time is over."""
    models = {name: network(name, run) for name in NETWORKS}
    start, spent = time.monotonic(), time.process_time()
    for shown in design(len(data)):
        folder = run / "defended" / shown.place
        if folder.exists() or shown.round not in wanted:
            continue
        if time.monotonic() - start > minutes * 60:
            break
        began = folder.with_name(f".{folder.name}")
        asked = {"severities": shown.severity, "corruptions": ",".join(shown.corruptions),
                 "baseline": "none", "overlays": "photographs"}  # fmt: skip
        for defence, option in DEFENCES.items():
            stockpot.measure(
                {name: models[name] for name in networks_behind(defence)},
                {"corruption": asked},
                data=data.take(shown.pictures),
                out=began / defence,
                batch_size=1,  # a copy of the network is checked on the first batch
                model_options={"defend": option},
            )
        began.rename(folder)
        print(f"{shown.place}: {time.process_time() - spent:.0f} s in all", flush=True)


def defended_answers(run: Path, count: int) -> list[dict[str, Any]]:
    """Answers to a picture as it is and under its three corruptions; whole rounds only."""
    found: list[dict[str, Any]] = []
    for number in ROUNDS:
        own = [shown for shown in design(count) if shown.round == number]
        if not all((run / "defended" / shown.place).exists() for shown in own):
            continue
        for shown in own:
            records = ["correct", *(f"{name}:{shown.severity}" for name in shown.corruptions)]
            for defence in DEFENCES:
                cells = load_results(run / "defended" / shown.place / defence)
                right = {cell.key.model: np.stack([cell.outcome(r) for r in records], axis=1)
                         for cell in cells}  # fmt: skip
                for place, picture in enumerate(shown.pictures):
                    row = {name: marks(right[name][place]) if name in right else ""
                           for name in NETWORKS}  # fmt: skip
                    about = {"round": number, "severity": shown.severity, "group": shown.group}
                    found.append({**about, "picture": picture, "defence": defence, **row})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--pictures", type=Path, required=True, help="the clone that holds them")
    parser.add_argument(
        "--rounds", default=f"{THIRD.start}-{THIRD.stop - 1}", help="none writes what is there"
    )
    parser.add_argument("--minutes", type=float, default=np.inf, help="for rounds of defences")
    given = parser.parse_args()
    data = photographs(given.run, given.pictures)
    defended(given.run, data, numbered(given.rounds), given.minutes)
    numbers = ("round", "severity", "group", "picture")
    add_rounds(HERE / "defended.csv", defended_answers(given.run, len(data)), numbers)


if __name__ == "__main__":
    main()

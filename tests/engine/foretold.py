"""What 1,000 models x the full card take on N GPUs, by the simulated scheduler.

    python tests/engine/foretold.py                      # the tables of docs/scale.md
    python tests/engine/foretold.py --workers 1 2        # fewer real runs

The costs are those of docs/performance.md (one H200, the grid of a ResNet-50 by stage). The real
runs are jobs that wait, so that a busy machine does not matter, of lengths between 0.1 and 1 s, on
`processes`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from stockpot.engine import engines
from stockpot.engine.simulation import Site, Took, Work, simulate

MODELS = 1000
WEIGHTS = 102e6
"""Bytes of a ResNet-50 in float32."""
START, LOAD = 1.73, 1.10
SHARED = 13.9
"""Decoding and corrupting 50,000 pictures 75 times: (0.19 + 1.58) s for 4,000 of them, and 0.79 s
for each further 3,000."""
OWN = 141 - START - LOAD - SHARED
"""The rest of what a ResNet-50 takes for the grid: forward passes and scores."""
ATTACK = 5000 * 40 * 3 / 43_100
"""APGD of 40 steps on 5,000 pictures: a step is a pass forwards and twice its work backwards."""
DISPATCH = 0.02
DISK = 2e9
GPUS = (1, 8, 64, 256, 1024)
TOGETHER = 32
"""Models that share pictures at most (`measure/together/group.py`)."""


def by_model(models: int, gpus: int) -> list[Work]:
    """As `split` deals cells out: equal parts of the models for the grid, an attack for each."""
    attacks = [Work(ATTACK + LOAD, WEIGHTS)] * models
    rows = min(models, gpus)
    grids = []
    for row in range(rows):
        own = models * (row + 1) // rows - models * row // rows
        rounds = -(-own // TOGETHER)
        grids.append(Work(rounds * SHARED + own * (OWN + LOAD), own * WEIGHTS))
    return [*attacks, *grids]


def by_part(models: int, shards: int) -> list[Work]:
    """As `divide` does with `shards`: each part of the images with all models, and the rest."""
    rounds = -(-models // TOGETHER)
    part = Work(
        (rounds * SHARED + models * (OWN + ATTACK)) / shards + models * LOAD, models * WEIGHTS
    )
    return [part] * shards + [Work(LOAD + 1.0, WEIGHTS)] * models


def row(gpus: int, took: Took, alone: float) -> str:
    """A line of the table."""
    hours = took.seconds * gpus / 3600
    efficiency = alone / (took.seconds * gpus)
    rest = ", ".join(f"{name} {share:.0%}" for name, share in took.shares.items() if share >= 0.005)
    hours_taken = took.seconds / 3600
    name = f"{hours_taken:.2f} h" if hours_taken >= 1 else f"{60 * hours_taken:.1f} min"
    return f"| {gpus} | {name} | {hours:,.0f} | {efficiency:.0%} | {rest} | {took.bottleneck} |"


def wait(seconds: float) -> None:
    time.sleep(seconds)


def real(workers: int, jobs: list[float], repeats: int) -> tuple[float, float]:
    """Seconds of jobs that wait, and of the same number of jobs that do nothing."""
    engine = engines.get("processes")(workers=workers)
    found: dict[bool, list[float]] = {True: [], False: []}
    list(engine.run(wait, [0.0]))  # the server that workers fork from is there
    for _ in range(repeats):
        for empty in (True, False):
            start = time.perf_counter()
            for outcome in engine.run(wait, [0.0 if empty else one for one in jobs]):
                assert outcome.error is None
            found[empty].append(time.perf_counter() - start)
    return statistics.median(found[False]), min(found[True])


def check(workers: list[int], repeats: int) -> None:
    """Real runs against what was foretold of them."""
    chance = random.Random(0)
    jobs = [chance.uniform(0.1, 1.0) for _ in range(24)]
    print("| workers | foretold | real | difference |\n|---|---|---|---|")
    for count in workers:
        took, empty = real(count, jobs, repeats)
        # Starting workers and handing out, measured with jobs that do nothing.
        told = simulate([Work(one) for one in jobs], Site(count, start=empty)).seconds
        print(f"| {count} | {told:.2f} s | {took:.2f} s | {took / told - 1:+.0%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    head = "| GPUs | time | GPU hours | efficiency | of the workers' time | bottleneck |"
    ways = (("### By models, as it comes", by_model), ("### By images, `shards:`", by_part))
    for title, jobs_of in ways:
        print(f"{title}\n\n{head}\n|---|---|---|---|---|---|")
        alone = simulate(jobs_of(MODELS, 1), Site(1, start=START)).seconds
        for gpus in GPUS:
            site = Site(gpus, start=START, dispatch=DISPATCH, disk=DISK)
            print(row(gpus, simulate(jobs_of(MODELS, gpus), site), alone), flush=True)
        print()
    check(options.workers, options.repeats)


if __name__ == "__main__":
    main()

"""What 1,000 models x the full card take on N GPUs, by the simulated scheduler; docs/scale.md.

    python benchmarks/scale.py > docs/scale.md           # the page: simulation, and real runs here
    python benchmarks/scale.py --workers 1 2             # fewer real runs

The costs are those of docs/performance.md (one H200). The real runs are jobs that wait, so that a
busy machine does not matter, of lengths between 0.1 and 1 s, on `processes`.
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
START, LOAD = 5.4, 1.7
SHARED = 70.0
"""Decoding and corrupting 50,000 pictures 75 times: (2.1 + 3.5) s for 4,000 of them."""
OWN = 206.0
"""The rest of the 276 s that a ResNet-50 takes for the grid: forward passes and scores."""
ATTACK = 5000 * 40 * 3 / 26_300
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
    name = (
        f"{took.seconds / 3600:.2f} h" if took.seconds >= 3600 else f"{took.seconds / 60:.1f} min"
    )
    return f"| {gpus} | {name} | {hours:,.0f} | {efficiency:.0%} | {rest} | {took.bottleneck} |"


def wait(seconds: float) -> None:
    time.sleep(seconds)


def real(workers: int, jobs: list[float], repeats: int) -> tuple[float, float]:
    """Seconds of jobs that wait, and of the same number of jobs that do nothing."""
    engine = engines.get("processes")(workers=workers)
    found: dict[bool, list[float]] = {True: [], False: []}
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
    print(HEAD)
    head = "| GPUs | time | GPU hours | efficiency | of the workers' time | bottleneck |"
    for title, jobs_of in (
        ("### By models, as it comes", by_model),
        ("### By images, `shards:`", by_part),
    ):
        print(f"{title}\n\n{head}\n|---|---|---|---|---|---|")
        alone = simulate(jobs_of(MODELS, 1), Site(1, start=START)).seconds
        for gpus in GPUS:
            site = Site(gpus, start=START, dispatch=DISPATCH, disk=DISK)
            print(row(gpus, simulate(jobs_of(MODELS, gpus), site), alone), flush=True)
        print()
    print(TAIL)
    check(options.workers, options.repeats)


HEAD = f"""<!-- python benchmarks/scale.py > docs/scale.md -->
# At scale

How to run on many workers, and what {MODELS:,} models x the full card would take on so many GPUs.

## Engines

| engine | where work runs | options (`stockpot show ENGINE`) |
|---|---|---|
| `serial` | in this process | |
| `processes` | processes of this machine | `workers` |
| `ray` | the cluster that `RAY_ADDRESS` names, else one of this machine (`pip install 'stockpot[ray]'`) | `workers`, `cpus`, `gpus` (a part of one is allowed), `retries` |
| `slurm` | jobs of SLURM through submitit, as arrays (`pip install 'stockpot[slurm]'`); `cluster=local` runs them here | submitit's: `timeout_min`, `gpus_per_node`, `slurm_partition`, ... |

```
stockpot run recipes/demo.yaml --engine ray -e gpus=0.25
stockpot run recipes/demo.yaml --engine slurm -e slurm_partition=gpu -e gpus_per_node=1 -e timeout_min=120
stockpot measure MODEL --data photos/ --with corruption -o runs/a --engine ray --shards 8
```

A recipe says the same with `engine: {{name: ray, gpus: 0.25}}`; the command line wins. Models that do not need
each other are made at the same time, cells are measured at the same time, and no number depends on where:
what `auto` means is settled before a cell is sent. The run folder must lie on a disk that all workers see. A
cell writes its own result, whole or not at all, so that one whose worker or node was lost is run again. No
more is under way than there is room for. Decoded pictures are sent to each node once; weights are read
from their files, which a node keeps in its page cache.

`shards: 8` (of an entry under `measure: with:`, or `--shards 8`) divides the images of a cell, in whole batches,
so that eight workers share it; the parts meet in the run folder, and the scores are those of an undivided
run to the bit. `adversarial`, `calibration`, `certified`, `clean`, `corruption`, `dynamic`, `factors`, `selective`,
`shape_bias` and `surface` can be divided (of `calibration` the first of its two passes). All others are measured
whole: `cost` times one machine, `stream` and `audit` depend on the order of the images, the rest goes through
several datasets. So are cells with `log_samples`, and attacks with `save`. With one batch there is one part:
`batch_size` decides how finely images can be divided.

## {MODELS:,} models on N GPUs

A simulation (`stockpot.engine.simulation`): the scheduler is the one that hands out real jobs, its clock is
counted. ResNet-50, 50,000 pictures: clean and 75 corruptions ({SHARED + OWN:.0f} s, of which {SHARED:.0f} s are shared by up
to {TOGETHER} models), APGD of 40 steps on 5,000 ({ATTACK:.0f} s, from the rate of forward passes, not measured). A worker starts
in {START} s, a model is loaded in {LOAD} s from a disk of {DISK / 1e9:.0f} GB/s, handing out a job takes {DISPATCH * 1000:.0f} ms. Costs are those of one
H200 in docs/performance.md; nothing here was run on many GPUs.
"""

TAIL = """By models, pictures are corrupted anew by every worker: with a GPU for every model nothing is shared any
more. By images, all models see a part together and the pictures are made once, but every worker loads
every model: worth it for few models and many GPUs, not for thousands.

## Foretold and real

24 jobs that wait between 0.1 and 1 s on `processes`, median of three; the start of the workers is that of a run
of 24 jobs that do nothing. The machine has two cores and was busy.
"""


if __name__ == "__main__":
    main()

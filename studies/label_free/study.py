"""The whole study: answers once, then estimates and rehearsed choices.

    python studies/label_free/study.py
    python studies/label_free/study.py --trainings runs/trainings

The second asks further trainings of the CIFAR-10 family, for what plan.md has added. Answers are
kept in runs/label_free; the tables of the page follow from the CSV files beside it.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tables import FILES, POOL, SEEDS, STEPS, from_data

import stockpot
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.load import load_dataset
from stockpot.engine import pick_device
from stockpot.files import write_atomic
from stockpot.measure.measurement import Context
from stockpot.measure.specs import model_specs
from stockpot.measure.unlabelled.estimates import estimates
from stockpot.measure.unlabelled.pool import PoolAnswers, line_estimates, pool_answers
from stockpot.measure.unlabelled.selection import Method, selection
from stockpot.results.tables import csv_text, fill, read_csv

sys.path.append(str(Path(__file__).parents[1]))
from trainings import ZOO, sources

HERE = Path(__file__).parent
KEPT = Path("runs/label_free")
KINDS = ("plain", "colour", "cutmix")
POOLS = {
    "icons": (
        *("icons-convnext", "icons-l2", "icons-linf", "icons-nominal", "icons-resnet"),
        *("icons-vit", *(f"icons-vit-{kind}" for kind in KINDS), "clip-icons"),
    ),
    "cifar10": (
        *(f"cifar10-{norm}" for norm in ("l1", "l2", "linf", "nominal")),
        "clip-cifar10",
    ),
}
CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
SEVERITIES = (2, 4)
N_SOURCE, N_TARGET = 400, 300
WAYS: dict[str, tuple[Method, float]] = {
    "coda": ("coda", 0.01),
    "coda, rate 1": ("coda", 1.0),
    "active_testing": ("active_testing", 0.0),
    "random": ("random", 0.0),
}
"""The second was added after the others had been looked at."""


def parts(pool: str) -> tuple[Dataset, Dataset]:
    """Source and target, which share no image."""
    known, asked = N_SOURCE, N_TARGET
    if pool == "icons":
        return load_dataset("icons", split="val", limit=known), load_dataset("icons", limit=asked)
    both = load_dataset("cifar10", limit=known + asked)
    order = np.random.default_rng(0).permutation(len(both))
    return both.take(np.sort(order[:known])), both.take(np.sort(order[known:]))


def targets(clean: Dataset) -> Iterator[tuple[str, Dataset]]:
    """The images as they are, and corrupted."""
    yield "clean", clean
    pixels = torch.cat([batch.images for batch in clean.batches()])
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            made = stockpot.corrupt(pixels, name, severity)
            mark = pixel_fingerprint(made, clean.labels, clean.classes)
            changed = replace(clean, images=TensorImages(made), fingerprint=mark)
            yield f"{name} {severity}", changed


class Asked(NamedTuple):
    """A pool: its images, its models by name, and where their answers are kept."""

    pool: str
    models: Mapping[str, str]
    kept: Path


def embedded(pool: str) -> Asked:
    """The zoo's models."""
    return Asked(pool, {name: name for name in POOLS[pool]}, KEPT)


def trained_again(number: str, lying: Mapping[str, str]) -> Asked:
    """The pool of another training; what is not of its family stays as it is."""
    return Asked(POOL, {name: lying.get(name, name) for name in POOLS[POOL]}, KEPT / number)


def answered(asked: Asked) -> tuple[PoolAnswers, dict[str, PoolAnswers]]:
    """What all models say to source and targets; kept model by model, as it takes the longest."""
    source, clean = parts(asked.pool)
    sets = {"source": source, **dict(targets(clean))}
    context = Context(device=pick_device("auto"), keeps=True)
    found: dict[str, list[PoolAnswers]] = {name: [] for name in sets}
    for spec in model_specs(asked.models):
        path = asked.kept / f"{spec.name}.pt"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            made = {name: pool_answers([spec], data, context) for name, data in sets.items()}
            torch.save(made, path)
        for name, answers in torch.load(path, weights_only=False).items():
            found[name].append(answers)
    together = {name: _together(parts_of) for name, parts_of in found.items()}
    return together.pop("source"), together


def _together(answers: list[PoolAnswers]) -> PoolAnswers:
    names = tuple(name for each in answers for name in each.names)
    return PoolAnswers(names, tuple(one for each in answers for one in each.answers))


def estimated(asked: Asked) -> list[dict[str, Any]]:
    """A row for each model, target and method."""
    source, there = answered(asked)
    rows = []
    for target, answers in there.items():
        lines, line = line_estimates(source, answers)
        for place, model in enumerate(answers.names):
            here, now = source.answers[place], answers.answers[place]
            found = estimates(here, now) | {name: values[place] for name, values in lines.items()}
            row = {
                "pool": asked.pool,
                "target": target,
                "model": model,
                "n": len(now),
                "truth": float(now.correct.mean()),
                "source": float(here.correct.mean()),
                "line_fit": line.fit,
            }
            for name, (value, interval) in found.items():
                row |= {name: value, f"{name}_low": interval.low, f"{name}_high": interval.high}
            rows.append(row)
    return rows


def rehearsed(asked: Asked) -> list[dict[str, Any]]:
    """A row for each target, way of asking and number of labels: means over seeds."""
    rows = []
    for target, answers in answered(asked)[1].items():
        probabilities, said = answers.probabilities, answers.said
        accuracy = answers.right.mean(axis=1)
        wanted = answers.answers[0].wanted[:, 0]
        for method, seeds in SEEDS.items():
            runs = [
                list(_run(method, probabilities, said, wanted, accuracy, seed))
                for seed in range(seeds)
            ]
            for step in zip(*runs, strict=True):
                means = {key: float(np.mean([row[key] for row in step])) for key in step[0]}
                about = {"pool": asked.pool, "target": target, "method": method, "seeds": seeds}
                rows.append({**about, **means, "labels": int(means["labels"])})
    return rows


def _run(
    method: str, probabilities: Any, said: Any, wanted: Any, accuracy: Any, seed: int
) -> Iterator[dict[str, float]]:
    name, rate = WAYS[method]
    way = selection(name, probabilities, said, seed, rate)
    for labels in range(max(STEPS) + 1):
        if labels in STEPS:
            share = way.best()
            tied = share > share.max() - 1e-9  # knowing nothing, any of them
            regret = accuracy.max() - accuracy[tied]
            yield {
                "labels": labels,
                "regret": float(regret.mean()),
                "near": float((regret <= 0.01).mean()),
                "stated": float(share.max()),
            }
        if labels < max(STEPS):
            (pick,) = way.next(1)
            way.add(pick, int(wanted[pick.image]))


def rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Four decimals."""
    return [{k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in rows]


MAKE = {"estimates": estimated, "labels": rehearsed}


def main() -> None:
    """Answers, then both tables, then the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", action="store_true", help="Only write the page anew.")
    parser.add_argument("--trainings", type=Path, help="what studies/trainings.py left")
    given = parser.parse_args()
    if given.trainings:
        again = {n: trained_again(n, at) for n, at in sources(given.trainings).items() if n != ZOO}
        for name, make in MAKE.items():
            place = HERE / f"trainings-{name}.csv"
            # Weights of trainings that are not at hand may be gone: what they said stays.
            with place.open(encoding="utf-8", newline="") as stream:
                kept = [row for row in csv.DictReader(stream) if row["training"] not in again]
            made = [{"training": n, **row} for n, asked in again.items() for row in make(asked)]
            rows = sorted([*kept, *rounded(made)], key=lambda row: int(row["training"]))
            write_atomic(place, csv_text(rows))
    elif not given.tables:
        for name, make in MAKE.items():
            rows = [row for pool in POOLS for row in make(embedded(pool))]
            write_atomic(HERE / f"{name}.csv", csv_text(rounded(rows)))
    fill(HERE / "README.md", from_data(*(read_csv(HERE / f"{name}.csv") for name in FILES)))


if __name__ == "__main__":
    main()

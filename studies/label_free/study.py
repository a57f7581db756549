"""The whole study: answers once, then estimates and rehearsed choices.

    python studies/label_free/study.py

Answers are kept in runs/label_free; the tables of the page follow from the CSV files beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tables import SEEDS, STEPS, from_data

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


def answered(pool: str) -> tuple[PoolAnswers, dict[str, PoolAnswers]]:
    """What all models say to source and targets; kept model by model, as it takes the longest."""
    source, clean = parts(pool)
    sets = {"source": source, **dict(targets(clean))}
    context = Context(device=pick_device("auto"), keeps=True)
    found: dict[str, list[PoolAnswers]] = {name: [] for name in sets}
    for spec in model_specs(POOLS[pool]):
        path = KEPT / f"{spec.name}.pt"
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


def estimated(pool: str) -> list[dict[str, Any]]:
    """A row for each model, target and method."""
    source, there = answered(pool)
    rows = []
    for target, answers in there.items():
        lines, line = line_estimates(source, answers)
        for place, model in enumerate(answers.names):
            here, now = source.answers[place], answers.answers[place]
            found = estimates(here, now) | {name: values[place] for name, values in lines.items()}
            row = {
                "pool": pool,
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


def rehearsed(pool: str) -> list[dict[str, Any]]:
    """A row for each target, way of asking and number of labels: means over seeds."""
    rows = []
    for target, answers in answered(pool)[1].items():
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
                about = {"pool": pool, "target": target, "method": method, "seeds": seeds}
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


def main() -> None:
    """Answers, then both tables, then the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", action="store_true", help="Only write the page anew.")
    if not parser.parse_args().tables:
        for name, make in (("estimates", estimated), ("labels", rehearsed)):
            rows = [row for pool in POOLS for row in make(pool)]
            write_atomic(HERE / f"{name}.csv", csv_text(rounded(rows)))
    fill(
        HERE / "README.md",
        from_data(*(read_csv(HERE / f"{n}.csv") for n in ("estimates", "labels"))),
    )


if __name__ == "__main__":
    main()

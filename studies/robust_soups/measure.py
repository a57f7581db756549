"""Measure a robust family and its soups: under attack, and on corrupted images.

    python studies/robust_soups/measure.py threats runs/cifar_robust --out OUT
    python studies/robust_soups/measure.py shift runs/cifar_robust --out OUT

`threats` attacks soups on lines and on a triangle of the members; `shift` runs the 480 affine soups
of four members over corrupted images. Both write one npz of masks [soups x images]; `report.py`
makes tables and figures of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stockpot.attack.threat import Threats
from stockpot.corrupt.apply import corrupt
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.measure.protocols import named_protocol
from stockpot.models.device import pick_device
from stockpot.season.evaluate import evaluate, members_and_ensemble
from stockpot.season.grids import affine_grid
from stockpot.season.pool import Pool
from stockpot.season.robust import evaluate_under, line
from stockpot.season.shots import Shots, read_shots

FAMILIES = {
    "full": {"linf": "linf", "l2": "linf-l2", "l1": "linf-l1", "nominal": "linf-nominal",
             "other": "linf-other", "sat": "linf-sat", "max": "linf-max"},
    "quarter": {"linf": "cifar10-linf", "l2": "cifar10-l2", "l1": "cifar10-l1",
                "nominal": "cifar10-nominal", "other": "cifar10-other"},
}  # fmt: skip
SOUPED = ("linf", "l2", "l1", "nominal")
CORRUPTIONS = (
    "gaussian_noise", "motion_blur", "fog", "contrast", "pixelate", "jpeg_compression",
)  # fmt: skip


def members(run: Path, family: str) -> dict[str, Path]:
    """The finished members of a run, by role."""
    found = {role: run / "models" / name for role, name in FAMILIES[family].items()}
    there = {role: folder for role, folder in found.items() if folder.exists()}
    if missing := [role for role in SOUPED if role not in there]:
        sys.exit(f"{run} lacks {', '.join(missing)}: train them first, see recipes/.")
    return there


def soups_of_interest() -> Tensor:
    """A triangle of the three robust members, and lines through pairs, also beyond their ends."""
    triangle = torch.cat([affine_grid(3, low=0, high=1, step=0.2), torch.zeros(21, 1)], dim=1)
    pairs = [(0, 1), (0, 2), (1, 2), (0, 3)]
    lines = [line(0, 1, 0.1, 4, *pair) for pair in pairs]
    beyond = [torch.cat([line(-0.4, -0.2, 0.2, 4, *p), line(1.2, 1.4, 0.2, 4, *p)]) for p in pairs]
    everything = torch.cat([triangle.double(), *beyond[:1], *lines, *beyond[1:]])
    order: dict[tuple[float, ...], None] = {}
    for row in everything.tolist():
        order[tuple(round(value, 6) + 0.0 for value in row)] = None
    return torch.tensor(list(order), dtype=torch.float64)


def threats(run: Path, family: str, out: Path, images: int, device: str, until: float) -> None:
    """Attack the soups of interest, then the control's line and the members beside the soups."""
    place = pick_device(device)
    there = members(run, family)
    data = load_dataset("cifar10", split="test", limit=images)
    protocol = named_protocol("soups-cifar")
    settings = dict(protocol.params) | {"precision": "bf16", "forward": "folded"}
    if place.type == "cpu":
        settings |= {"precision": "fp32"}
    aims = Threats(protocol.threats)

    def attacked(pool: Pool, soups: Tensor, name: str) -> None:
        shots = read_shots(data, pool.model, device=place, batch_size=images)
        shots = Shots(tuple(b.float() / 255 for b in shots.batches), shots.labels)
        source = read_shots(load_dataset("cifar10", split="val"), pool.model, device=place,
                            batch_size=250)  # fmt: skip
        parts = []
        for start in range(0, len(soups), 5):
            if time.monotonic() > until:
                print(f"{name}: out of time after {start} of {len(soups)} soups", flush=True)
                break
            found = evaluate_under(
                pool, soups[start : start + 5], shots, aims, source.batches,
                by_norm=protocol.by_norm, **settings,
            )  # fmt: skip
            parts.append(found)
            write(out / f"{family}-{name}.npz", parts, data, pool.members)
        last = parts[-1] if parts else {}
        print(f"{family} {name}: {len(parts)} parts", {k: m.accuracy().round(3).tolist()
              for k, m in last.items()}, flush=True)  # fmt: skip

    pool = Pool({role: there[role] for role in SOUPED}, place)
    attacked(pool, torch.eye(4, dtype=torch.float64), "members")
    for role in ("max", "sat"):
        if role in there:
            attacked(Pool({role: there[role]}, place), torch.ones(1, 1, dtype=torch.float64), role)
    if "other" in there:
        control = Pool({"linf": there["linf"], "other": there["other"]}, place)
        attacked(control, line(0, 1, 0.2, 2, 0, 1), "control")
    attacked(pool, soups_of_interest(), "soups")


def write(path: Path, parts: list, data: Dataset, names: tuple[str, ...]) -> None:
    """All conditions of all soups so far in one file."""
    arrays: dict[str, np.ndarray] = {
        f"correct:{key}": np.packbits(np.concatenate([p[key].correct for p in parts]), axis=1)
        for key in parts[0]
    }
    arrays["weights"] = np.concatenate([next(iter(p.values())).weights for p in parts])
    facts = {"n": len(data), "data": str(data), "fingerprint": data.fingerprint,
             "members": list(names)}  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, facts=json.dumps(facts), **arrays)


def shift(
    run: Path, family: str, out: Path, images: int, severities: list[int], device: str, until: float
) -> None:
    """The 480 affine soups on clean and corrupted images; statistics once per soup."""
    place = pick_device(device)
    there = members(run, family)
    pool = Pool({role: there[role] for role in SOUPED}, place)
    data = load_dataset("cifar10", split="test", limit=images)
    plain = read_shots(data, pool.model, device=place, batch_size=images)
    source = read_shots(
        load_dataset("cifar10", split="val"), pool.model, device=place, batch_size=250
    )
    pixels = torch.cat(plain.batches)
    cells = {"clean": pixels}
    for name in CORRUPTIONS:
        for severity in severities:
            cells[f"{name}:{severity}"] = corrupt(pixels, name, severity, seed=0, profile="cifar")
    everything = Shots(tuple(cells.values()), plain.labels.repeat(len(cells)))
    soups = affine_grid(4, low=-0.4, high=1.4, step=0.2)
    correct, losses = [], []
    with torch.autocast(place.type, torch.bfloat16, enabled=place.type == "cuda"):
        for start in range(0, len(soups), 40):
            if time.monotonic() > until:
                print(f"shift: out of time after {start} soups", flush=True)
                break
            found = evaluate(pool, soups[start : start + 40], everything, source.batches)
            correct.append(found.correct)
            losses.append(found.loss)
    alone, ensemble = members_and_ensemble(pool, everything)
    facts = {
        "n": images, "cells": list(cells), "data": str(data), "members": list(pool.members),
        "fingerprint": data.fingerprint, "soups": sum(map(len, correct)),
    }  # fmt: skip
    # Losses break ties among equally accurate soups; eight bits on a log scale suffice for that.
    loss = np.concatenate(losses) if losses else np.zeros((0, 0), dtype=np.float32)
    coarse = np.clip(np.round(np.log2(np.maximum(loss, 2.0**-16)) * 8 + 128), 0, 255)
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        out / f"{family}-shift.npz",
        facts=json.dumps(facts),
        weights=soups[: facts["soups"]].numpy(),
        correct=np.packbits(np.concatenate(correct), axis=1) if correct else np.zeros((0, 0)),
        loss=coarse.astype(np.uint8),
        alone=np.packbits(alone, axis=1),
        ensemble=np.packbits(ensemble),
    )
    print(f"{family} shift: {facts['soups']} soups x {len(everything)} images", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["threats", "shift"])
    parser.add_argument("run", type=Path)
    parser.add_argument("--family", choices=list(FAMILIES), default="full")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--severities", default="1,3,5")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=1e9, help="Stop, with what there is.")
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    torch.set_grad_enabled(True)
    if given.what == "threats":
        threats(given.run, given.family, given.out, given.images, given.device, until)
        return
    levels = [int(level) for level in given.severities.split(",")]
    shift(given.run, given.family, given.out, given.images, levels, given.device, until)


if __name__ == "__main__":
    sys.exit(main())

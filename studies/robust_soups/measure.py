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
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tables import read_attacked, share
from torch import Tensor

from stockpot.attack.folding import renewed_copy
from stockpot.attack.threat import Threats
from stockpot.corrupt.apply import corrupt
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.measure.adversarial import named_protocol
from stockpot.models.device import pick_device
from stockpot.pool.batch_norm import Statistics, recompute_batch_norm
from stockpot.pool.family import read_pool
from stockpot.pool.pool import Pool
from stockpot.season.criteria import calibrated_ensemble, judge_all, temperature
from stockpot.season.evaluate import logits_of
from stockpot.season.grids import affine_grid
from stockpot.season.robust import evaluate_under, line
from stockpot.season.shots import read_shots

FAMILIES = {
    "full": {"linf": "linf", "l2": "linf-l2", "l1": "linf-l1", "nominal": "linf-nominal",
             "other": "linf-other", "sat": "linf-sat", "max": "linf-max"},
    "quarter": {"linf": "cifar10-linf", "l2": "cifar10-l2", "l1": "cifar10-l1",
                "nominal": "cifar10-nominal", "other": "cifar10-other", "sat": "cifar10-sat",
                "max": "cifar10-max"},
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


def threats(
    run: Path,
    family: str,
    out: Path,
    images: int,
    part: tuple[int, int],
    device: str,
    until: float,
    *,
    joint_only: bool = False,
) -> None:
    """Attack members, the control's line and the soups of interest, or every n-th of those.

    With `joint_only`, the models that were trained against several norms at once, and no other.
    """
    place = pick_device(device)
    there = members(run, family)
    data = load_dataset("cifar10", split="test", limit=images)
    protocol = named_protocol("soups-cifar")
    settings = dict(protocol.params) | {"precision": "bf16", "forward": "folded"}
    aims = Threats(protocol.threats)

    def attacked(pool: Pool, soups: Tensor, name: str) -> None:
        shots = read_shots(data, pool.model, device=place, batch_size=images)
        shots = replace(shots, batches=tuple(b.float() / 255 for b in shots.batches))
        source = read_shots(load_dataset("cifar10", split="val"), pool.model, device=place,
                            batch_size=250)  # fmt: skip
        pool.statistics = Statistics(images=source.batches)
        parts = []
        for start in range(0, len(soups), 5):
            if time.monotonic() > until:
                print(f"{name}: out of time after {start} of {len(soups)} soups", flush=True)
                break
            found = evaluate_under(
                pool, soups[start : start + 5], shots, aims,
                by_norm=protocol.by_norm, **settings,
            )  # fmt: skip
            parts.append(found)
            write(out / f"{family}-{name}.npz", parts, data, pool.members)
        last = parts[-1] if parts else {}
        print(f"{family} {name}: {len(parts)} parts", {k: m.accuracy().round(3).tolist()
              for k, m in last.items()}, flush=True)  # fmt: skip

    pool = read_pool({role: there[role] for role in SOUPED}, place)
    first, parts = part
    name = "soups" if parts == 1 else f"soups{first}"
    if first == 0:
        for role in ("max", "sat"):
            if role in there:
                alone = read_pool({role: there[role]}, place)
                attacked(alone, torch.ones(1, 1, dtype=torch.float64), role)
        if joint_only:
            return
        attacked(pool, torch.eye(4, dtype=torch.float64), "members")
        if "other" in there:
            control = read_pool({"linf": there["linf"], "other": there["other"]}, place)
            attacked(control, line(0, 1, 0.2, 2, 0, 1), "control")
    soups = soups_of_interest()[first::parts]
    if known := read_attacked(out / f"{family}-soups.npz"):  # all parts that there are
        there_already = torch.from_numpy(known.weights)
        missing = [row for row in soups if float((there_already - row).abs().sum(1).min()) > 1e-6]
        soups, name = torch.stack(missing) if missing else soups[:0], f"{name}-rest"
    attacked(pool, soups, name)


def control(run: Path, family: str, out: Path, images: int, device: str) -> None:
    """Clean accuracy on the control's line with BatchNorm statistics estimated anew.

    Averaged statistics could be what breaks soups of strangers; this tells them apart from weights.
    """
    place = pick_device(device)
    there = members(run, family)
    pool = read_pool({"linf": there["linf"], "other": there["other"]}, place)
    shots = read_shots(
        load_dataset("cifar10", split="test", limit=images),
        pool.model, device=place, batch_size=250,
    )  # fmt: skip
    source = read_shots(
        load_dataset("cifar10", split="val"), pool.model, device=place, batch_size=250
    )
    rows = []
    for weights in line(0, 1, 0.2, 2, 0, 1):
        model = pool.load(weights)
        if 0 < weights[1] < 1:
            recompute_batch_norm(model, source.batches)
        right = shots.scorer.right(logits_of(model, shots), slice(None))[:, 0].cpu().numpy()
        rows.append({"weight of the other": float(weights[1]), "clean": share(right)})
        print(rows[-1], flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{family}-control-renewed.json").write_text(json.dumps(rows, indent=1) + "\n")


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
    run: Path,
    family: str,
    out: Path,
    images: int,
    severities: list[int],
    seeds: int,
    device: str,
    until: float,
    *,
    convex: bool = False,
    every: int = 1,
    source_images: int = 1000,
) -> None:
    """The 480 affine (or 56 convex) soups, or a sample, on clean and corrupted images."""
    place = pick_device(device)
    there = members(run, family)
    pool = read_pool({role: there[role] for role in SOUPED}, place)
    data = load_dataset("cifar10", split="test", limit=images)
    plain = read_shots(data, pool.model, device=place, batch_size=images)
    known = load_dataset("cifar10", split="val", limit=source_images)
    source = read_shots(known, pool.model, device=place, batch_size=500)
    pixels = torch.cat(plain.batches)
    soups = (
        affine_grid(4, low=0, high=1, step=0.2)
        if convex
        else affine_grid(4, low=-0.4, high=1.4, step=0.2)
    )
    if every > 1:  # a sample of the grid, and the members themselves
        soups = torch.cat([soups[::every], torch.eye(4, dtype=soups.dtype)])
        soups = torch.unique(soups, dim=0)
    arrays: dict[str, np.ndarray] = {"weights": soups.numpy()}
    facts = {
        "n": images, "n_source": len(source), "data": str(data), "members": list(pool.members),
        "fingerprint": data.fingerprint, "soups": len(soups),
    }  # fmt: skip
    names: list[str] = []
    chosen: list[dict[str, object]] = []
    out.mkdir(parents=True, exist_ok=True)
    # Labelled images of the members' own kind are met first, then one severity after another, so
    # that what there is when time is out covers all corruptions.
    cells = {"source": torch.cat(source.batches), "clean": pixels}
    source_logits: tuple[Tensor, Tensor] | None = None
    for severity in severities:
        for name in CORRUPTIONS:
            cells[f"{name}:{severity}"] = corrupt(pixels, name, severity, seed=0, profile="cifar")
        kept = look(pool, soups, cells, source.batches, place, until - 5)
        if kept is None:
            print(f"{family} shift: out of time at severity {severity}", flush=True)
            break
        alone = look(pool, torch.eye(4), cells, source.batches, place) or {}
        source_logits = source_logits or (kept["source"], alone["source"])
        for name in cells:
            labels = source.labels if name == "source" else plain.labels
            arrays |= summary(name, kept[name], alone[name], labels)
        if seeds:
            both = (kept | {"source": source_logits[0]}, alone | {"source": source_logits[1]})
            chosen += without_labels(*both, source.labels, images, seeds)
        names += list(cells)
        cells = {}
        text = json.dumps(facts | {"cells": names, "label_free": chosen})
        np.savez_compressed(out / f"{family}-shift.npz", facts=text, **arrays)
        print(f"{family} shift: {len(soups)} soups, severity {severity} done", flush=True)


def look(
    pool: Pool,
    soups: Tensor,
    cells: dict[str, Tensor],
    source: tuple[Tensor, ...],
    place: torch.device,
    until: float = float("inf"),
) -> dict[str, Tensor] | None:
    """Logits, soups x images x classes, for every cell; none where the time is too short."""
    layout = torch.channels_last
    source = tuple(part.contiguous(memory_format=layout) for part in source)
    pool.statistics = Statistics(images=source)
    pixels = torch.cat(list(cells.values())).contiguous(memory_format=layout)
    # A GPU wants few large batches, a CPU's cache small ones.
    everything = pixels.split(4000 if place.type == "cuda" else 50)
    rows = []
    # bfloat16: the study needs ranks of accuracies, not last digits.
    with torch.inference_mode(), torch.autocast(place.type, torch.bfloat16):
        for weights in soups:
            if time.monotonic() > until:
                return None
            model = pool.load(weights)
            model = renewed_copy(model, everything[0][:8].float() / 255, torch.bfloat16)
            rows.append(torch.cat([model(batch).float() for batch in everything]))
    sizes = [len(batch) for batch in cells.values()]
    return dict(zip(cells, torch.stack(rows).split(sizes, dim=1), strict=True))


def summary(name: str, logits: Tensor, alone: Tensor, labels: Tensor) -> dict[str, np.ndarray]:
    """What is kept of a cell: who is right, losses, and the members and their output ensemble."""
    right = logits.argmax(dim=2) == labels
    together = alone.softmax(dim=2).mean(dim=0).argmax(dim=1) == labels
    singly = alone.argmax(dim=2) == labels
    return {
        f"correct:{name}": np.packbits(right.cpu().numpy(), axis=1),
        f"loss:{name}": coarse(logits, labels),
        f"ensemble:{name}": np.packbits(together.cpu().numpy()),
        f"alone:{name}": np.packbits(singly.cpu().numpy(), axis=1),
    }


def without_labels(
    kept: dict[str, Tensor],
    alone: dict[str, Tensor],
    labels: Tensor,
    images: int,
    seeds: int,
) -> list[dict[str, object]]:
    """The soup that each label-free criterion takes, on half of each cell's images, by seed."""
    chosen: list[dict[str, object]] = []
    here = kept["source"].device
    labels = labels.to(here)
    on_cpu = (kept["source"].cpu(), labels.cpu())
    heats = torch.tensor([temperature(known, on_cpu[1]) for known in on_cpu[0]], device=here)
    for name in kept:
        for seed in range(seeds):
            if name == "source":
                continue
            rows = torch.from_numpy(halves(images, seed)[0]).to(here)
            ensemble = calibrated_ensemble(
                list(alone["source"]), labels, list(alone[name][:, rows])
            )
            for criterion in ("agreement", "entropy", "atc"):
                scores = judge_all(
                    criterion, kept["source"], labels, kept[name][:, rows], ensemble, heats
                )
                best = int(scores.nan_to_num(-torch.inf).argmax())
                chosen.append({"seed": seed, "cell": name, "criterion": criterion, "soup": best})
    return chosen


def halves(images: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to choose on and rows to score on."""
    order = np.random.default_rng([7, seed]).permutation(images)
    return np.sort(order[: images // 2]), np.sort(order[images // 2 :])


def coarse(logits: Tensor, labels: Tensor) -> np.ndarray:
    """Losses in eight bits on a log scale: enough to break ties among equally accurate soups."""
    chances = logits.log_softmax(dim=2)
    loss = -chances.gather(2, labels.to(chances.device).view(1, -1, 1).expand(len(logits), -1, 1))
    steps = (loss[..., 0].clamp(min=2.0**-16).log2() * 8 + 128).round().clamp(0, 255)
    return steps.to(torch.uint8).cpu().numpy()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["threats", "joint", "control", "shift"])
    parser.add_argument("run", type=Path)
    parser.add_argument("--family", choices=list(FAMILIES), default="full")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--part", default="0/1", help="Which share of the soups, such as 1/3.")
    parser.add_argument("--severities", default="1,3,5")
    parser.add_argument("--convex", action="store_true", help="shift: the 56 convex soups alone.")
    parser.add_argument("--every", type=int, default=1, help="shift: every so-many-th soup.")
    parser.add_argument("--source-images", type=int, default=1000, help="shift: to calibrate on.")
    parser.add_argument("--seeds", type=int, default=3, help="Label-free choices; 0 makes none.")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=1e9, help="Stop, with what there is.")
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    torch.set_grad_enabled(True)
    if given.what in ("threats", "joint"):
        number, _, parts = given.part.partition("/")
        part = (int(number), int(parts))
        threats(
            given.run, given.family, given.out, given.images, part, given.device, until,
            joint_only=given.what == "joint",
        )  # fmt: skip
        return
    if given.what == "control":
        control(given.run, given.family, given.out, given.images, given.device)
        return
    levels = [int(level) for level in given.severities.split(",")]
    shift(
        given.run,
        given.family,
        given.out,
        given.images,
        levels,
        given.seeds,
        given.device,
        until,
        convex=given.convex,
        every=given.every,
        source_images=given.source_images,
    )


if __name__ == "__main__":
    sys.exit(main())

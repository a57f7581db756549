"""Soups of a robust family on corrupted images: what few labels, or none, choose among them.

    python studies/robust_soups/study.py runs/cifar_robust --out runs/study

runs the affine soups of four members over corrupted images. Members that the run lacks are taken
from the zoo, where it has them. What is finished lies in OUT/FAMILY. The findings about attacks are
those of stretch.py.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.checkpoints.resolve import zoo_folder
from stockpot.corrupt.apply import corrupt
from stockpot.datasets.load import load_dataset
from stockpot.engine import pick_device
from stockpot.models.forward.folding import renewed_copy
from stockpot.pool.batch_norm import Statistics
from stockpot.pool.family import read_pool
from stockpot.pool.pool import Pool
from stockpot.results.contrast import halves
from stockpot.season.conditions import Conditions
from stockpot.season.criteria import calibrated_ensemble, judge_all, temperature
from stockpot.season.grids import affine_grid
from stockpot.season.matrix import Matrix
from stockpot.season.ranking import ranking
from stockpot.season.shots import Shots, read_shots

FAMILIES = {
    "full": {"linf": "linf", "l2": "linf-l2", "l1": "linf-l1", "nominal": "linf-nominal"},
    "quarter": {"linf": "cifar10-linf", "l2": "cifar10-l2", "l1": "cifar10-l1",
                "nominal": "cifar10-nominal"},
}  # fmt: skip
SOUPED = ("linf", "l2", "l1", "nominal")
CORRUPTIONS = (
    "gaussian_noise", "motion_blur", "fog", "contrast", "pixelate", "jpeg_compression",
)  # fmt: skip
CRITERIA = ("agreement", "entropy", "atc")


class Study:
    """One family, its images, and how long there is."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.device = pick_device(given.device)
        self.out = given.out / given.family
        self.until = time.monotonic() + given.seconds
        self.images = load_dataset("cifar10", split="test", limit=given.images)
        self.source = load_dataset("cifar10", split="val", limit=given.source_images)
        found = {role: given.run / "models" / name for role, name in FAMILIES[given.family].items()}
        places = {r: path if path.exists() else zoo_folder(path.name) for r, path in found.items()}
        self.members = {role: place for role, place in places.items() if place is not None}
        if missing := [role for role in SOUPED if role not in self.members]:
            sys.exit(f"{given.run} lacks {', '.join(missing)}: train them first, see recipes/.")

    def pool(self, *roles: str) -> tuple[Pool, Shots]:
        """Members by role, and images of their own kind for the statistics of soups."""
        pool = read_pool({role: self.members[role] for role in roles}, self.device)
        source = read_shots(self.source, pool.model, device=self.device, batch_size=250)
        # One rule for members, soups inside and outside, and their ensemble.
        pool.statistics = Statistics(self.given.bn, source.batches)
        return pool, source

    def shift(self) -> None:
        """The 480 affine (or 56 convex) soups, or a sample, on clean and corrupted images."""
        given = self.given
        pool, source = self.pool(*SOUPED)
        plain = read_shots(self.images, pool.model, device=self.device, batch_size=250)
        pixels = torch.cat(list(plain.batches))
        low, high = (0.0, 1.0) if given.convex else (-0.4, 1.4)
        soups = affine_grid(4, low=low, high=high, step=0.2)
        if given.every > 1:  # a sample of the grid, and the members themselves
            soups = torch.cat([soups[:: given.every], torch.eye(4, dtype=soups.dtype)])
            soups = torch.unique(soups, dim=0)
        # Labelled images of the members' own kind are met first, then one severity after another,
        # so that what there is when time is out covers all corruptions.
        cells = {"source": torch.cat(list(source.batches)), "clean": pixels}
        found: dict[str, dict[str, Matrix]] = {"shift": {}, "alone": {}, "ensemble": {}}
        known: dict[str, Tensor] = {}
        chosen: list[dict[str, object]] = []
        for severity in map(int, given.severities.split(",")):
            for name in CORRUPTIONS:
                cells[f"{name}:{severity}"] = corrupt(
                    pixels, name, severity, seed=0, profile="cifar"
                )
            kept = self.look(pool, soups, cells)
            if kept is None:
                break
            alone = self.look(pool, torch.eye(4), cells, until=float("inf")) or {}
            known = known or {"soups": kept["source"], "alone": alone["source"]}
            for name in cells:
                labels = (source if name == "source" else plain).scorer.targets
                together = alone[name].softmax(dim=2).mean(dim=0, keepdim=True).log()
                found["shift"][name] = judged(kept[name], soups, labels)
                found["alone"][name] = judged(alone[name], torch.eye(4), labels)
                found["ensemble"][name] = judged(together, torch.full((1, 4), 0.25), labels)
            if given.seeds:
                chosen += without_labels(
                    soups, kept, alone, known, source.scorer.targets, given.seeds
                )
            cells = {}
            for part, matrices in found.items():
                facts = {"members": list(pool.members), "label_free": chosen, "bn": given.bn}
                Conditions(matrices, facts).save(self.out / part)
            print(f"{given.family} shift: {len(soups)} soups, severity {severity}", flush=True)

    def look(
        self, pool: Pool, soups: Tensor, cells: dict[str, Tensor], until: float | None = None
    ) -> dict[str, Tensor] | None:
        """Logits, soups x images x classes, for every cell; none where the time is too short."""
        pixels = torch.cat(list(cells.values())).contiguous(memory_format=torch.channels_last)
        # A GPU wants few large batches, a CPU's cache small ones.
        batches = pixels.split(4000 if self.device.type == "cuda" else 50)
        rows = []
        # bfloat16: the study needs ranks of accuracies, not last digits.
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16):
            for weights in soups:
                if time.monotonic() > (self.until if until is None else until):
                    return None
                model = renewed_copy(
                    pool.load(weights), batches[0][:8].float() / 255, torch.bfloat16
                )
                rows.append(torch.cat([model(batch).float() for batch in batches]))
        sizes = [len(batch) for batch in cells.values()]
        return dict(zip(cells, torch.stack(rows).split(sizes, dim=1), strict=True))


def judged(logits: Tensor, soups: Tensor, labels: Tensor) -> Matrix:
    """Who is right where, and the losses."""
    chances = logits.float().log_softmax(dim=2)
    own = chances.gather(2, labels.view(1, -1, 1).expand(len(logits), -1, 1))[..., 0]
    right = chances.argmax(dim=2) == labels
    return Matrix(soups.double().numpy(), right.cpu().numpy(), -own.cpu().numpy())


def without_labels(
    soups: Tensor,
    kept: dict[str, Tensor],
    alone: dict[str, Tensor],
    known: dict[str, Tensor],
    labels: Tensor,
    seeds: int,
) -> list[dict[str, object]]:
    """The soup that each label-free criterion takes, on half of each cell's images, by seed."""
    losses = partial(F.cross_entropy, target=labels, reduction="none")
    on_cpu = partial(F.cross_entropy, target=labels.cpu(), reduction="none")
    heats = [temperature(logits, on_cpu) for logits in known["soups"].cpu()]
    right = known["soups"].argmax(dim=2) == labels
    heat = torch.tensor(heats, device=labels.device)
    chosen: list[dict[str, object]] = []
    for name in (cell for cell in kept if cell != "source"):
        for seed in range(seeds):
            rows = torch.from_numpy(halves(kept[name].shape[1], seed)[0]).to(labels.device)
            target = kept[name][:, rows]
            ensemble = calibrated_ensemble(list(known["alone"]), losses, list(alone[name][:, rows]))
            for criterion in CRITERIA:
                scores = judge_all(criterion, known["soups"], right, target, ensemble, heat)
                best = int(ranking(soups, scores.cpu().numpy(), seed=seed)[0])
                chosen.append({"seed": seed, "cell": name, "criterion": criterion, "soup": best})
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="of recipes/cifar_robust or zoo_robust_cifar10")
    parser.add_argument("--family", choices=list(FAMILIES), default="full")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--severities", default="1,3,5")
    parser.add_argument("--convex", action="store_true", help="the convex soups alone")
    parser.add_argument("--every", type=int, default=1, help="every so-many-th soup")
    parser.add_argument("--source-images", type=int, default=1000, help="to calibrate on")
    parser.add_argument("--seeds", type=int, default=3, help="label-free choices; 0 makes none")
    parser.add_argument("--bn", choices=["recompute", "mix", "left"], default="recompute",
                        help="BatchNorm statistics, by one rule for all")  # fmt: skip
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop, with what there is")
    Study(parser.parse_args()).shift()


if __name__ == "__main__":
    main()

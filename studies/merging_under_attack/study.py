"""Attacks on members, merges and ensembles, shown to all of them.

    nice python studies/merging_under_attack/study.py runs/merging_under_attack --pool tasks
    nice python studies/merging_under_attack/study.py runs/merging_under_attack --pool norms
    python studies/merging_under_attack/tables.py runs/merging_under_attack

The pool `norms` of further trainings of its members, for what plan.md has added:

    nice python studies/merging_under_attack/study.py runs/merging-trainings --pool norms \\
        --trainings runs/trainings
    python studies/merging_under_attack/tables.py --trainings runs/merging-trainings

Two cores, about ten minutes with both pools at once. What is finished lies in the folder; stopped
and started again, it goes on. What is chosen, and on which images, says plan.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import stockpot
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.files import write_atomic
from stockpot.measure.measurement import Context, right_flags
from stockpot.measure.transfer import transfer
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_for, load_model
from stockpot.tune.merges import Merges

sys.path.append(str(Path(__file__).parents[1]))
from trainings import ZOO, add_options, asked_for

EXPERT_OF = {
    "cifar10": "clip-cifar10", "mnist": "clip-mnist", "fashion_mnist": "clip-fashion",
    "quickdraw": "clip-quickdraw", "icons": "clip-icons",
}  # fmt: skip
NORMS = {"linf": "8/255", "l2": "128/255", "l1": "12"}
MEMBERS = {"linf": "cifar10-linf", "l2": "cifar10-l2", "l1": "cifar10-l1"}
RADII = ("1/255", "2/255", "4/255", "8/255")
SCALES: dict[str, dict[str, tuple[float, ...]]] = {
    "tasks": {
        "average": (), "task_arithmetic": (0.1, 0.2, 0.3, 0.4, 0.5), "ties": (0.3, 0.6, 1.0, 1.5),
        "tsv_m": (0.5, 0.75, 1.0, 1.25), "iso_c": (0.5, 0.75, 1.0, 1.25), "regmean": (),
    },
    "norms": {
        "average": (), "task_arithmetic": (0.2, 0.35, 0.5, 0.65), "ties": (0.3, 0.65, 1.0, 1.5),
        "breadcrumbs": (0.2, 0.35, 0.5, 0.65), "model_stock": (), "karcher": (),
    },
}  # fmt: skip
"""Pool -> merges, with the scales that they are tried at."""
WHOLE = ("average", "karcher")
"""Of `norms`: merges of all three models; the others add two changes to the third."""
STEPS, QUICK = 10, 5
IMAGES = {"tasks": 48, "norms": 240}
CPU = torch.device("cpu")


class Ensemble(nn.Module):
    """The mean of several classifiers' probabilities, as logits."""

    def __init__(self, models: Sequence[Classifier]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, pixels: Tensor) -> Tensor:
        shares = torch.stack([model(pixels).log_softmax(dim=1) for model in self.models])
        return shares.logsumexp(dim=0)


def ensemble(sources: Sequence[str], data: Dataset) -> Classifier:
    """The ensemble for the classes of some data, at the size of its members."""
    models = [load_for(source, data).eval() for source in sources]
    first = models[0].preprocess.size
    return load_model(Ensemble(models), classes=data.classes, size=first, name="ensemble")


def fused(pool: str, method: str, norms: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """The members of a merge, and its base; `norms`: where the members of that pool lie."""
    if pool == "tasks":
        return {name: name for name in EXPERT_OF.values()}, "clip-base"
    if method in WHOLE:
        return dict(norms), None
    return {name: norms[name] for name in ("l2", "l1")}, norms["linf"]


def learned_from() -> dict[str, Dataset]:
    """Images of each task for the method that looks at some."""
    return {expert: load_dataset(task, split="fit" if task != "icons" else "train", limit=256)
            for task, expert in EXPERT_OF.items()}  # fmt: skip


def held(model: Classifier, data: Dataset, steps: int, **threat: str) -> Tensor:
    """Which images a model gets right after a direct attack."""
    pixels = torch.cat([batch.images for batch in data.batches(256, model.preprocess.fit)])
    parts = [
        stockpot.attack(model, part.float() / 255, labels, steps=steps, **threat).robust
        for part, labels in zip(pixels.split(100), data.labels.split(100), strict=True)
    ]
    return torch.cat(parts)


def under_union(model: Classifier, data: Dataset) -> float:
    """Accuracy under the three norms together, by the quick attack."""
    kept = torch.stack([held(model, data, QUICK, norm=n, eps=e) for n, e in NORMS.items()])
    return float(kept.all(dim=0).float().mean())


def accuracy(models: Sequence[Classifier], data: Sequence[Dataset]) -> float:
    """The mean over datasets, a model for each."""
    found = [right_flags(model, images, Context(), "validation")["all"].mean()
             for model, images in zip(models, data, strict=True)]  # fmt: skip
    return float(sum(found) / len(found))


def choose(pool: str, norms: Mapping[str, str]) -> dict[str, Any]:
    """Radius, scales, and the best member and merge, on validation images."""
    chosen: dict[str, Any] = {"scales": {}, "scores": {}}
    names = list(EXPERT_OF) if pool == "tasks" else ["cifar10"]
    data = [load_dataset(name, split="val", limit=100) for name in names]
    if pool == "tasks":
        few = [load_dataset(name, split="val", limit=40) for name in names]
        chosen["radius"] = radius(few)
    else:
        for name, source in norms.items():
            chosen["scores"][name] = under_union(load_for(source, data[0]).eval(), data[0])
    for method, scales in SCALES[pool].items():
        members, base = fused(pool, method, norms)
        tasks = learned_from() if method == "regmean" else None
        merges = Merges(members, base, data, device=CPU, tasks=tasks)
        found: dict[float | None, float] = {}
        for scale in scales or (None,):
            with merges.merged(method, {} if scale is None else {"scale": scale}) as models:
                score = accuracy(models, data) if pool == "tasks" else under_union(models[0], *data)
            found[scale] = score
        best = max(found, key=lambda scale: (found[scale], -(scale or 0)))
        chosen["scores"][method] = found[best]
        if best is not None:
            chosen["scales"][method] = best
    return chosen


def radius(data: Sequence[Dataset]) -> str:
    """The smallest at which each expert loses half of its accuracy."""
    for eps in RADII:
        left = []
        for expert, images in zip(EXPERT_OF.values(), data, strict=True):
            model = load_for(expert, images).eval()
            right = right_flags(model, images, Context(), "radius")["all"].mean()
            left.append(float(held(model, images, STEPS, norm="linf", eps=eps).float().mean())
                        <= right / 2)  # fmt: skip
        if all(left):
            return eps
    return RADII[-1]


def merge(
    pool: str, chosen: Mapping[str, Any], folder: Path, norms: Mapping[str, str]
) -> dict[str, str]:
    """Write the merges that are not there yet; returns their places by name."""
    places = {}
    for method in SCALES[pool]:
        place = folder / "models" / method
        if not place.exists():
            members, base = fused(pool, method, norms)
            scale = chosen["scales"].get(method)
            settings: dict[str, Any] = {} if scale is None else {"scale": scale}
            if method == "regmean":
                settings["tasks"] = learned_from()
            stockpot.fuse(method, members, base=base, out=place, **settings)
        places[method] = str(place)
    return places


def carry_out(
    pool: str, folder: Path, only: str | None, limit: int | None, norms: Mapping[str, str]
) -> None:
    """Choose, merge, attack and show."""
    start = time.monotonic()
    choices = folder / "chosen.json"
    if not choices.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(choices, json.dumps(choose(pool, norms), indent=1))
    chosen = json.loads(choices.read_text(encoding="utf-8"))
    print(f"{time.monotonic() - start:4.0f} s  chosen", flush=True)
    merges = merge(pool, chosen, folder, norms)
    print(f"{time.monotonic() - start:4.0f} s  merged", flush=True)
    parts = {task: (task, "linf") for task in EXPERT_OF} if pool == "tasks" else {
        norm: ("cifar10", norm) for norm in NORMS
    }  # fmt: skip
    for part, (name, norm) in parts.items():
        if (folder / part).exists() or only not in (None, part):
            continue
        data = load_dataset(name, split="test", limit=limit or IMAGES[pool])
        if pool == "tasks":
            own = {"base": "clip-base", "expert": EXPERT_OF[name]}
            together, eps = list(EXPERT_OF.values()), chosen["radius"]
        else:
            own, together, eps = dict(norms), list(norms.values()), NORMS[norm]
        models: dict[str, Any] = {**own, **merges, "ensemble": ensemble(together, data)}
        makers = [name for name in models if name not in ("base", "ensemble")]
        began = folder / f".{part}"
        transfer(models, data=data, out=began, makers=makers, norm=norm, eps=eps, steps=STEPS,
                 batch_size=80)  # fmt: skip
        began.rename(folder / part)
        print(f"{time.monotonic() - start:4.0f} s  {part}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--pool", choices=list(SCALES), required=True)
    parser.add_argument("--part", help="one task or norm alone, once merges are there")
    parser.add_argument("--limit", type=int, help="fewer images, to try it out")
    add_options(parser)
    given = parser.parse_args()
    if given.trainings is None:
        carry_out(given.pool, given.run / given.pool, given.part, given.limit, MEMBERS)
        return
    if given.pool != "norms":
        parser.error("--trainings: the pool `tasks` has one training")
    for number, lying in asked_for(given).items():
        # The zoo's own training has its answers in outcomes.json.
        if number != ZOO or given.training:
            norms = {norm: lying[name] for norm, name in MEMBERS.items()}
            carry_out(given.pool, given.run / number, given.part, given.limit, norms)


if __name__ == "__main__":
    main()

"""Train pairs of networks apart, merge each pair in every way of plan.md, and score the merges.

    python studies/trained_apart/study.py runs/trained_apart
    python studies/trained_apart/tables.py runs/trained_apart

Every pair has a folder with its networks and, when it is whole, outcomes.json: what was chosen, and
who was right on which image. Killed and started again, it goes on. `--pairs 0` is the first run.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import stockpot
from stockpot.datasets.dataset import Dataset
from stockpot.files import write_atomic
from stockpot.models.classifier import Classifier
from stockpot.recipe import load_recipe
from stockpot.results.packed import pack_bits

RECIPE = Path(__file__).parents[2] / "recipes" / "trained_apart.yaml"
MEMBERS = ("a", "b")
PAIRS = (10, 20, 30, 40, 50)
"""The seed of `a`; that of `b` is one more. The first run was 0."""
EXAMPLES = 512
PERMUTED = {"ridge": 1e9}
GRIDS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "permuted": [("pleas", {"match": m, **PERMUTED}) for m in ("weights", "activations")],
    "zipit chosen": [
        ("zipit", {"alpha": alpha, "beta": beta})
        for alpha, beta in product((0.0, 0.1, 0.3, 1.0), (0.0, 0.125, 1.0))
    ],
    "pleas chosen": [
        ("pleas", {"match": m, "ridge": r})
        for m, r in product(("weights", "activations"), (1e-4, 1e-3, 1e-2, 1e-1))
    ],
}  # fmt: skip


class Study:
    """Two members, the images that merges look at, and those that they are judged by."""

    def __init__(self, run: Path, limit: int | None) -> None:
        self.paths = [run / "models" / name for name in MEMBERS]
        self.members = [stockpot.load_model(path) for path in self.paths]
        few = {"limit": limit} if limit else {}
        self.seen = stockpot.load_dataset("cifar10", split="fit", limit=EXAMPLES)
        self.val = stockpot.load_dataset("cifar10", split="val", **(few or {"limit": 1000}))
        self.test = stockpot.load_dataset("cifar10", split="test", **few)

    def merged(self, method: str, params: dict[str, Any]) -> Classifier:
        """A merge as a model."""
        if method == "average":
            state = stockpot.fuse(method, self.paths)
        else:
            state = stockpot.fuse(method, self.paths, tasks=self.seen, examples=EXAMPLES, **params)
        model = copy.deepcopy(self.members[0])
        model.network.model.load_state_dict(state)
        return model

    def anew(self, model: Classifier) -> Classifier:
        """With BatchNorm's statistics estimated on the images that merges look at."""
        from stockpot.pool.batch_norm import recompute_batch_norm

        again = copy.deepcopy(model)
        recompute_batch_norm(again, [batch.images for batch in batches(again, self.seen, 64)])
        return again


def batches(model: Classifier, data: Dataset, size: int = 250) -> Iterator[Any]:
    return data.batches(size, model.preprocess.fit)


@torch.no_grad()
def probabilities(model: Classifier, data: Dataset) -> Tensor:
    return torch.cat([model(batch.images).softmax(dim=1) for batch in batches(model, data)])


def right(answers: Tensor, data: Dataset) -> Any:
    return (answers.argmax(dim=1) == data.labels).numpy()


def train(folder: Path, seed: int) -> None:
    """Both networks of a pair; what is trained already is left as it is."""
    raw = load_recipe(RECIPE).raw
    only = {key: value for key, value in raw.items() if key not in ("fuse", "measure")}
    seeds = dict(zip(MEMBERS, (seed, seed + 1), strict=True))
    changes = {f"models.new-{name}.seed": of for name, of in seeds.items()}
    changes |= {f"harden.{name}.seed": of for name, of in seeds.items()}
    stockpot.run(only, out=folder, say=print, **changes)


def scored(study: Study) -> dict[str, Any]:
    """Merges of a pair, chosen on validation images and answering the test images once."""

    def on_val(model: Classifier) -> float:
        return float(right(probabilities(model, study.val), study.val).mean())

    chosen: dict[str, Any] = {}
    grids: dict[str, dict[str, float]] = {}
    models: dict[str, Classifier] = {"average as it is": study.merged("average", {})}
    models["average"] = study.anew(models["average as it is"])
    for name in ("zipit", "pleas"):
        models[name] = study.merged(name, {})
    for name, grid in GRIDS.items():
        tried = [study.merged(*point) for point in grid]
        found = [on_val(model) for model in tried]
        best = int(np.argmax(found))
        chosen[name], models[name] = grid[best][1], tried[best]
        grids[name] = {
            json.dumps(point[1]): score for point, score in zip(grid, found, strict=True)
        }
    members = dict(zip(MEMBERS, study.members, strict=True))
    answers = {name: probabilities(model, study.test) for name, model in (members | models).items()}
    answers["ensemble"] = (answers["a"] + answers["b"]) / 2
    return {
        "n": len(study.test),
        "chosen": chosen,
        "validation": {
            "grids": grids,
            "merges": {name: on_val(model) for name, model in models.items()},
            "members": {name: on_val(model) for name, model in members.items()},
        },
        "right": {name: pack_bits(right(found, study.test)) for name, found in answers.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, nargs="+", default=PAIRS, help="seeds of `a`")
    parser.add_argument("--limit", type=int, help="judge by so few images, for a trial")
    given = parser.parse_args()
    for seed in given.pairs:
        folder = given.out / f"{seed}-{seed + 1}"
        file = folder / "outcomes.json"
        if file.exists():
            continue
        train(folder, seed)
        found = scored(Study(folder, given.limit))
        write_atomic(file, json.dumps(found, indent=1) + "\n")
        print(f"{folder.name}: merged and scored", flush=True)


if __name__ == "__main__":
    main()

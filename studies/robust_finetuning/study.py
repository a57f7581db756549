"""Make and measure what plan.md names: choices on validation pictures, then seed after seed.

    stockpot data get cifar10 && stockpot data get quickdraw
    python studies/robust_finetuning/study.py runs/masks --minutes 93
    python studies/robust_finetuning/tables.py runs/masks

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
from experiments import Experiment, experiments
from numpy.typing import NDArray
from torch import Tensor

import stockpot
from stockpot.datasets.dataset import Dataset
from stockpot.explain.relevance import normalised
from stockpot.files import json_once, write_atomic
from stockpot.measure.object_masks import rates
from stockpot.models.classifier import Classifier
from stockpot.results.contrast import level_with_best
from stockpot.results.groups import by_group
from stockpot.results.packed import pack_bits

SEEDS = tuple(range(200, 240))
MASK_SEEDS = SEEDS[:8]
"""Those of which M5 is asked."""
TRIAL = 300
"""The seed with which settings are chosen; it is not judged."""
RATES, BETAS = (1e-4, 3e-4, 1e-3), (0.3, 1.0, 2.0, 6.0)
ALPHAS = tuple(round(0.1 * tenth, 1) for tenth in range(1, 10))
COVERAGES = (0.39, 0.25)
"""Of even and of odd seeds."""
ALPHA = 0.5
"""The paper's share of the tuned model in WiSE-FT, and in the teacher of WiSE-KD."""
FIRST: dict[str, Any] = {"lr": 1e-3, "beta": 6.0, "alpha": {}, "validation": {}}
"""What the first run chose for contexts."""
THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
TUNING = {"batch_size": 16, "weight_decay": 0.1, "augmentations": ()}
START = TUNING | {"epochs": 4, "batch_size": 64, "lr": 1e-3, "augmentations": ("flip", "crop")}
MASKED = {
    "no-mask": {"mask": "none"},
    "object-none": {"mask": "object", "fill": "none"},
    "object-single": {"mask": "object", "fill": "single"},
    "object-multi": {"mask": "object", "fill": "multi"},
    "random-single": {"mask": "random", "fill": "single"},
    "context-single": {"mask": "context", "fill": "single"},
    "object-wise-kd": {"mask": "object", "fill": "single", "logit_weight": 1.0},
}
KEPT = ("vanilla", "object-single")
"""Models that others are made from."""
MIXED = {"wise-ft": KEPT[0], "object-wise": KEPT[1],
         "wise-ft-level": KEPT[0], "object-wise-level": KEPT[1]}  # fmt: skip
"""What is mixed with the start: at the paper's share, or at the one that is chosen."""
MODELS = ("vanilla", *MASKED, "wise-kd", *MIXED)
Settings = dict[str, Any]


class Study:
    """One experiment in its folder."""

    def __init__(self, given: Experiment, folder: Path) -> None:
        self.given, self.folder = given, folder / given.name
        self.zero = self.folder / "zero-shot"

    def answers(self, seed: int, model: str) -> Path:
        """The file that says on which pictures a model of a seed was right."""
        return self.folder / "answers" / f"s{seed}-{model}.json"

    def start(self, small: bool) -> None:
        """The model that tuning starts from, as a folder."""
        source: str | Path = "clip-base"
        if self.given.name == "contexts":
            mixed = stockpot.load_dataset(
                "object_on_context", split="train", shift="shuffled", seed=1
            ).limited(128 if small else None)
            source = self.folder / "foundation"
            stockpot.harden("vanilla", "clip-base", mixed, out=source, **START)
        stockpot.harden("vanilla", source, self.given.train, epochs=0, out=self.zero)

    def tuned(self, name: str, seed: int, settings: Settings) -> Classifier:
        """One model of one seed, at these settings."""
        place = self.folder / f"s{seed}"
        out = place / name if name in KEPT else None
        if name in MIXED:
            member = MIXED[name]
            chosen = name.endswith("-level")
            return self.mixed(place / member, settings["alpha"][member] if chosen else ALPHA)
        common = TUNING | {"epochs": 1, "lr": settings["lr"], "seed": seed, "out": out}
        teacher = {}
        if name.endswith("wise-kd"):
            teacher["teacher"] = str(self.wise(place / "vanilla", ALPHA))
        if name == "vanilla":
            return stockpot.harden("vanilla", self.zero, self.given.train, **common)
        if name == "wise-kd":
            return stockpot.harden("wise_kd", self.zero, self.given.train, **common, **teacher)
        own = {"feature_scale": "normalised", "beta": settings["beta"], **MASKED[name], **teacher}
        coverage = COVERAGES[seed % 2]
        if own["mask"] == "random":
            own["rate"] = coverage
        elif own["mask"] != "none":
            own["threshold"] = settings["thresholds"][own["mask"]][str(coverage)]
        return stockpot.harden("counterfactual", self.zero, self.given.train, **common, **own)

    def mixed(self, member: Path, alpha: float) -> Classifier:
        """WiSE: between the start and a tuned model."""
        return stockpot.load_model(self.wise(member, alpha))

    def wise(self, member: Path, alpha: float) -> Path:
        """The same as a folder."""
        out = member.with_name(f"{member.name}-wise-{alpha}")
        return (
            out
            if out.is_dir()
            else stockpot.fuse("wise_ft", [self.zero, member], alpha=alpha, out=out)
        )

    def thresholds(self) -> dict[str, dict[str, float]]:
        """At which shares of the largest relevance masks of the start cover what is wanted."""
        cells = normalised(relevance(stockpot.load_model(self.zero), self.given.train)).flatten()
        return {
            "object": {str(c): float(cells.quantile(1 - c)) for c in COVERAGES},
            "context": {str(c): float(cells.quantile(c)) for c in COVERAGES},
        }

    def on_validation(self, model: Classifier) -> NDArray[np.bool_]:
        if self.given.validation is None:
            raise ValueError("nothing is chosen here")
        return right(model, {"validation": self.given.validation})["validation"]

    def choose(self) -> Settings:
        """Rate, beta and both alphas, on validation pictures inside, or those of the first run."""
        shown: dict[str, dict[str, float]] = {}
        settings: Settings = {"thresholds": self.thresholds(), "beta": BETAS[0]}
        if self.given.name == "contexts":
            return settings | FIRST

        def trial(name: str) -> NDArray[np.bool_]:
            # A model of the last value must not be taken for this one.
            study = Study(
                self.given, self.folder / "trials" / f"{settings['lr']}-{settings['beta']}"
            )
            study.zero = self.zero
            return self.on_validation(study.tuned(name, TRIAL, settings))

        tried = {}
        for settings["lr"] in RATES:
            tried[settings["lr"]] = trial("vanilla")
        shown["rate"] = {str(rate): float(found.mean()) for rate, found in tried.items()}
        settings["lr"] = max(RATES, key=lambda rate: (tried[rate].mean(), -rate))
        tried = {}
        for settings["beta"] in BETAS:
            tried[settings["beta"]] = trial("object-single")
        shown["beta"] = {str(beta): float(found.mean()) for beta, found in tried.items()}
        settings["beta"] = max(level_with_best(tried))
        where = self.folder / "trials"
        places = {"vanilla": f"{settings['lr']}-{BETAS[0]}",
                  "object-single": f"{settings['lr']}-{settings['beta']}"}  # fmt: skip
        settings["alpha"] = {}
        for name, place in places.items():
            member = where / place / self.given.name / f"s{TRIAL}" / name
            tried = {alpha: self.on_validation(self.mixed(member, alpha)) for alpha in ALPHAS}
            shown[f"alpha of {name}"] = {str(a): float(found.mean()) for a, found in tried.items()}
            settings["alpha"][name] = min(level_with_best(tried))
        return settings | {"validation": shown}

    def masks(self, model: Classifier) -> dict[str, dict[str, list[float]]]:
        """How much of the pictures and of the objects is masked, by concept."""
        data = self.given.sets["inside"]
        if data.masks is None:
            raise ValueError("the pictures have no masks")
        cells = normalised(relevance(model, data))
        groups = np.asarray(data.columns["concept"])
        found = {}
        for threshold in THRESHOLDS:
            table = rates(cells > threshold, data.masks).double().numpy()
            found[str(threshold)] = {
                kind: [round(float(share), 5) for share in by_group(table[:, column], groups)]
                for column, kind in enumerate(("picture", "object", "iou"))
            }
        return found

    def coverage(self, model: Classifier, threshold: float) -> float:
        """The share of the training pictures that a tuned model's object mask covers."""
        cells = normalised(relevance(model, self.given.train.limited(160)))
        return float((cells > threshold).float().mean())


def relevance(model: Classifier, data: Dataset) -> Tensor:
    parts = [
        stockpot.explain(model, batch.images, batch.labels, batch_size=64)
        for batch in data.batches(64, model.preprocess.fit)
    ]
    return torch.cat(parts)


def right(model: Classifier, sets: dict[str, Dataset]) -> dict[str, NDArray[np.bool_]]:
    """On which pictures of each set the model is right."""
    cells = stockpot.measure(
        {"model": model.eval()}, {"clean": {"per_class": False}}, data=sets, device="cpu",
        batch_size=64,
    )  # fmt: skip
    return {cell.key.data: cell.outcome("correct") for cell in cells}


def answers(study: Study, name: str, seed: int, settings: Settings) -> dict[str, Any]:
    """A model made and asked."""
    begun = time.monotonic()
    model = study.tuned(name, seed, settings)
    found = right(model, study.given.sets)
    kept: dict[str, Any] = {"right": {key: pack_bits(flags) for key, flags in found.items()}}
    if name == "object-single":
        threshold = settings["thresholds"]["object"][str(COVERAGES[seed % 2])]
        kept["coverage"] = round(study.coverage(model, threshold), 4)
        if study.given.name == "contexts":
            kept["masks"] = study.masks(model)
    print(f"{study.given.name} s{seed} {name}: {time.monotonic() - begun:.0f} s", flush=True)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=93)
    parser.add_argument("--small", action="store_true", help="few pictures, for a trial")
    given = parser.parse_args()
    torch.set_num_threads(1)
    studies = [Study(each, given.out) for each in experiments(MODELS, given.small)]
    begun = json_once(given.out / "begun.json", time.time)
    until = begun + 60 * given.minutes
    chosen, starts = {}, {}
    for study in studies:
        study.start(given.small)
        chosen[study.given.name] = json_once(study.folder / "chosen.json", study.choose)
        start = study.folder / "zero-shot.json"
        starts[study.given.name] = json_once(start, lambda s=study: zero(s))
    todo = [
        (seed, study, name)
        for seed in SEEDS
        for study in studies
        if asked(study, seed)
        for name in study.given.models
    ]
    for seed, study, name in todo:
        path = study.answers(seed, name)
        if time.time() < until or path.is_file():
            settings = chosen[study.given.name]
            json_once(path, lambda s=study, n=name, k=seed, c=settings: answers(s, n, k, c))
    write_atomic(given.out / "outcomes.json", gathered(studies, chosen, starts, until))


def asked(study: Study, seed: int) -> bool:
    """Whether a seed has models of the experiment."""
    return study.given.name != "contexts" or seed in MASK_SEEDS


def zero(study: Study) -> dict[str, Any]:
    """The start, asked."""
    model = stockpot.load_model(study.zero)
    found = right(model, study.given.sets)
    kept: dict[str, Any] = {"right": {key: pack_bits(flags) for key, flags in found.items()}}
    return kept | ({"masks": study.masks(model)} if study.given.name == "contexts" else {})


def in_time(path: Path, until: float) -> bool:
    """Whether a model was asked before the minutes were over."""
    return path.is_file() and path.stat().st_mtime <= until


def gathered(
    studies: list[Study], chosen: dict[str, Settings], starts: dict[str, Any], until: float
) -> str:
    """All seeds that were whole in time as one text."""
    whole = [
        seed
        for seed in SEEDS
        if all(
            in_time(study.answers(seed, model), until)
            for study in studies
            if asked(study, seed)
            for model in study.given.models
        )
    ]
    found: dict[str, Any] = {"seeds": whole}
    for study in studies:
        name = study.given.name
        models = {
            model: {
                str(seed): json_once(study.answers(seed, model), dict)
                for seed in whole
                if asked(study, seed)
            }
            for model in study.given.models
        }
        sets = {
            key: {"n": len(data), "groups": study.given.clusters(key),
                  "fingerprint": data.fingerprint[:16]}
            for key, data in study.given.sets.items()
        }  # fmt: skip
        found[name] = {"chosen": chosen[name], "sets": sets, "zero-shot": starts[name]} | models
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    main()

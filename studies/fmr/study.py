"""Train the networks, oracles and autoencoders of plan.md and search against every network.

    stockpot data get mnist fashion_mnist
    python studies/fmr/study.py runs/fmr
    python studies/fmr/tables.py runs/fmr

Everything is kept as it comes: a second call does only what is missing. One dataset is done whole
before the next, in the order of plan.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from searches import PAIR, SEEDS, Record, Searches, cell_name, outcomes, right

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.generator import Generator
from stockpot.dynamic.generators import generators
from stockpot.dynamic.oracle import Oracle, Setting
from stockpot.dynamic.oracles import oracles
from stockpot.dynamic.oracles.networks import expert_for
from stockpot.dynamic.training.corpus import Corpus, Source, gather
from stockpot.dynamic.training.fit import Plan, fit
from stockpot.dynamic.training.quality import quality
from stockpot.files import write_atomic
from stockpot.harden.run import harden
from stockpot.models.autoencoder.coders import Architecture
from stockpot.models.autoencoder.files import save_autoencoder
from stockpot.models.autoencoder.model import Autoencoder
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_model
from stockpot.models.new import new_model
from stockpot.results.packed import pack_bits

DATA = ("mnist", "fashion_mnist")
IMAGES = 200
"""Test images that are searched around."""
PILOT = range(59_000, 59_060)
"""Validation images by which steps are chosen."""
# Rows of the 60,000 training images. The last 1,000 are the validation images.
TESTED, JUDGING = range(6_000), range(40_000)
LEARNED = {"vqgan": range(10_000, 30_000), "kl": range(30_000, 50_000)}
LARGER = 10
"""The larger step of G4, in own steps."""

LENET: dict[str, Any] = {"architecture": "lenet", "image_size": 28}
RESNET: dict[str, Any] = {"architecture": "small_resnet", "stem_stride": 2, "layer_type": "basic",
                          "depths": [1, 1, 1]}  # fmt: skip
SMALL = RESNET | {"embedding_size": 16, "hidden_sizes": [16, 32, 64]}
LARGE = RESNET | {"embedding_size": 24, "hidden_sizes": [24, 48, 96]}
PLAIN: dict[str, Any] = {"method": "nominal", "epochs": 8, "batch_size": 128, "lr": 0.003}
AGAINST = {"method": "adversarial", "norm": "linf", "eps": 0.1, "steps": 4, "epochs": 4,
           "batch_size": 128, "lr": 0.002}  # fmt: skip
# From random weights a LeNet learns nothing from attacked images; these start from a trained one.
KINDS: dict[str, dict[str, Any]] = {
    "plain": PLAIN | {"new": LENET, "augmentations": ("crop",)},
    "affine": PLAIN | {"new": LENET, "augmentations": ("affine", "crop")},
    "colour": PLAIN | {"new": LENET, "augmentations": ("crop", "colour")},
    "resnet": PLAIN | {"new": SMALL, "augmentations": ("crop",), "epochs": 5},
    "pgd": AGAINST | {"start": "plain", "augmentations": ("crop",)},
    "pgd-colour": AGAINST | {"start": "colour", "augmentations": ("crop", "colour")},
}
JUDGE = {"method": "nominal", "epochs": 2, "batch_size": 256, "lr": 0.004, "new": LARGE}
ALL = ("affine", "crop", "colour")
JUDGES: dict[str, dict[str, Any]] = {
    "judge-1": JUDGE | {"augmentations": ALL, "seed": 100},
    "judge-2": JUDGE | {"augmentations": ALL, "seed": 101},
    "judge-3": JUDGE | {"augmentations": ("crop",), "seed": 102},
}
MEMBERS = {"first": ("judge-1", "judge-2"), "second": ("judge-3",)}
LATENTS = Architecture(channels=8, multipliers=(1, 2, 4), groups=4, latent_channels=8,
                       code_size=8, codes=256, middle_attention=False)  # fmt: skip
FITTING = Plan(steps=1000, batch=32, lr=4e-3, fooling=0.0)


class Learned:
    """The autoencoders, one pair for all data."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def folder(self, name: str) -> Path:
        return self.run / "autoencoders" / name

    def train(self) -> None:
        for seed, (name, rows) in enumerate(LEARNED.items()):
            if (self.folder(name) / "fit.json").is_file():
                continue
            start = time.process_time()
            train = {data: load_dataset(data, split="train") for data in DATA}
            sources = [Source(data, gather(train[data].take(rows), 28), 0.5) for data in DATA]
            shape = (
                LATENTS if name == "vqgan" else Architecture(**(LATENTS.to_dict() | {"codes": 0}))
            )
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = Autoencoder(shape)
            plan = Plan(**(vars(FITTING) | {"seed": seed}))
            corpus = Corpus(sources, torch.device("cpu"), mirrored=False)
            said = fit(model, corpus, None, plan, said=lambda step, seen: print(step, seen))
            save_autoencoder(model, self.folder(name))
            held = {data: gather(train[data].take(range(59_000, 60_000)), 28) for data in DATA}
            good = {data: quality(model, pixels)._asdict() for data, pixels in held.items()}
            told = {"quality": good, "seen": said, "cpu_seconds": time.process_time() - start}
            write_atomic(self.folder(name) / "fit.json", json.dumps(told, indent=1) + "\n")
            print(name, told, flush=True)

    @cache  # noqa: B019
    def generator(self, name: str) -> Generator:
        if name not in LEARNED:
            return generators.get(name)()
        return generators.get(name)(autoencoder=str(self.folder(name)))


class Study(Searches):
    """One dataset."""

    def __init__(self, run: Path, data: str, learned: Learned) -> None:
        self.run, self.data, self.learned = run / data, data, learned
        self.train = load_dataset(data, split="train")
        self.test = load_dataset(data, split="test")
        self.images, self.asked, self.kinds = searched_images(self.test), self.test, tuple(KINDS)
        self.pilot = self.train.take(PILOT)

    # What is trained.

    def trained(self) -> None:
        for name, recipe in JUDGES.items():
            self.fitted(name, recipe["seed"], recipe, JUDGING)
        for seed, (kind, recipe) in product(SEEDS, KINDS.items()):
            self.fitted(f"{kind}-{seed}", seed, recipe, TESTED)

    def fitted(self, name: str, seed: int, recipe: dict[str, Any], rows: range) -> None:
        out = self.run / "models" / name
        if out.is_dir():
            return
        start = time.process_time()
        settings = {k: v for k, v in recipe.items() if k not in ("method", "new", "start", "seed")}
        if "new" in recipe:
            begin = self.run / "begun" / name
            config = dict(recipe["new"])
            if not begin.is_dir():
                new_model(
                    config.pop("architecture"), self.train, begin, size=28, seed=seed, **config
                )
        else:
            begin = self.run / "models" / f"{recipe['start']}-{seed}"
        images = self.train.take(rows)
        harden(recipe["method"], str(begin), images, out=out, seed=seed, **settings)
        print(f"{self.data} {name}: {time.process_time() - start:.0f} s", flush=True)

    @cache  # noqa: B019
    def model(self, name: str) -> Classifier:
        return load_model(str(self.run / "models" / name)).eval()

    @cache  # noqa: B019
    def oracle(self, name: str) -> Oracle:
        setting = Setting(self.test.classes, self.test.templates, torch.device("cpu"), self.data)
        members = [{"oracle": "classifier", "model": str(self.run / "models" / judge)}
                   for judge in MEMBERS[name]]  # fmt: skip
        if len(members) == 1:
            return oracles.get("classifier")(setting, model=members[0]["model"])
        return oracles.get("ensemble")(setting, members=members, combine="margin")

    def generator(self, name: str) -> Generator:
        return self.learned.generator(name)

    # What is measured.

    @cached_property
    def steps(self) -> dict[str, float]:
        """The steps that were chosen, and that of a formula, which brings its own."""
        return super().steps | {"warp": self.generator("warp").step}

    def cells(self) -> Iterator[tuple[str, Callable[[], Record]]]:
        """Every cell in the order of plan.md."""
        yield "clean", self.clean
        yield "static", self.static
        for seed, kind, generator in product(SEEDS, KINDS, LEARNED):
            name = cell_name(kind, seed, generator)
            yield name, lambda k=kind, s=seed, g=generator: self.main(k, s, g)
        for seed, kind, generator in product(SEEDS, PAIR, LEARNED):
            name = cell_name(kind, seed, generator, "larger")
            yield name, lambda k=kind, s=seed, g=generator: self.larger(k, s, g)
        for seed, kind, generator in product(SEEDS, PAIR, LEARNED):
            name = cell_name(kind, seed, generator, "first")
            yield name, lambda k=kind, s=seed, g=generator: self.first(k, s, g)
        for seed, kind in product(SEEDS, KINDS):
            yield cell_name(kind, seed, "warp"), lambda k=kind, s=seed: self.main(k, s, "warp")
        for kind in KINDS:
            name = cell_name(kind, 0, "vqgan", "second")
            yield name, lambda k=kind: self.second(k)
        yield "crossed", self.crossed

    def main(self, kind: str, seed: int, generator: str) -> Record:
        """And what the zoo's expert says of the images."""
        record = super().main(kind, seed, generator)
        if generator in LEARNED and seed == 0:
            expert = load_model(expert_for(self.data), classes=self.test.classes)
            kept = self.run / "made" / f"{generator}-{kind}-{seed}.safetensors"
            flags = right(expert, load_file(kept)["images"], self.images.labels)
            record["seen expert"] = pack_bits(flags)
        return record

    def larger(self, kind: str, seed: int, generator: str) -> Record:
        """The same with larger steps."""
        step = LARGER * self.steps[generator]
        found = self.searched(f"{kind}-{seed}", generator, step, self.images)
        return outcomes(found) | {"moved": self.far(found)}

    def first(self, kind: str, seed: int, generator: str) -> Record:
        """Whether the first perturbation is accepted, at both steps."""
        record = {}
        for name, factor in (("own", 1), ("larger", LARGER)):
            found = self.searched(
                f"{kind}-{seed}", generator, factor * self.steps[generator], self.images,
                budget=1, first="perturbation",
            )  # fmt: skip
            record[name] = pack_bits(found.outcomes.validated)
        return record

    def crossed(self) -> Record:
        """Added after the results: images shown to kinds of the next seed.

        Within a seed all LeNets begin from the same weights, and two go on from two others.
        """
        found = {}
        for seed, kind, generator in product(SEEDS, KINDS, LEARNED):
            kept = self.run / "made" / f"{generator}-{kind}-{seed}.safetensors"
            pixels, other = load_file(kept)["images"], (seed + 1) % len(SEEDS)
            for viewer in KINDS:
                flags = right(self.model(f"{viewer}-{other}"), pixels, self.images.labels)
                found[f"{generator} {kind}-{seed} {viewer}-{other}"] = pack_bits(flags)
        return found


def searched_images(test: Dataset) -> Dataset:
    """Drawn at random: the first test images of MNIST are easier than the rest."""
    return test.limited(IMAGES, seed=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no cell after so long")
    given = parser.parse_args()
    until = time.time() + 60 * given.minutes
    learned = Learned(given.run)
    learned.train()
    for data in DATA:
        study = Study(given.run, data, learned)
        study.trained()
        study.measured(until)


if __name__ == "__main__":
    main()

"""Train the networks, oracles and autoencoders of plan.md and search against every network.

    stockpot data get cifar10
    pip install --no-deps ...  # the packages that judges.py names
    export OMP_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=1000000000 MALLOC_TRIM_THRESHOLD_=10000000000
    python studies/fmr/photographs/study.py runs/photographs train
    python studies/fmr/photographs/study.py runs/photographs search
    python studies/fmr/photographs/tables.py runs/photographs

Everything is kept as it comes: a second call does only what is missing, and two at once share the
work.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import judges
import torch

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.generator import Generator
from stockpot.dynamic.generators import generators
from stockpot.dynamic.oracle import Oracle, Setting
from stockpot.dynamic.oracles.networks import NetworkOracle
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

sys.path.append(str(Path(__file__).parents[1]))
from searches import (
    AUTOENCODERS,
    BUDGET,
    ORACLES,
    SEEDS,
    Record,
    Searches,
    all_made,
    cell_name,
    judged,
)

DATA = "cifar10"
SIDE = 32
RESNET: dict[str, Any] = {"architecture": "small_resnet", "stem_stride": 2, "layer_type": "basic",
                          "depths": [1, 1, 1]}  # fmt: skip
SMALL = RESNET | {"embedding_size": 16, "hidden_sizes": [16, 32, 64]}
LARGE = RESNET | {"embedding_size": 32, "hidden_sizes": [32, 64, 128]}
LENET: dict[str, Any] = {"architecture": "lenet", "image_size": SIDE}
PLAIN: dict[str, Any] = {"method": "nominal", "new": SMALL, "augmentations": ("flip", "crop"),
                         "epochs": 10, "batch_size": 64, "lr": 0.003}  # fmt: skip
AGAINST = PLAIN | {"method": "adversarial", "norm": "linf", "eps": 4 / 255, "steps": 2}
KINDS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "colour": PLAIN | {"augmentations": ("flip", "crop", "colour")},
    "lenet": PLAIN | {"new": LENET},
    "wide": PLAIN | {"new": LARGE, "epochs": 8},
    "pgd": AGAINST,
    "lenet-pgd": AGAINST | {"new": LENET},
}


@dataclass(frozen=True)
class Size:
    """How much of everything; the test of this file takes less."""

    images: int = 150
    """Test images that are searched around."""
    asked: int = 4000
    """Test images that all are asked about as they are."""
    pilot: int = 40
    """Validation images by which steps are chosen."""
    budget: int = BUDGET
    steps: int = 1000
    """Of an autoencoder's training."""
    channels: int = 8
    epochs: int | None = None
    """Of every training, in place of its own."""
    tested: range = range(5_000)
    judging: dict[str, range] = field(
        default_factory=lambda: {"first": range(6_000, 16_000), "second": range(16_000, 26_000)}
    )
    learned: dict[str, range] = field(
        default_factory=lambda: {"vqgan": range(26_000, 37_000), "kl": range(37_000, 48_000)}
    )
    held: range = range(49_000, 50_000)
    """The validation images."""


class Study(Searches):
    """CIFAR-10."""

    def __init__(self, run: Path, size: Size | None = None) -> None:
        self.run, self.data, self.kinds, self.size = run, DATA, tuple(KINDS), size or Size()
        self.budget = self.size.budget
        self.train = load_dataset(DATA, split="train")
        self.test = load_dataset(DATA, split="test")
        self.images = searched_images(self.test, self.size.images)
        self.asked = self.test.limited(self.size.asked, seed=1)
        self.pilot = self.train.take(self.size.held).take(range(self.size.pilot))

    # What is trained.

    def trained(self) -> None:
        """Everything, as long as it takes; two processes share it."""
        jobs: dict[Path, Callable[[], None]] = {}
        for name in AUTOENCODERS:
            jobs[self.autoencoder(name) / "fit.json"] = lambda n=name: self.learned(n)
        for name in ORACLES:
            jobs[self.judge_file(name)] = lambda n=name: self.tuned(n)
        for seed, kind in product(SEEDS, sorted(KINDS, key=lambda k: "pgd" not in k)):
            jobs[self.run / "models" / f"{kind}-{seed}"] = lambda k=kind, s=seed: self.fitted(k, s)
        all_made(jobs)

    def judge_file(self, name: str) -> Path:
        return self.run / "judges" / f"{name}.safetensors"

    def tuned(self, name: str) -> None:
        start, rows = time.process_time(), self.size.judging[name]
        told = {} if self.size.epochs is None else {"epochs": self.size.epochs}
        judges.tune(name, self.train.take(rows), self.judge_file(name), 100 + rows[0], **told)
        print(f"{name} oracle: {time.process_time() - start:.0f} s", flush=True)

    def autoencoder(self, name: str) -> Path:
        return self.run / "autoencoders" / name

    def learned(self, name: str) -> None:
        """An autoencoder by absolute error alone: no network's features are in its loss."""
        start, seed = time.process_time(), AUTOENCODERS.index(name)
        shape = Architecture(channels=self.size.channels, multipliers=(1, 2), groups=4,
                             latent_channels=8, code_size=8, middle_attention=False,
                             codes=512 if name == "vqgan" else 0)  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = Autoencoder(shape)
        pixels = gather(self.train.take(self.size.learned[name]), SIDE)
        corpus = Corpus([Source(DATA, pixels, 1.0)], torch.device("cpu"))
        plan = Plan(steps=self.size.steps, batch=32, lr=4e-3, fooling=0.0, seed=seed)
        seen = fit(model, corpus, None, plan)
        save_autoencoder(model, self.autoencoder(name))
        good = quality(model, gather(self.train.take(self.size.held), SIDE))._asdict()
        told = {"quality": good, "seen": seen, "cpu_seconds": time.process_time() - start}
        write_atomic(self.autoencoder(name) / "fit.json", json.dumps(told, indent=1) + "\n")
        print(name, told, flush=True)

    def fitted(self, kind: str, seed: int) -> None:
        """A network of its own first weights: no two of any kind and seed share them."""
        start, recipe = time.process_time(), dict(KINDS[kind])
        own = len(KINDS) * seed + list(KINDS).index(kind)
        config, method = dict(recipe.pop("new")), recipe.pop("method")
        if self.size.epochs is not None:
            recipe["epochs"] = self.size.epochs
        begin, out = (self.run / where / f"{kind}-{seed}" for where in ("begun", "models"))
        if not begin.is_dir():
            new_model(config.pop("architecture"), self.train, begin, size=SIDE, seed=own, **config)
        images = self.train.take(self.size.tested)
        harden(method, str(begin), images, out=out, seed=own, **recipe)
        print(f"{kind}-{seed}: {time.process_time() - start:.0f} s", flush=True)

    @cache  # noqa: B019
    def model(self, name: str) -> Classifier:
        return load_model(str(self.run / "models" / name)).eval()

    @cache  # noqa: B019
    def oracle(self, name: str) -> Oracle:
        setting = Setting(self.test.classes, self.test.templates, torch.device("cpu"), DATA)
        judge = judges.tuned(name, self.test.classes, self.judge_file(name))
        return NetworkOracle(judge, setting, f"{name} oracle")

    @cache  # noqa: B019
    def generator(self, name: str) -> Generator:
        return generators.get(name)(autoencoder=str(self.autoencoder(name)))

    # What is measured.

    def chosen(self) -> None:
        """Choose the steps, which are kept: one process does it for all."""
        print(self.steps, flush=True)

    def cells(self) -> Iterator[tuple[str, Callable[[], Record]]]:
        yield "clean", self.clean
        yield "static", self.static
        for seed, kind, generator in product(SEEDS, KINDS, AUTOENCODERS):
            name = cell_name(kind, seed, generator)
            yield name, lambda k=kind, s=seed, g=generator: self.main(k, s, g)
        for kind in KINDS:
            yield cell_name(kind, 0, "vqgan", "second"), lambda k=kind: self.second(k)
        yield "reconstructed", self.rejudged

    def rejudged(self) -> Record:
        """Added after the results: what the oracles say of plain reconstructions."""
        return {
            f"{generator} oracle-{name}": pack_bits(
                judged(self.oracle(name), self.reconstructed(generator), self.images.labels)
            )
            for generator, name in product(AUTOENCODERS, ORACLES)
        }


def searched_images(test: Dataset, count: int) -> Dataset:
    """Drawn at random."""
    return test.limited(count, seed=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("part", choices=("train", "search"))
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no cell after so long")
    given = parser.parse_args()
    until = time.time() + 60 * given.minutes
    study = Study(given.run)
    study.trained()
    if given.part == "search":
        all_made({given.run / "steps.json": study.chosen})
        study.measured(until)


if __name__ == "__main__":
    main()

"""What both runs of the FMR study share: networks are searched against, image by image.

Everything is kept as it comes, and a second call does only what is missing. Several processes may
work on one folder: what one of them is making the others leave alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from stockpot.corrupt.apply import corrupt
from stockpot.datasets.dataset import Dataset
from stockpot.dynamic.generator import Generator
from stockpot.dynamic.oracle import Oracle
from stockpot.dynamic.task import First, Rules, Task
from stockpot.files import write_atomic
from stockpot.lock import HeldError, held_alone
from stockpot.measure.dynamic.evaluate import Evaluation, evaluate
from stockpot.measure.measurement import Context
from stockpot.models.classifier import Classifier
from stockpot.results.packed import pack_bits
from stockpot.score.scorer import scorer_for

SEEDS = (0, 1, 2)
BUDGET = 20
"""Candidates for each image."""
AUTOENCODERS = ("vqgan", "kl")
ORACLES = ("first", "second")
PAIR = ("plain", "pgd")
"""Kinds that G3 and G4 are about."""
STEPS = {"vqgan": (0.01, 0.03, 0.1, 0.3), "kl": (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)}
CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "pixelate", "jpeg_compression")
SEVERITY = 3
WAIT = 2.0
"""Seconds between two looks at what another process is making."""

Flags = NDArray[np.bool_]
Record = dict[str, Any]
"""What is kept of a cell: packed flags by name, and a few numbers."""


def cell_name(kind: str, seed: int, generator: str, part: str = "main") -> str:
    return f"{part}/{generator}/{kind}/{seed}"


class Searches:
    """One dataset; who takes part is said by what derives from this."""

    run: Path
    data: str
    kinds: Sequence[str]
    asked: Dataset
    """Test images that are shown as they are."""
    images: Dataset
    """Those that are searched around."""
    pilot: Dataset
    """Validation images by which steps are chosen."""
    budget = BUDGET
    tries: Mapping[str, Sequence[float]] = STEPS

    def model(self, name: str) -> Classifier:
        raise NotImplementedError

    def oracle(self, name: str) -> Oracle:
        raise NotImplementedError

    def generator(self, name: str) -> Generator:
        raise NotImplementedError

    def cells(self) -> Iterator[tuple[str, Callable[[], Record]]]:
        """Every cell in the order of the plan."""
        raise NotImplementedError

    def searched(
        self,
        model: str,
        generator: str,
        step: float,
        images: Dataset,
        *,
        budget: int = 0,
        oracle: str = "first",
        first: First = "reconstruction",
    ) -> Evaluation:
        """One search as published, but for the first candidate where that is said."""
        tested = self.model(model)
        rules = Rules(budget=budget or self.budget, step=step, first=first)
        task = Task(tested, self.generator(generator), self.oracle(oracle), rules)
        scorer = scorer_for(tested.classes, images, "all")
        return evaluate(tested, images, task, scorer, Context(batch_size=100), keep_images=True)

    @cached_property
    def steps(self) -> dict[str, float]:
        """Each generator's own step, chosen on validation images against one plain network.

        The VQGAN's fools it most. The other's moves images as far as the VQGAN's does.
        """
        path = self.run / "steps.json"
        if not path.is_file():
            tried = {}
            for name, steps in self.tries.items():
                for step in steps:
                    found = self.searched("plain-0", name, step, self.pilot)
                    kept = found.outcomes.validated
                    moved = float(self.moved(found, self.pilot)[kept].mean())
                    tried[f"{name} {step:g}"] = {"kept": matched(found), "moved": moved}
                    print(self.data, name, step, tried[f"{name} {step:g}"], flush=True)
            own = {"vqgan": min(self.tries["vqgan"], key=lambda s: tried[f"vqgan {s:g}"]["kept"])}
            far = tried[f"vqgan {own['vqgan']:g}"]["moved"]
            own["kl"] = min(self.tries["kl"], key=lambda s: abs(tried[f"kl {s:g}"]["moved"] - far))
            write_atomic(path, json.dumps({"own": own, "tried": tried}, indent=1) + "\n")
        own_steps: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))["own"]
        return own_steps

    def moved(self, found: Evaluation, images: Dataset) -> NDArray[np.float64]:
        """How far each returned image lies from its original: root mean square over pixels."""
        before = torch.cat([batch.images for batch in images.batches()]).float() / 255
        after = torch.stack(list(found.images(range(len(images))))).float() / 255
        return (after - before).square().mean(dim=(1, 2, 3)).sqrt().double().numpy()

    def far(self, found: Evaluation) -> float:
        kept = found.outcomes.validated
        return round(float(self.moved(found, self.images)[kept].mean()), 5)

    def clean(self) -> Record:
        """Test images as they are, by every network and oracle."""
        pixels, labels = pixels_of(self.asked), self.asked.labels
        names = [f"{kind}-{seed}" for kind in self.kinds for seed in SEEDS]
        found = {name: pack_bits(right(self.model(name), pixels, labels)) for name in names}
        for name in ORACLES:
            found[f"oracle-{name}"] = pack_bits(judged(self.oracle(name), pixels, labels))
        return found

    def static(self) -> Record:
        """The searched images under six corruptions."""
        pixels, found = pixels_of(self.images), {}
        for corruption in CORRUPTIONS:
            seen = corrupt(pixels, corruption, SEVERITY, seed=0)
            for kind, seed in product(self.kinds, SEEDS):
                model = self.model(f"{kind}-{seed}")
                flags = right(model, seen, self.images.labels)
                found[f"{corruption} {kind}-{seed}"] = pack_bits(flags)
        return found

    def main(self, kind: str, seed: int, generator: str) -> Record:
        """A search, and its images shown to the others."""
        found = self.searched(f"{kind}-{seed}", generator, self.steps[generator], self.images)
        pixels = torch.stack(list(found.images(range(len(self.images)))))
        record = outcomes(found) | {"moved": self.far(found)}
        kept = self.run / "made" / f"{generator}-{kind}-{seed}.safetensors"
        write_atomic(kept, save({"images": pixels}))
        viewers = [f"{other}-{seed}" for other in self.kinds]
        viewers += [f"{kind}-{other}" for other in SEEDS if other != seed]
        labels = self.images.labels
        for viewer in viewers:
            record[f"seen {viewer}"] = pack_bits(right(self.model(viewer), pixels, labels))
        record["seen oracle-second"] = pack_bits(judged(self.oracle("second"), pixels, labels))
        if generator in AUTOENCODERS:
            made = self.reconstructed(generator)
            flags = right(self.model(f"{kind}-{seed}"), made, labels)
            record["reconstruction"] = pack_bits(flags)
        return record

    def second(self, kind: str, generator: str = "vqgan") -> Record:
        """The search with the other oracle, and what the first one says of its images."""
        found = self.searched(
            f"{kind}-0", generator, self.steps[generator], self.images, oracle="second"
        )
        pixels = torch.stack(list(found.images(range(len(self.images)))))
        flags = judged(self.oracle("first"), pixels, self.images.labels)
        return outcomes(found) | {"moved": self.far(found), "seen oracle-first": pack_bits(flags)}

    @cache  # noqa: B019
    def reconstructed(self, generator: str) -> Tensor:
        """The searched images as an autoencoder gives them back."""
        with torch.no_grad():
            maker = self.generator(generator)
            seeds = torch.arange(len(self.images))
            encoded = maker.encode(pixels_of(self.images).float() / 255, seeds)
            made = maker.decode(*encoded).clamp(0, 1)
        return (made * 255).round().byte()

    def measured(self, until: float) -> None:
        """Every cell that is not there yet, as long as there is time."""
        for name, make in self.cells():
            path = self.run / "cells" / f"{name.replace('/', '-')}.json"
            if time.time() > until:
                return
            alone(path, lambda n=name, p=path, m=make: self.cell(n, p, m))

    def cell(self, name: str, path: Path, make: Callable[[], Record]) -> None:
        start = time.process_time()
        record = make()
        told = {"name": name, "cpu_seconds": round(time.process_time() - start, 1), **record}
        write_atomic(path, json.dumps(told, indent=1) + "\n")
        print(f"{self.data} {name}: {told['cpu_seconds']} s", flush=True)


def alone(path: Path, make: Callable[[], None]) -> bool:
    """Make what is to lie at a path, unless it does or another process is making it."""
    if path.exists():
        return True
    try:
        with held_alone(path.with_name(f".{path.name}.making"), path):
            if not path.exists():
                make()
    except HeldError:
        return False
    return True


def all_made(jobs: Mapping[Path, Callable[[], None]]) -> None:
    """Make all of them, and wait for those that other processes are making."""
    made = [alone(path, make) for path, make in jobs.items()]
    while not all(made):
        time.sleep(WAIT)
        made = [alone(path, make) for path, make in jobs.items()]


def outcomes(found: Evaluation) -> Record:
    names = ("correct", "known", "validated", "perturbed", "withstood")
    return {name: pack_bits(getattr(found.outcomes, name)) for name in names} | {
        "accepted": round(float(found.outcomes.accepted[found.outcomes.validated].mean()), 2)
    }


def matched(found: Evaluation) -> float:
    """PA and SA over the validated images."""
    seen = found.outcomes
    kept = seen.validated
    return float(seen.withstood[kept].sum() / max(1, seen.correct[kept].sum()))


def pixels_of(data: Dataset) -> Tensor:
    return torch.cat([batch.images for batch in data.batches(1000)])


@torch.no_grad()
def right(model: Classifier, pixels: Tensor, labels: Tensor) -> Flags:
    parts = [model(part.float() / 255).argmax(dim=1) for part in pixels.split(500)]
    flags: Flags = (torch.cat(parts) == labels).numpy()
    return flags


def judged(oracle: Oracle, pixels: Tensor, labels: Tensor) -> Flags:
    parts = [oracle.judge(part.float() / 255).argmax(dim=1) for part in pixels.split(500)]
    flags: Flags = (torch.cat(parts) == labels).numpy()
    return flags

"""The measurements of the FMR study: SA, PA and FMR of many models under several generators.

    python studies/fmr/study.py cifar10 --models runs/zoo_dynamic/models --device cuda

Everything is saved as it comes, and a second call does only what is missing. `figures.py` makes the
tables and pictures. Parts: main, steps, searches, transfer, oracles, static, sparse, augment.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.harden.run import harden
from stockpot.measure.dynamic.transfer import transfer_matrix
from stockpot.measure.measurement import Context
from stockpot.measure.run import measure
from stockpot.models.device import pick_device
from stockpot.models.load import load_model, zoo_names

NETS = {
    "mnist": ("lenet", "lenet-augmix", "lenet-pgd"),
    "cifar10": (
        "cifar-vanilla",
        "cifar-grey",
        "cifar-augmented",
        "cifar-augmix",
        "cifar-pgd",
        "cifar10-linf",
    ),
    "icons": ("icons-resnet", "icons-vit", "icons-nominal", "icons-linf"),
}
# A second oracle, which is better at the task and no relative of the models under test.
SECOND = {"mnist": "clip-mnist", "cifar10": "clip-cifar10", "icons": "clip-icons"}
GENERATORS = ("vqgan", "style", "warp", "colour", "frequency", "mixture")
STEPS = "0.001,0.003,0.01,0.03,0.1"
SEARCHES: dict[str, dict[str, Any]] = {
    "as published": {},
    "sign": {"optimiser": "sign"},
    "normalised": {"optimiser": "normalised"},
    "reencode": {"reading": "reencode"},
    "best_loss": {"keep": "best_loss"},
    "backtrack": {"backtrack": 3},
    "best_loss, backtrack": {"keep": "best_loss", "backtrack": 3},
    "3 restarts": {"restarts": 3, "keep": "best_loss"},
    "fgsm start": {"fgsm": 0.003},
    "top-5 oracle": {"rule": "top-5"},
    "margin oracle": {"rule": "margin:0.2"},
}
CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "pixelate", "jpeg_compression")


class Study:
    """One dataset, its models, and where results go."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.data = str(options.data)
        self.device = pick_device(options.device)
        self.out = Path(options.out) / self.data
        self.models = self._models()
        self.vqgan = {"autoencoder": options.autoencoder}
        self.oracle = {"oracle": "zero_shot", "oracle_params": {"model": options.oracle}}

    def _models(self) -> dict[str, str]:
        known = zoo_names()
        found = {}
        for name in NETS[self.data]:
            folders = [Path(place) / name for place in self.options.models.split(",")]
            there = [str(folder) for folder in folders if folder.is_dir()]
            if there:
                found[name] = there[0]
            elif name in known:
                found[name] = name
            else:
                print(f"no {name}: left out", flush=True)
        return found

    def load(self, limit: int) -> Dataset:
        """The first so many test images, by a fixed draw."""
        return load_dataset(self.data, split="test", limit=limit)

    def cells(
        self, part: str, limit: int, models: dict[str, str] | None = None, **params: Any
    ) -> None:
        """Measure models in one setting; the result files go to a folder of that name."""
        settings = {
            **self.oracle,
            "rule": self.options.rule,
            "budget": self.options.budget,
            "precision": self.options.precision,
            **params,
        }
        start = time.perf_counter()
        done = measure(
            models or self.models,
            {"dynamic": settings},
            data=self.data,
            data_options={"limit": limit, "split": "test"},
            out=self.out / part,
            device=str(self.device),
            batch_size=self.options.batch,
        )
        shown = {cell.key.model: _fmr(cell) for cell in done}
        print(f"{self.data} {part}: {shown} in {time.perf_counter() - start:.0f} s", flush=True)

    def params_of(self, generator: str) -> dict[str, Any]:
        """The generator, with the autoencoder where it needs one."""
        needs = generator in ("vqgan", "style")
        return {"generator": generator, "generator_params": self.vqgan if needs else {}}

    def main(self) -> None:
        """The tables: every model under every generator; the VQGAN's images are kept."""
        for generator in self.options.generators.split(","):
            part = f"main-{generator}"
            for name, source in self.models.items():
                kept = self.out / "made" / name
                keep = {"export": str(kept)} if generator == "vqgan" else {}
                if keep and kept.exists() and not (self.out / part / "results").exists():
                    shutil.rmtree(kept)
                only = {name: source}
                self.cells(part, self.options.limit, only, **self.params_of(generator), **keep)

    def steps(self) -> None:
        """The vanilla and the PGD-trained model at several step sizes."""
        chosen = {k: v for k, v in self.models.items() if k in _pair(self.data, self.models)}
        for step in map(float, self.options.steps.split(",")):
            limit = self.options.limit // 2
            self.cells(f"step-{step:g}", limit, chosen, step=step, **self.params_of("vqgan"))

    def searches(self) -> None:
        """Other searches than the published one, on the first model."""
        first = dict(list(self.models.items())[:1])
        for name, change in SEARCHES.items():
            part = f"search-{name.replace(' ', '_').replace(',', '')}"
            self.cells(part, self.options.limit // 4, first, **self.params_of("vqgan"), **change)

    def oracles(self) -> None:
        """Another oracle, and both together."""
        second = self.options.second or SECOND[self.data]
        both = [
            {"oracle": "zero_shot", "model": self.options.oracle},
            {"oracle": "zero_shot", "model": second},
        ]
        limit = self.options.limit // 2
        for name, settings in {
            "second": {"oracle": "zero_shot", "oracle_params": {"model": second}},
            "both": {"oracle": "ensemble", "oracle_params": {"members": both}},
        }.items():
            self.cells(f"oracle-{name}", limit, **self.params_of("vqgan"), **settings)
        measure(
            {"first": self.options.oracle, "second": second},
            {"oracle_audit": {"generator_params": self.vqgan, "precision": self.options.precision}},
            data=self.data,
            data_options={"limit": limit, "split": "test"},
            out=self.out / "audit",
            device=str(self.device),
            batch_size=self.options.batch,
        )

    def sparse(self) -> None:
        """A sparse mask against the full latent, in both variants."""
        first = dict(list(self.models.items())[:1])
        for variant in ("settled", "paper"):
            limit = self.options.limit // 2
            params = self.params_of("vqgan")
            self.cells(
                f"sparse-{variant}", limit, first, sparse=variant, sparse_images=500, **params
            )

    def static(self) -> None:
        """Ordinary corruptions, to compare the order of the models."""
        measure(
            self.models,
            {"corruption": {"corruptions": CORRUPTIONS, "severities": (3,), "baseline": "none"}},
            data=self.data,
            data_options={"limit": self.options.limit // 2, "split": "test"},
            out=self.out / "static",
            device=str(self.device),
            batch_size=self.options.batch,
        )

    def transfer(self) -> None:
        """Every model's images, as the main part kept them, shown to every model."""
        data = self.load(self.options.limit)
        models = {name: load_model(path).to(self.device) for name, path in self.models.items()}
        folders = {name: self.out / "made" / name for name in models}
        made = {
            name: load_dataset("imagefolder", path=str(path), classes=list(data.classes))
            for name, path in folders.items()
            if path.is_dir()
        }
        context = Context(self.device, self.options.batch)
        result = transfer_matrix(models, made, data, context)
        values = {k: v.tolist() if isinstance(v, np.ndarray) else v
                  for k, v in result._asdict().items()}  # fmt: skip
        write_atomic(self.out / "transfer.json", json.dumps(values, indent=1) + "\n")
        print(self.data, "transfer", np.round(result.fmr, 2).tolist(), flush=True)

    def augment(self) -> None:
        """Train on generated images for a little, and measure before and after."""
        name, path = next(iter(self.models.items()))
        train = load_dataset(self.data, split="train", limit=10 * self.options.limit)
        common = {"epochs": 2, "batch_size": 500, "lr": 5e-4, "augmentations": ("crop",)}
        for label, method, own in (
            ("plain", "nominal", {}),
            ("dynamic", "dynamic_augment", {"generator_params": self.vqgan, "budget": 5}),
        ):
            out = self.out / f"{name}-{label}"
            if not out.exists():
                harden(method, path, train, out=out, device=str(self.device), **common, **own)
            self.cells(
                "augment", self.options.limit // 2, {f"{name}-{label}": str(out)},
                **self.params_of("vqgan"),
            )  # fmt: skip


def _pair(data: str, models: dict[str, str]) -> list[str]:
    ends = {"mnist": ("lenet", "lenet-pgd"), "cifar10": ("cifar-vanilla", "cifar-pgd")}
    return [name for name in ends.get(data, ("icons-resnet", "icons-linf")) if name in models]


def _fmr(cell: Any) -> str:
    found = {s.metric: s.value for s in cell.scores if not {"class", "turn"} & s.condition.keys()}
    names = ("accuracy", "validation_rate", "perturbed_accuracy", "fmr")
    return "/".join(f"{100 * found.get(name, float('nan')):.1f}" for name in names)


def main() -> None:
    """Run the chosen parts in order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=sorted(NETS))
    parser.add_argument("--models", default="runs/zoo_dynamic/models", help="folders, by comma")
    parser.add_argument("--out", default="runs/fmr")
    parser.add_argument("--parts", default="main,transfer,static,steps,oracles,searches,sparse")
    parser.add_argument("--limit", type=int, default=2000, help="test images of the main table")
    parser.add_argument("--generators", default=",".join(GENERATORS))
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--steps", default=STEPS, help="step sizes, by comma")
    parser.add_argument("--budget", type=int, default=50)
    parser.add_argument("--rule", default="argmax")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--autoencoder", default="small-vqgan")
    parser.add_argument("--oracle", default="clip-base")
    parser.add_argument("--second", default="", help="another oracle; the zoo's expert otherwise")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = False
    study = Study(options)
    for part in options.parts.split(","):
        work: Callable[[], None] = getattr(study, part)
        start = time.perf_counter()
        try:
            work()
        except UserError as problem:
            # One part that cannot be done must not cost the others.
            print(f"{options.data} {part}: {problem}", flush=True)
        print(f"{options.data} {part}: {time.perf_counter() - start:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()

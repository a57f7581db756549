"""The measurements of the FMR study: SA, PA and FMR of many models under several generators.

    python studies/fmr/former/study.py cifar10 --models runs/zoo_dynamic/models --device cuda

Everything is saved as it comes, and a second call does only what is missing; several calls with
different parts may run side by side. `tables.py` makes the tables and pictures. Parts: main,
transfer, static, steps, budgets, searches, oracles, audit, sparse, penalties, draws, augment.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stockpot.checkpoints.resolve import zoo_names
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.oracles.networks import EXPERTS
from stockpot.engine import pick_device
from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.harden.run import harden
from stockpot.measure.dynamic.transfer import transfer_matrix
from stockpot.measure.measurement import Context
from stockpot.measure.run import measure
from stockpot.models.load import load_model
from stockpot.results.tables import overall, percents

NETS = {
    "mnist": ("lenet", "lenet-pgd", "lenet-augmix", "lenet-affine", "lenet-l2", "mnist-resnet"),
    "cifar10": ("cifar-vanilla", "cifar-pgd", "cifar-grey", "cifar-augmented", "cifar-augmix",
                "cifar10-linf", "cifar10-l2"),
    "icons": ("icons-resnet", "icons-linf", "icons-vit", "icons-nominal", "icons-l2",
              "icons-vit-colour"),
}  # fmt: skip
# The same training with other seeds.
AGAIN = {"mnist": ("lenet", "lenet-2", "lenet-3"), "cifar10": ("cifar-vanilla", "cifar-vanilla-2")}
# Other oracles than the zoo's expert for the data: a generalist, and a classifier that is not among
# the models under test, or is left out of them where it judges.
GENERALIST = "clip-base"
CLASSIFIERS = {"mnist": "mnist-resnet", "cifar10": "cifar10-nominal", "icons": "icons-convnext"}
ORACLES = ("generalist", "both", "classifier")
# A plain network of the zoo on which masks are found with other penalties than the published 36.36.
OF_THE_ZOO = {"cifar10": "cifar10-nominal", "icons": "icons-resnet"}
PENALTIES = (12.0, 8.0, 4.0)
# The parts with masks, and which latents move in each.
MASKS = {"sparse-no": "all", "sparse-settled": "settled", "sparse-paper": "paper",
         "penalty-none": "all"} | {f"penalty-{p:g}": f"settled, penalty {p:g}"
                                   for p in PENALTIES}  # fmt: skip
GENERATORS = ("vqgan", "style", "warp", "colour", "frequency", "mixture")
STEPS = "0.001,0.003,0.01,0.03,0.1"
BUDGET, BUDGETS = 50, "5,10,20,100"
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


def part_of(search: str) -> str:
    """The folder of a search."""
    return f"search-{search.replace(' ', '_').replace(',', '')}"


class Study:
    """One dataset: its models, and a method for each part."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.data = str(options.data)
        self.device = pick_device(options.device)
        self.out = Path(options.out) / self.data
        self.limit, self.half = int(options.limit), int(options.limit) // 2
        self.vqgan = {"autoencoder": "small-vqgan"}
        self.expert = EXPERTS[self.data]
        self.models = self.there(*NETS[self.data])
        self.pair = self.there(*NETS[self.data][:2])
        self.plain = self.there(NETS[self.data][0])

    def there(self, *names: str) -> dict[str, str]:
        """Where these models lie: in a folder or in the zoo; those that are not there are not."""
        folders = [Path(place) for place in self.options.models.split(",")]
        found = {}
        for name in names:
            own = [str(folder / name) for folder in folders if (folder / name).is_dir()]
            if own or name in zoo_names():
                found[name] = own[0] if own else name
            else:
                print(f"no {name}: left out", flush=True)
        return found

    def measured(
        self,
        part: str,
        models: Mapping[str, str],
        measures: dict[str, dict[str, Any]],
        limit: int = 0,
        data: Dataset | None = None,
    ) -> None:
        """Measure models in one setting; the result files go to a folder of that name."""
        start = time.perf_counter()
        done = measure(
            models,
            measures,
            data=self.data if data is None else data,
            data_options={"limit": limit or self.half, "split": "test"} if data is None else None,
            out=self.out / part,
            device=str(self.device),
            batch_size=self.options.batch,
        )
        metrics = ("accuracy", "validation_rate", "perturbed_accuracy", "fmr")
        shown = {c.key.model: "/".join(percents(overall(c, m), interval=False) for m in metrics)
                 for c in done}  # fmt: skip
        print(f"{self.data} {part}: {shown} in {time.perf_counter() - start:.0f} s", flush=True)

    def searched(
        self,
        part: str,
        models: Mapping[str, str],
        generator: str = "vqgan",
        limit: int = 0,
        data: Dataset | None = None,
        **params: Any,
    ) -> None:
        """The same with a dynamic search, as published but for some parameters."""
        settings: dict[str, Any] = {
            "generator": generator,
            # Only these two need an autoencoder.
            "generator_params": self.vqgan if generator in ("vqgan", "style") else {},
            "oracle": "zero_shot",
            "oracle_params": {"model": self.expert},
            "budget": self.options.budget,
            "precision": self.options.precision,
            "pictures": 0,
        }
        self.measured(part, models, {"dynamic": settings | params}, limit, data)

    def main(self) -> None:
        """The tables: every model under every generator; the VQGAN's images are kept."""
        for name, source in self.models.items():
            for generator in self.options.generators.split(","):
                kept = self.out / "made" / name
                keep = {"export": str(kept)} if generator == "vqgan" else {}
                part = f"main-{generator}"
                if keep and not list((self.out / part).glob(f"*/{name}--*")):
                    shutil.rmtree(kept, ignore_errors=True)  # half of it, from a call that ended
                self.searched(part, {name: source}, generator, self.limit, pictures=8, **keep)

    def steps(self) -> None:
        """The plain and the PGD-trained model at several step sizes."""
        for step in map(float, self.options.steps.split(",")):
            self.searched(f"step-{step:g}", self.pair, step=step)

    def budgets(self) -> None:
        """The same two with fewer and with more candidates."""
        for budget in map(int, self.options.budgets.split(",")):
            self.searched(f"budget-{budget}", self.pair, budget=budget)

    def searches(self) -> None:
        """Other searches than the published one, on the plain and the PGD-trained model."""
        for name, change in SEARCHES.items():
            self.searched(part_of(name), self.pair, **change)

    def oracles(self) -> None:
        """Other oracles: a generalist, both together, and a classifier."""
        judge = CLASSIFIERS[self.data]
        both = [{"oracle": "zero_shot", "model": name} for name in (self.expert, GENERALIST)]
        settings: dict[str, dict[str, Any]] = {
            "generalist": {"oracle": "zero_shot", "oracle_params": {"model": GENERALIST}},
            "both": {"oracle": "ensemble", "oracle_params": {"members": both}},
            "classifier": {"oracle": "classifier", "oracle_params": {"model": self.judge()}},
        }
        for label, chosen in settings.items():
            models = {name: source for name, source in self.models.items()
                      if label != "classifier" or name != judge}  # fmt: skip
            self.searched(f"oracle-{label}", models, **chosen)

    def judge(self) -> str:
        """The classifier that is an oracle."""
        (source,) = self.there(CLASSIFIERS[self.data]).values()
        return source

    def audit(self) -> None:
        """How far each of these oracles can be trusted."""
        settings = {"generator_params": self.vqgan, "precision": self.options.precision,
                    "budget": min(20, self.options.budget)}  # fmt: skip
        oracles = {"expert": self.expert, "generalist": GENERALIST, "classifier": self.judge()}
        self.measured("audit", oracles, {"oracle_audit": settings})

    def sparse(self) -> None:
        """A sparse mask against the full latent, in both variants."""
        for variant in ("no", "settled", "paper"):
            self.searched(f"sparse-{variant}", self.plain, limit=self.limit, sparse=variant,
                          sparse_images=self.limit)  # fmt: skip

    def penalties(self) -> None:
        """Masks found with weaker penalties, on a network of the zoo, beside the full latent."""
        model = {OF_THE_ZOO[self.data]: OF_THE_ZOO[self.data]}
        common: dict[str, Any] = {"limit": self.limit, "sparse_images": self.limit}
        self.searched("penalty-none", model, **common)
        for penalty in PENALTIES:
            self.searched(f"penalty-{penalty:g}", model, sparse="settled", sparse_penalty=penalty,
                          **common)  # fmt: skip

    def draws(self) -> None:
        """Other images, and networks trained with other seeds."""
        everything = load_dataset(self.data, split="test")
        for seed in (1, 2):
            self.searched(f"draw-{seed}", self.pair, data=everything.limited(self.half, seed=seed))
        if self.data in AGAIN:
            twins = self.there(*AGAIN[self.data])
            for generator in ("vqgan", "warp", "colour"):
                self.searched(f"again-{generator}", twins, generator)

    def static(self) -> None:
        """Ordinary corruptions, to compare the order of the models."""
        settings = {"corruptions": CORRUPTIONS, "severities": (3,), "baseline": "none"}
        settings["profile"] = "cifar"  # also for icons of 64 px, as when the study was run
        self.measured("static", self.models, {"corruption": settings})

    def transfer(self) -> None:
        """Every model's images, as the main part kept them, shown to every model."""
        data = load_dataset(self.data, split="test", limit=self.limit)
        models = {name: load_model(path).to(self.device) for name, path in self.models.items()}
        made = {
            name: load_dataset("imagefolder", path=str(path), classes=list(data.classes))
            for name in models
            if (path := self.out / "made" / name).is_dir()
        }
        result = transfer_matrix(models, made, data, Context(self.device, self.options.batch))
        values = {k: v.tolist() if isinstance(v, np.ndarray) else v
                  for k, v in result._asdict().items()}  # fmt: skip
        write_atomic(self.out / "transfer.json", json.dumps(values, indent=1) + "\n")
        print(self.data, "transfer", np.round(result.fmr, 2).tolist(), flush=True)

    def augment(self) -> None:
        """Train on generated images for a little, and measure before and after."""
        ((name, path),) = self.plain.items()
        train = load_dataset(self.data, split="train", limit=10 * self.limit)
        common = {"epochs": 2, "batch_size": 500, "lr": 5e-4, "augmentations": ("crop",)}
        ways: dict[str, tuple[str, dict[str, Any]]] = {
            "plain": ("nominal", {}),
            "dynamic": ("dynamic_augment", {"generator_params": self.vqgan, "budget": 5}),
        }
        for label, (method, own) in ways.items():
            out = self.out / f"{name}-{label}"
            if not out.exists():
                harden(method, path, train, out=out, device=str(self.device), **common, **own)
            self.searched("augment", {f"{name}-{label}": str(out)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", choices=sorted(NETS))
    parser.add_argument("--models", default="runs/zoo_dynamic/models", help="folders, by comma")
    parser.add_argument("--out", default="runs/fmr")
    parser.add_argument(
        "--parts", default="main,transfer,static,steps,budgets,oracles,audit,searches"
    )
    parser.add_argument("--limit", type=int, default=2000, help="test images of the main table")
    parser.add_argument("--generators", default=",".join(GENERATORS))
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--steps", default=STEPS, help="step sizes, by comma")
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--budgets", default=BUDGETS, help="other budgets, by comma")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    study = Study(options)
    for part in options.parts.split(","):
        start = time.perf_counter()
        try:
            getattr(study, part)()
        except (UserError, RuntimeError, KeyError, ValueError):
            # One part that cannot be done must not cost the others.
            print(f"{options.data} {part}: {traceback.format_exc()}", flush=True)
        print(f"{options.data} {part}: {time.perf_counter() - start:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()

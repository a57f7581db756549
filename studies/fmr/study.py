"""The measurements of the FMR study: SA, PA and FMR of many models under several generators.

    python studies/fmr/study.py cifar10 --models runs/zoo_dynamic/models --device cuda

Everything is saved as it comes, and a second call does only what is missing; several calls with
different parts may run side by side. `figures.py` makes the tables and pictures. Parts: main,
transfer, static, steps, budgets, searches, oracles, audit, sparse, penalties, draws, augment.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from runner import Runner
from settings import (
    AGAIN,
    BUDGETS,
    CLASSIFIERS,
    CORRUPTIONS,
    GENERALIST,
    GENERATORS,
    NETS,
    OF_THE_ZOO,
    PENALTIES,
    SEARCHES,
    STEPS,
)

from stockpot.datasets.load import load_dataset
from stockpot.dynamic.oracles.networks import EXPERTS
from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.harden.run import harden
from stockpot.measure.dynamic.transfer import transfer_matrix
from stockpot.measure.measurement import Context
from stockpot.measure.run import measure
from stockpot.models.load import load_model


class Study(Runner):
    """The parts of the study, one method each."""

    def main(self) -> None:
        """The tables: every model under every generator; the VQGAN's images are kept."""
        for name, source in self.come(NETS[self.data]):
            for generator in self.options.generators.split(","):
                part = f"main-{generator}"
                kept = self.out / "made" / name
                keep: dict[str, Any] = {"export": str(kept)} if generator == "vqgan" else {}
                if keep and kept.exists() and not list((self.out / part).glob(f"*/{name}--*")):
                    shutil.rmtree(kept)
                self.cells(
                    part, self.options.limit, {name: source}, pictures=8,
                    **self.params_of(generator), **keep,
                )  # fmt: skip

    def steps(self) -> None:
        """The plain and the PGD-trained model at several step sizes."""
        for step in map(float, self.options.steps.split(",")):
            self.cells(f"step-{step:g}", self.half, self.pair, step=step, **self.params_of("vqgan"))

    def budgets(self) -> None:
        """The same two with fewer and with more candidates."""
        for budget in map(int, self.options.budgets.split(",")):
            settings = self.params_of("vqgan") | {"budget": budget}
            self.cells(f"budget-{budget}", self.half, self.pair, **settings)

    def searches(self) -> None:
        """Other searches than the published one, on the plain and the PGD-trained model."""
        for name, change in SEARCHES.items():
            part = f"search-{name.replace(' ', '_').replace(',', '')}"
            self.cells(part, self.half, self.pair, **self.params_of("vqgan"), **change)

    def oracles(self) -> None:
        """Other oracles: a generalist, both together, and a classifier."""
        judge = CLASSIFIERS[self.data]
        both = [{"oracle": "zero_shot", **self.oracle.get("oracle_params", {})},
                {"oracle": "zero_shot", "model": GENERALIST}]  # fmt: skip
        settings: dict[str, dict[str, Any]] = {
            "generalist": {"oracle": "zero_shot", "oracle_params": {"model": GENERALIST}},
            "both": {"oracle": "ensemble", "oracle_params": {"members": both}},
            "classifier": {"oracle": "classifier"},
        }
        settings["classifier"]["oracle_params"] = {"model": self.some(judge)[judge]}
        for name, source in self.come(NETS[self.data]):
            for label, chosen in settings.items():
                if label == "classifier" and name == judge:
                    continue
                params = self.params_of("vqgan") | chosen
                self.cells(f"oracle-{label}", self.half, {name: source}, **params)

    def audit(self) -> None:
        """How far each of these oracles can be trusted."""
        judge = CLASSIFIERS[self.data]
        expert = self.options.oracle or EXPERTS[self.data]
        start = time.perf_counter()
        measure(
            {"expert": expert, "generalist": GENERALIST, "classifier": self.some(judge)[judge]},
            {
                "oracle_audit": {
                    "generator_params": self.vqgan,
                    "precision": self.options.precision,
                    "budget": min(20, self.options.budget),
                }
            },
            data=self.data,
            data_options={"limit": self.half, "split": "test"},
            out=self.out / "audit",
            device=str(self.device),
            batch_size=self.options.batch,
        )
        print(f"{self.data} audit in {time.perf_counter() - start:.0f} s", flush=True)

    def sparse(self) -> None:
        """A sparse mask against the full latent, in both variants."""
        plain = self.some(NETS[self.data][0])
        params = self.params_of("vqgan") | {"sparse_images": self.options.limit}
        for variant in ("no", "settled", "paper"):
            self.cells(f"sparse-{variant}", self.options.limit, plain, sparse=variant, **params)

    def penalties(self) -> None:
        """Masks found with weaker penalties, on a network of the zoo, beside the full latent."""
        name = OF_THE_ZOO[self.data]
        params = self.params_of("vqgan") | {"sparse_images": self.options.limit}
        self.cells("penalty-none", self.options.limit, {name: name}, **params)
        for penalty in PENALTIES:
            self.cells(
                f"penalty-{penalty:g}", self.options.limit, {name: name},
                sparse="settled", sparse_penalty=penalty, **params,
            )  # fmt: skip

    def draws(self) -> None:
        """Other images, and networks trained with other seeds."""
        everything = load_dataset(self.data, split="test")
        for seed in (1, 2):
            drawn = everything.limited(self.half, seed=seed)
            self.cells(f"draw-{seed}", 0, self.pair, data=drawn, **self.params_of("vqgan"))
        if self.data in AGAIN:
            twins = self.some(*AGAIN[self.data])
            for generator in ("vqgan", "warp", "colour"):
                self.cells(f"again-{generator}", self.half, twins, **self.params_of(generator))

    def static(self) -> None:
        """Ordinary corruptions, to compare the order of the models."""
        measure(
            self.models,
            {"corruption": {"corruptions": CORRUPTIONS, "severities": (3,), "baseline": "none"}},
            data=self.data,
            data_options={"limit": self.half, "split": "test"},
            out=self.out / "static",
            device=str(self.device),
            batch_size=self.options.batch,
        )

    def transfer(self) -> None:
        """Every model's images, as the main part kept them, shown to every model."""
        data = load_dataset(self.data, split="test", limit=self.options.limit)
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
        ((name, path),) = self.some(NETS[self.data][0]).items()
        train = load_dataset(self.data, split="train", limit=10 * self.options.limit)
        common: dict[str, Any] = {"epochs": 2, "batch_size": 500, "lr": 5e-4}
        common["augmentations"] = ("crop",)
        ways: dict[str, tuple[str, dict[str, Any]]] = {
            "plain": ("nominal", {}),
            "dynamic": ("dynamic_augment", {"generator_params": self.vqgan, "budget": 5}),
        }
        for label, (method, own) in ways.items():
            out = self.out / f"{name}-{label}"
            if not out.exists():
                harden(method, path, train, out=out, device=str(self.device), **common, **own)
            self.cells(
                "augment", self.half, {f"{name}-{label}": str(out)},
                **self.params_of("vqgan"),
            )  # fmt: skip


def main() -> None:
    """Run the chosen parts in order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
    parser.add_argument("--budget", type=int, default=50)
    parser.add_argument("--budgets", default=BUDGETS, help="other budgets, by comma")
    parser.add_argument("--wait", type=float, default=0, help="seconds, for models in training")
    parser.add_argument("--rule", default="argmax")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--autoencoder", default="small-vqgan")
    parser.add_argument("--oracle", default="", help="the zoo's expert for the data otherwise")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = False
    study = Study(options)
    for part in options.parts.split(","):
        work: Callable[[], None] = getattr(study, part)
        start = time.perf_counter()
        try:
            work()
        except (UserError, RuntimeError, KeyError):
            # One part that cannot be done must not cost the others.
            print(f"{options.data} {part}: {traceback.format_exc()}", flush=True)
        print(f"{options.data} {part}: {time.perf_counter() - start:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()

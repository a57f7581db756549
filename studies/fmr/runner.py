"""One dataset of the FMR study: its models as they come, and one measurement after the other."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from settings import NETS

from stockpot.checkpoints.resolve import zoo_names
from stockpot.datasets.dataset import Dataset
from stockpot.measure.run import measure
from stockpot.models.device import pick_device


class Runner:
    """Finds models, and measures them in one setting at a time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.data = str(options.data)
        self.device = pick_device(options.device)
        self.out = Path(options.out) / self.data
        self.deadline = time.monotonic() + options.wait
        self.vqgan = {"autoencoder": options.autoencoder}
        self.oracle: dict[str, Any] = {"oracle": "zero_shot"}
        if options.oracle:
            self.oracle["oracle_params"] = {"model": options.oracle}

    def find(self, name: str) -> str:
        """Where a model lies: a folder, or its name in the zoo; empty where it is not there."""
        folders = [Path(place) / name for place in self.options.models.split(",")]
        there = [str(folder) for folder in folders if folder.is_dir()]
        return there[0] if there else name if name in zoo_names() else ""

    def come(self, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Models as they come: those in training are waited for, as long as `--wait` says."""
        left = list(names)
        while left:
            ready = next((name for name in left if self.find(name)), None)
            if ready is not None:
                left.remove(ready)
                yield ready, self.find(ready)
            elif time.monotonic() > self.deadline:
                print(f"no {', '.join(left)}: left out", flush=True)
                return
            else:
                time.sleep(1)

    def some(self, *names: str) -> dict[str, str]:
        """These models, once they are there."""
        return dict(self.come(names))

    @property
    def models(self) -> dict[str, str]:
        """All models under test, in their order."""
        found = dict(self.come(NETS[self.data]))
        return {name: found[name] for name in NETS[self.data] if name in found}

    @property
    def pair(self) -> dict[str, str]:
        """The plain model and the one trained against attacks."""
        return self.some(*NETS[self.data][:2])

    def cells(
        self,
        part: str,
        limit: int,
        models: dict[str, str],
        *,
        data: Dataset | None = None,
        **params: Any,
    ) -> None:
        """Measure models in one setting; the result files go to a folder of that name."""
        settings = {
            **self.oracle,
            "rule": self.options.rule,
            "budget": self.options.budget,
            "precision": self.options.precision,
            "pictures": 0,
            **params,
        }
        start = time.perf_counter()
        done = measure(
            models,
            {"dynamic": settings},
            data=self.data if data is None else data,
            data_options=None if data is not None else {"limit": limit, "split": "test"},
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

    @property
    def half(self) -> int:
        """The number of images of most parts beside the main tables."""
        return int(self.options.limit) // 2


def _fmr(cell: Any) -> str:
    found = {s.metric: s.value for s in cell.scores if not {"class", "turn"} & s.condition.keys()}
    names = ("accuracy", "validation_rate", "perturbed_accuracy", "fmr")
    return "/".join(f"{100 * found.get(name, float('nan')):.1f}" for name in names)

"""What is merged, at which settings, and what the merges answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from answers import Answers, Flags
from experts import Asked, Tower, in_tower, mixed
from tasks import Task, spoken

import stockpot
from stockpot.fuse import fusers
from stockpot.models.load import load_for

SMALL = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
WHOLE = (0.3, 0.5, 0.7, 1.0, 1.3, 1.7, 2.2, 3.0)
SCALES: dict[str, Sequence[float]] = {
    "task_arithmetic": SMALL, "ties": WHOLE, "dare": SMALL, "breadcrumbs": SMALL,
    "consensus_ta": SMALL, "magmax": SMALL, "tsv_m": WHOLE, "iso_c": WHOLE, "iso_cts": WHOLE,
}  # fmt: skip
"""Methods that see weights alone -> the scales among which validation images choose: eight each."""
PLAIN = ("average", "model_stock", *SCALES)
"""The same at their published settings, the package's defaults, and two without a scale."""
STATISTICS = ("fisher", "regmean")
"""Methods that see 256 unlabelled training images of each task."""
LAYER = "adamerging-layer"
LEARNING: dict[str, dict[str, Any]] = {
    LAYER: {"method": "adamerging", "layers": "layer"},
    "adamerging-task": {"method": "adamerging", "layers": "task"},
    "wemoe": {"method": "wemoe"},
}
"""Methods that learn on unlabelled test images, as published."""
CORRUPTIONS = ("gaussian_noise", "impulse_noise", "motion_blur", "pixelate", "contrast",
               "jpeg_compression", "spatter")  # fmt: skip
"""Those of FusionBench's robust evaluation."""
CORRUPTED_TASKS = ("cifar10", "fashion_mnist", "icons", "xrays")
SEVERITY, CORRUPTED = 3, 400
ADAPTED = ("gaussian_noise", "motion_blur", "contrast")
"""Corruptions on whose images layer-wise AdaMerging learns: one of each kind."""
UNSEEN = (("mnist", "icons"), ("fashion_mnist", "quickdraw"))
"""Pairs of tasks that no merged expert saw."""
GENERAL = ("average", "task_arithmetic", "ties", "regmean")
BASE = "base|corrupted"
REST = ("wemoe", "adamerging-task", "fisher")
"""What takes long and has the fewest claims: asked last, since time may end."""
FIRST = (BASE, *(name for name in (*PLAIN, *STATISTICS, *LEARNING) if name not in REST))
SECOND = (BASE, "average", "task_arithmetic", "ties", "regmean", "tsv_m", "iso_c")
"""What is asked of a second size."""
Ask = Callable[[], Answers]
"""Makes one merge and asks it."""


class Merging:
    """The experts of one base, merged in every way."""

    def __init__(self, base: Path, experts: Mapping[str, Path], asked: Asked, steps: int) -> None:
        self.base, self.experts, self.asked, self.steps = base, experts, asked, steps
        self.seconds: dict[str, float] = {}
        self._towers: dict[str, Tower] = {}

    def fused(self, method: str, names: Sequence[str] = (), **params: Any) -> dict[str, Any]:
        members = {name: str(self.experts[name]) for name in names or self.experts}
        found: dict[str, Any] = stockpot.fuse(
            method, members, base=str(self.base), device=self.asked.device, hashes=False, **params
        )
        return found

    def part(self, name: str) -> Iterator[tuple[str, Ask]]:
        """The merges of a part by name, each made when it is called."""
        asks: dict[str, Callable[[], Iterator[tuple[str, Ask]]]] = {
            "published": partial(self._published, FIRST), "adapted": self._adapted,
            "tuned": self._tuned, "general": self._general,
            "rest": partial(self._published, REST), "second": partial(self._published, SECOND),
        }  # fmt: skip
        for each, ask in asks[name]():
            yield each, partial(self._timed, each, ask)

    def _timed(self, name: str, ask: Ask) -> Answers:
        began = time.perf_counter()
        found = ask()
        self.seconds[name] = round(time.perf_counter() - began, 2)
        return found

    def _published(self, names: Sequence[str]) -> Iterator[tuple[str, Ask]]:
        """Methods at their published settings, on test images; the base on corrupted ones."""
        for name in names:
            yield name, self._base if name == BASE else partial(self._as_published, name)

    def _base(self) -> Answers:
        self.asked.put(self.asked.base)
        return {BASE: self.corrupted()}

    def _as_published(self, name: str) -> Answers:
        extra = LEARNING.get(name, {})
        method = extra.get("method", name)
        options = {key: value for key, value in extra.items() if key != "method"}
        if name in LEARNING:
            options |= self._learning(self._sets("test"))
        elif name in STATISTICS:
            options |= {"tasks": self._sets("fit")}
        return self._asked(name, method, options)

    def _learning(self, sets: Sequence[Any]) -> dict[str, Any]:
        return {"tasks": sets, "steps": self.steps, "together": len(self.experts)}

    def _adapted(self) -> Iterator[tuple[str, Ask]]:
        """Layer-wise AdaMerging that learned on the test images of a corruption, asked there."""
        for kind in ADAPTED:
            name = adapted_to(kind)
            yield name, partial(self._asked_there, name, kind)

    def _asked_there(self, name: str, kind: str) -> Answers:
        sets = []
        for task in self.experts:
            of = self.asked.tasks[task].test
            # Each image has a seed of its own, so the first ones are those that judge.
            changed = stockpot.corrupt(self.asked.images(task, "test"), kind, SEVERITY, seed=0)
            sets.append(spoken(task, f"test {kind}", (changed.cpu(), of.labels), of.classes))
        extra = {key: value for key, value in LEARNING[LAYER].items() if key != "method"}
        merged = self.fused(LEARNING[LAYER]["method"], **extra, **self._learning(sets))
        self.asked.put(in_tower(merged))
        return {name: self.corrupted([kind])}

    def _asked(self, name: str, method: str, options: dict[str, Any]) -> Answers:
        if method == "wemoe":
            return self._asked_module(name, method, options)
        weights = in_tower(self.fused(method, **options))
        if name in SCALES:
            self._towers[name] = weights
        self.asked.put(weights)
        return {name: self.asked.all_right("test"), f"{name}|corrupted": self.corrupted()}

    def _asked_module(self, name: str, method: str, options: dict[str, Any]) -> Answers:
        """A module has a router of its own: it is asked as a whole."""
        place = self.base.parent / name
        members = {task: str(folder) for task, folder in self.experts.items()}
        if not place.is_dir():  # of a run that was killed after it was made
            stockpot.fuse(
                method, members, base=str(self.base), device=self.asked.device, out=place,
                hashes=False, **options,
            )  # fmt: skip
        found: Answers = {name: {}, f"{name}|corrupted": {}}
        for task, of in self.asked.tasks.items():
            model = load_for(place, of.test, device=self.asked.device).eval()
            pixels = self.asked.images(task, "test")
            found[name][task] = self._right(model, pixels, of)
            if task in CORRUPTED_TASKS:
                for kind, changed in self._changed(task):
                    found[f"{name}|corrupted"][f"{task}|{kind}"] = self._right(model, changed, of)
        return found

    @torch.no_grad()
    def _right(self, model: Any, pixels: torch.Tensor, of: Task) -> Flags:
        said = [model(part.float() / 255).argmax(dim=1).cpu() for part in torch.split(pixels, 1024)]
        answers = torch.cat(said)
        flags: Flags = (answers == of.test.labels[: len(answers)]).numpy()
        return flags

    def _tuned(self) -> Iterator[tuple[str, Ask]]:
        """Every scale on validation images; what they choose, on test images."""
        for method in SCALES:
            yield f"{method}|tuned", partial(self._tuned_by_val, method)

    def _tuned_by_val(self, method: str) -> Answers:
        """A scale multiplies the merged change, so each is a point on the line from the base
        through the merge at the default."""
        default: Any
        (default,) = (
            each.default for each in fusers.get(method).parameters if each.name == "scale"
        )
        if method not in self._towers:
            self._towers[method] = in_tower(self.fused(method))
        merged = self._towers[method]
        points = {f"scale={scale}": mixed(self.asked.base, (scale / float(default), merged))
                  for scale in SCALES[method]}  # fmt: skip
        seen: Answers = {}
        for label, weights in points.items():
            self.asked.put(weights)
            seen[f"{method}|{label}|val"] = self.asked.all_right("val")
        best = max(seen, key=lambda key: np.mean([f.mean() for f in seen[key].values()]))
        self.asked.put(points[best.split("|")[1]])
        seen[f"{method}|tuned"] = self.asked.all_right("test")
        seen[f"{method}|tuned|corrupted"] = self.corrupted()
        return seen

    def _general(self) -> Iterator[tuple[str, Ask]]:
        """Merges of five experts on the two tasks of which none was an expert."""
        for unseen in UNSEEN:
            for method in GENERAL:
                name = f"{method}|without {'+'.join(unseen)}"
                yield name, partial(self._without, name, method, unseen)

    def _without(self, name: str, method: str, unseen: Sequence[str]) -> Answers:
        seen = [task for task in self.experts if task not in unseen]
        options: dict[str, Any] = {}
        if method in STATISTICS:
            options["tasks"] = [self.asked.tasks[task].fit for task in seen]
        self.asked.put(in_tower(self.fused(method, seen, **options)))
        return {name: self.asked.all_right("test")}

    def corrupted(self, kinds: Sequence[str] = CORRUPTIONS) -> dict[str, Flags]:
        """Answers to corrupted test images of four tasks."""
        return {
            f"{task}|{kind}": self.asked.right(task, "test", changed)
            for task in CORRUPTED_TASKS
            for kind, changed in self._changed(task, kinds)
        }

    def _changed(
        self, task: str, kinds: Sequence[str] = CORRUPTIONS
    ) -> Iterator[tuple[str, torch.Tensor]]:
        for kind in kinds:
            key = (task, f"test|{kind}")
            if key not in self.asked.kept:
                pixels = self.asked.images(task, "test")[:CORRUPTED]
                self.asked.kept[key] = stockpot.corrupt(pixels, kind, SEVERITY, seed=0)
            yield kind, self.asked.kept[key]

    def _sets(self, split: str) -> list[Any]:
        return [getattr(self.asked.tasks[name], split) for name in self.experts]


def adapted_to(kind: str) -> str:
    """The name of layer-wise AdaMerging that learned on images of this corruption."""
    return f"{LAYER}|adapted {kind}"

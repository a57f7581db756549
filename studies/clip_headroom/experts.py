"""A pool: experts of a base, what all tasks at once reach, and whether it is fit for merging."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from answers import Flags
from tasks import Task, pixels_of
from torch import Tensor

import stockpot
from stockpot.checkpoints.open import read_tensors
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.harden.contrastive import dual_encoder
from stockpot.harden.probe import Probe, probe_path
from stockpot.models.load import load_for

Tower = Mapping[str, Tensor]
"""The weights of a vision tower, by their names in it."""
PREFIX = "vision_model."
PROBED = 5_000
"""Images of a task, at most, that a linear probe is fitted on."""
STRENGTHS = (1e-1, 1.0, 1e1)
JOINT = "joint"
"""What the training on all tasks at once is called."""
SHARE = 0.3
"""The share of a task vector that must bring back most of its gain."""


@dataclass(frozen=True)
class Training:
    """How experts are trained."""

    steps: int = 360
    batch: int = 512
    lr: float = 3e-4
    joint: float = 1.5
    """Steps of the training on all tasks, in those of one expert."""
    augmentations: tuple[str, ...] = ("affine", "crop")


def expert(
    base: Path, data: Dataset, training: Training, seed: int, device: str, out: Path, steps: int
) -> None:
    """Train the vision tower against the frozen head of a task, or of all of them."""
    batch = min(training.batch, len(data))
    stockpot.harden(
        "nominal", str(base), data, out=out, device=device, seed=seed,
        epochs=max(1, round(steps / max(1, len(data) // batch))), batch_size=batch,
        lr=training.lr, weight_decay=0.0, augmentations=training.augmentations,
        precision="bf16" if device == "cuda" else "fp32",
    )  # fmt: skip


def together(tasks: Mapping[str, Task], device: str, side: int = 64) -> Dataset:
    """The images of all tasks in one set, every task equally often, each class with its prompts."""
    from foundation import resized

    classes: list[str] = []
    prompts: list[tuple[str, ...]] = []
    pixels, labels = [], []
    most = max(len(task.fit) for task in tasks.values())
    for name, task in tasks.items():
        words = task.fit.vocabulary
        assert words is not None
        rows = torch.arange(most // 2) % len(task.fit)
        pixels.append(resized(pixels_of(task.fit), torch.device(device), side).cpu()[rows])
        labels.append(task.fit.labels[rows] + len(classes))
        classes += [f"{name}: {word}" for word in task.fit.classes]
        prompts += list(words.prompts)
    mark = hashlib.sha256("".join(task.fit.fingerprint for task in tasks.values()).encode())
    return Dataset(
        name="together", split="fit", images=TensorImages(torch.cat(pixels)),
        labels=torch.cat(labels), classes=tuple(classes), fingerprint=mark.hexdigest(),
        prompts=tuple(prompts),
    )  # fmt: skip


def tower(folder: Path) -> dict[str, Tensor]:
    """The vision tower in a folder, of an expert or of a whole dual encoder."""
    return in_tower(read_tensors(folder / "model.safetensors"))


def in_tower(tensors: Tower) -> dict[str, Tensor]:
    """Of a checkpoint's tensors those of the vision tower, named as in it."""
    found = {key.removeprefix(PREFIX): value for key, value in tensors.items()}
    apart = ("text_", "visual_projection", "logit_scale")
    return {key: value for key, value in found.items() if not key.startswith(apart)}


class Asked:
    """One working model that is given towers, and answers the images of all tasks."""

    def __init__(self, base: Path, tasks: Mapping[str, Task], device: str) -> None:
        self.tasks, self.device = tasks, device
        self._model = load_for(str(base), next(iter(tasks.values())).fit, device=device)
        self.heads = {name: dual_encoder(load_for(str(base), task.fit)).head.to(device)
                      for name, task in tasks.items()}  # fmt: skip
        self.kept: dict[tuple[str, str], Tensor] = {}
        """Images on the device, by task and what they are."""
        self.base = tower(base)

    def images(self, task: str, split: str) -> Tensor:
        if (task, split) not in self.kept:
            pixels = pixels_of(getattr(self.tasks[task], split))
            self.kept[task, split] = pixels.to(self.device)
        return self.kept[task, split]

    def put(self, weights: Tower) -> None:
        """Answer with this tower from now on."""
        network = dual_encoder(self._model)
        network.vision_tower.load_state_dict(
            {k: v.float() for k, v in weights.items()}, strict=False
        )

    @torch.no_grad()
    def features(self, pixels: Tensor, size: int = 2048) -> Tensor:
        return torch.cat(
            [self._model.features(part.float() / 255) for part in torch.split(pixels, size)]
        )

    def right(self, task: str, split: str, pixels: Tensor | None = None) -> Flags:
        """Which images of a task are answered rightly; `pixels` may be changed copies."""
        data = getattr(self.tasks[task], split)
        given = self.images(task, split) if pixels is None else pixels
        answers = (self.features(given) @ self.heads[task].T).argmax(dim=1).cpu()
        flags: Flags = (answers == data.labels[: len(answers)]).numpy()
        return flags

    def all_right(self, split: str) -> dict[str, Flags]:
        return {task: self.right(task, split) for task in self.tasks}


def mixed(base: Tower, *parts: tuple[float, Tower]) -> dict[str, Tensor]:
    """The base and so much of each change."""
    return {
        key: value.float()
        + sum(share * (other[key].float() - value.float()) for share, other in parts)
        for key, value in base.items()
        if value.is_floating_point()
    }


def probed(asked: Asked, task: str) -> dict[str, Flags]:
    """What a linear probe of the features gets right; a tenth of the images it is fitted on chooses
    its strength."""
    fit = asked.tasks[task].fit.limited(PROBED)
    features = asked.features(pixels_of(fit).to(asked.device))
    labels = fit.labels.to(asked.device)
    order = torch.randperm(len(fit), generator=torch.Generator().manual_seed(0)).to(asked.device)
    held, kept = order[: len(order) // 10], order[len(order) // 10 :]
    probes = probe_path(
        features[kept], labels[kept], len(fit.classes), strengths=STRENGTHS, iterations=40
    )

    def share(probe: Probe) -> float:
        return float((probe.logits(features[held]).argmax(dim=1) == labels[held]).float().mean())

    best, found = max(probes, key=share), {}
    for split in ("test", "val"):
        answers = best.logits(asked.features(asked.images(task, split))).argmax(dim=1).cpu()
        found[split] = (answers == getattr(asked.tasks[task], split).labels).numpy()
    return found


def gates(found: Mapping[str, Mapping[str, Flags]]) -> dict[str, Any]:
    """The four conditions on the means over tasks, by validation images; the last one only where
    there was joint training."""
    mean = {name: float(np.mean([flags.mean() for flags in found[f"{name}|val"].values()]))
            for name in ("base", "probe", "single", JOINT, "experts")
            if f"{name}|val" in found}  # fmt: skip
    gain = mean["experts"] - mean["base"]
    values = {
        "probe": mean["probe"] / mean["experts"],
        "headroom": gain,
        "single": (mean["single"] - mean["base"]) / gain,
    }
    if JOINT in mean:
        values["joint"] = mean[JOINT] - mean["experts"]
    least = {"probe": 0.9, "headroom": 0.25, "single": 0.7, "joint": -0.05}
    return {key: {"value": value, "least": least[key], "met": value >= least[key]}
            for key, value in values.items()}  # fmt: skip


def describe(found: Mapping[str, Mapping[str, Flags]], names: Sequence[str]) -> str:
    """Accuracies of some models by task, for a log."""
    rows = []
    for name in names:
        of = found[name]
        shown = " ".join(f"{task} {100 * flags.mean():.1f}" for task, flags in of.items())
        rows.append(f"{name:16} {100 * np.mean([f.mean() for f in of.values()]):.1f}  {shown}")
    return "\n".join(rows)


def smaller(tasks: Mapping[str, Task], count: int) -> dict[str, Task]:
    """Few images of each set, to try the study out."""
    return {name: Task(*(part.limited(count) for part in task))
            for name, task in tasks.items()}  # fmt: skip

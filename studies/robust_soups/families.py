"""The families of the study: what is trained, from what, for how long, and what is kept of it.

A family is a base, trained against attacks in one norm, and its tunings to other threats. Weights
are kept in half precision (norms and biases in full), and what is kept is the member: a tuning
starts from the kept base and a soup mixes kept members, so that it does not matter whether a file
has travelled in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.files import write_atomic
from stockpot.harden import hardeners
from stockpot.harden.loop import Report, train
from stockpot.harden.optimise import fast_layout
from stockpot.harden.state import Resume
from stockpot.models.classifier import Classifier
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

RADII = {"linf": "8/255", "l2": "128/255", "l1": "12"}
SOUPED = ("linf", "l2", "l1", "nominal")
JOINT = {
    "sat2": ("sat", "linf,l1"), "max2": ("max", "linf,l1"), "max3": ("max", "linf,l2,l1"),
}  # fmt: skip
"""Trained against several norms at once: how, and which."""
CORRUPTIONS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur",
    "zoom_blur", "snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate",
    "jpeg_compression",
)  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """Every number of the plan; another scale is for trying the code."""

    widths: tuple[int, ...] = (64, 128, 256, 512)
    depths: tuple[int, ...] = (2, 2, 2, 2)
    seeds: int = 4
    final: int = 3
    """The first so many seeds decide F4, F5, F6, F8 and F9; those after them ask again."""
    learned: int = 45_000
    """Training images; the ones after them are for validation."""
    epochs: int = 40
    tuned: int = 10
    nominal: int = 20
    batch: int = 512
    rate: float = 0.2
    tuned_rate: float = 0.05
    steps: int = 10
    looks: int = 40
    quick: int = 20
    """Steps of the attacks that choose."""
    validation: int = 1000
    source: int = 1000
    """Training images on which BatchNorm statistics are estimated, for every soup and member."""
    judged: int = 10_000
    lines: int = 4000
    """Test images for F1, whose margin is wide."""
    strong: int = 1000
    strong_looks: tuple[int, int] = (100, 5)
    corruptions: tuple[str, ...] = CORRUPTIONS
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    step: float = 0.2
    low: float = -0.4
    first: int = 100
    """Corrupted images that every soup meets."""
    second: int = 700
    """Further ones for the best of each cell, and for the best over all cells."""
    kept: int = 64
    overall: int = 16
    shifted: int = 4000
    """Corrupted images, others than those, on which what was chosen is judged."""
    labelled: int = 1000
    """Images for F7, half of them to choose on."""


TOY = Scale(
    widths=(4, 4), depths=(1, 1), seeds=2, learned=48, epochs=2, tuned=1, nominal=1, batch=16,
    steps=2, looks=2, quick=1, validation=12, source=16, judged=16, lines=8, strong=4,
    strong_looks=(2, 1), corruptions=("pixelate", "jpeg_compression"), severities=(1, 5), step=0.5,
    low=-0.5, first=8, second=8, kept=4, overall=2, shifted=12, labelled=16,
)  # fmt: skip
"""Runs on a CPU in seconds; its numbers mean nothing."""


@dataclass(frozen=True)
class Member:
    """One training: of a family (its seed, and the norm of its base), in a role."""

    seed: int
    base: str
    role: str

    @property
    def family(self) -> str:
        return f"{self.seed}-{self.base}"

    @property
    def name(self) -> str:
        return f"{self.family}-{self.role}"

    @property
    def parent(self) -> Member | None:
        """What it is tuned from; a base starts fresh."""
        return None if self.role == self.base else replace(self, role=self.base)

    def epochs(self, scale: Scale) -> int:
        if self.parent is None:
            return scale.epochs
        return scale.nominal if self.role == "nominal" else scale.tuned

    def passes(self) -> float:
        """What an epoch costs, in epochs against one norm."""
        known = {"nominal": 0.15, "max2": 2.0, "max3": 3.0}
        return known.get(self.role, 1.0)

    def objective(self, scale: Scale) -> Any:
        if self.role == "nominal":
            return hardeners.get("nominal")()
        if self.role in JOINT:
            method, norms = JOINT[self.role]
            eps = ",".join(RADII[norm] for norm in norms.split(","))
            return hardeners.get(method)(norms=norms, eps=eps, steps=scale.steps)
        return hardeners.get("adversarial")(norm=self.role, eps=RADII[self.role], steps=scale.steps)


def fresh(scale: Scale, classes: tuple[str, ...], seed: int, size: int = 32) -> Classifier:
    """The network, with weights of a seed."""
    side = ImageSize(size, size)
    return new_huggingface(
        "small_resnet", classes=classes, preprocess=Preprocess(side, side), seed=seed,
        embedding_size=scale.widths[0], hidden_sizes=list(scale.widths),
        depths=list(scale.depths), layer_type="basic",
    )  # fmt: skip


def halved(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights as they are kept: matrices and filters in half precision."""
    return {
        name: (tensor.half() if tensor.is_floating_point() and tensor.ndim > 1 else tensor)
        .detach().cpu().contiguous()
        for name, tensor in state.items()
    }  # fmt: skip


def place_of(folder: Path, member: Member) -> Path:
    return folder / "kept" / f"{member.name}.safetensors"


def read_member(
    folder: Path, member: Member, scale: Scale, classes: tuple[str, ...], size: int = 32
) -> Classifier:
    """A kept member in full precision."""
    model = fresh(scale, classes, member.seed, size)
    state = load_file(place_of(folder, member))
    model.load_state_dict({name: tensor.to(model.state_dict()[name].dtype)
                           for name, tensor in state.items()})  # fmt: skip
    return model.eval()


def train_member(
    folder: Path,
    member: Member,
    scale: Scale,
    data: Dataset,
    device: torch.device,
    *,
    seconds: float = 60.0,
    report: Report | None = None,
) -> None:
    """Train one member and keep it; its state is saved every so many seconds, and gone afterwards.

    Data order, augmentations and the attack's draws follow from the seed and the step, so that a
    training that was stopped ends with the same weights.
    """
    size = next(data.images.batches(1, None)).shape[-1]
    if member.parent is None:
        model = fresh(scale, data.classes, member.seed, size)
    else:
        model = read_member(folder, member.parent, scale, data.classes, size)
    state = folder / "state" / f"{member.name}.pt"
    # Every training of every seed meets the images in an order of its own.
    own = 100 * member.seed + (*SOUPED, *JOINT).index(member.role)
    model.to(device)
    with fast_layout(model, device):
        train(
            model, data, member.objective(scale),
            resume=Resume(state, seconds=seconds), question=f"{member.name} {scale}",
            report=report, epochs=member.epochs(scale), batch_size=scale.batch, optimizer="sgd",
            lr=scale.rate if member.parent is None else scale.tuned_rate, weight_decay=5e-4,
            warmup=0.1, clip=0.0, seed=own,
            precision="bf16" if device.type == "cuda" else "fp32",
        )  # fmt: skip
    write_atomic(place_of(folder, member), save(halved(model.state_dict())))
    state.unlink(missing_ok=True)

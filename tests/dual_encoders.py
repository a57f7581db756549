"""Pico dual encoders, shared by the tests of zero-shot heads, towers and open-vocabulary tasks."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from stockpot.datasets.words.words import plain_words
from stockpot.models.dual_encoder import new_dual_encoder
from stockpot.models.preprocess import Preprocess
from stockpot.models.prompts import Prompts
from stockpot.types import ImageSize

SIZE = ImageSize(16, 16)
PLAIN = Preprocess(SIZE, SIZE, (0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
VISION = {"patch_size": 8, "hidden_size": 16, "intermediate_size": 32}
VISION |= {"num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {"hidden_size": 16, "intermediate_size": 32}
TEXT |= {"num_hidden_layers": 1, "num_attention_heads": 2}
WORDS = plain_words(
    ("ant", "bee", "cat", "dog", "fox", "one", "two"), ("a photo of a {}.",)
).prompts


def make_clip(folder: Path, *, prompts: Prompts = WORDS, seed: int = 0) -> Path:
    """A whole pico CLIP with its tokenizer."""
    new_dual_encoder(
        folder,
        prompts=prompts,
        preprocess=PLAIN,
        seed=seed,
        projection_dim=8,
        vocabulary=300,
        vision=VISION,
        text=TEXT,
    )
    return folder


def make_expert(base: Path, folder: Path, *, seed: int) -> Path:
    """A vision tower of its own, a little away from that of its base."""
    from stockpot.models.load import load_model

    load_model(base, classes=("ant", "bee")).save(folder)
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: tensor + 0.02 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder

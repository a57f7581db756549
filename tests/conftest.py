"""Pico models and tiny datasets, made here; nothing is downloaded."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.models.classifier import Classifier
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize


@pytest.fixture
def toy_data() -> Dataset:
    return make_dataset()


@pytest.fixture
def perfect() -> Classifier:
    return make_classifier(ReadsLabel(len(CLASSES)))


@pytest.fixture(scope="session")
def pico_vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved Hugging Face ViT of a few thousand weights with four named classes."""
    from stockpot.models.huggingface import new_huggingface

    side = ImageSize(16, 16)
    model = new_huggingface(
        "vit",
        classes=CLASSES,
        preprocess=Preprocess(side, side),
        seed=0,
        image_size=16,
        patch_size=8,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return model.save(tmp_path_factory.mktemp("models") / "pico-vit")


@pytest.fixture
def toy_file(tmp_path: Path) -> Path:
    """The toy dataset as an npz file with class names."""
    import numpy as np

    data = make_dataset()
    assert isinstance(data.images, TensorImages)
    path = tmp_path / "toy.npz"
    np.savez(
        path,
        images=data.images.pixels.permute(0, 2, 3, 1).numpy(),
        labels=data.labels.numpy(),
        classes=np.array(CLASSES),
    )
    return path

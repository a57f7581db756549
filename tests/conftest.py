"""Pico models and tiny datasets, made here; nothing is downloaded, and nobody's home is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

import processes  # noqa: F401 (says what the workers of an engine find imported)
from fetched_layout import write_little_sets
from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from skips import (  # noqa: F401 (hooks of pytest)
    pytest_runtest_logreport,
    pytest_sessionfinish,
    pytest_terminal_summary,
)
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.fetch.cache import cache_dir
from stockpot.datasets.icons import loader
from stockpot.models.classifier import Classifier
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

REAL_CACHE = cache_dir()
"""Where this machine keeps fetched data; only tests marked `data` see it."""

# Tests ask for many splits and families of the icons, one after the other: each picture is decoded
# once for all of them, 100 MB in the end, which a command had better not hold.
loader.picture_of = cache(loader.picture_of)


@pytest.fixture(autouse=True, scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty home with an empty cache, so that a test finds the same on every machine."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("XDG_CACHE_HOME", str(folder / ".cache"))
        patch.setenv("HF_HOME", str(folder / ".cache" / "huggingface"))
        patch.delenv("STOCKPOT_CACHE", raising=False)
        yield folder


@pytest.fixture(autouse=True)
def _real_cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("data"):
        monkeypatch.setenv("STOCKPOT_CACHE", str(REAL_CACHE))


@pytest.fixture(scope="session")
def _little_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fetched")
    write_little_sets(folder)
    return folder


@pytest.fixture
def little_sets(_little_sets: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds a few pictures of every dataset that can be fetched."""
    monkeypatch.setenv("STOCKPOT_CACHE", str(_little_sets))
    return _little_sets


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server that runs for all tests that ask for one."""
    pytest.importorskip("psycopg")
    from postgres import NONE, programs, server

    if programs() is None:
        pytest.skip(NONE)
    with server() as url:
        yield url

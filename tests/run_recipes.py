"""A recipe with every kind of entry, of models and data so small that it runs in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pico import CLASSES
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

SIDE = ImageSize(16, 16)
ARCHITECTURE: dict[str, Any] = {
    "image_size": 16,
    "patch_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def pico_model(folder: Path, seed: int) -> Path:
    model = new_huggingface(
        "vit", classes=CLASSES, preprocess=Preprocess(SIDE, SIDE), seed=seed, **ARCHITECTURE
    )
    return model.save(folder)


def pico_recipe(place: Path, data: Path, *, make: bool = True) -> dict[str, Any]:
    """The recipe, with its three given models under `place`; they are made unless there."""
    for seed, name in enumerate(("base", "a", "b") if make else ()):
        pico_model(place / name, seed)
    return {
        "version": 1,
        "device": "cpu",
        "data": {"toy": {"dataset": str(data), "limit": 24}, "seen": {"dataset": str(data)}},
        "models": {name: {"load": str(place / name)} for name in ("base", "a", "b")}
        | {"new": {"new": "vit", "data": "seen", "size": 16, **ARCHITECTURE}},
        "harden": {
            "tuned": {"method": "nominal", "model": "new", "data": "seen", "epochs": 1}
            | {"batch_size": 8, "lr": 0.01}
        },
        "fuse": {
            "moved": {"method": "task_arithmetic", "models": ["a", "tuned"], "base": "base"}
            | {"scale": 0.5},
            "line": {"method": "wise_ft", "models": ["a"], "base": "base"}
            | {"sweep": {"alpha": [0.2, 0.8]}},
            "soup": {"method": "average", "models": ["a", "b"]},
            "informed": {"method": "fisher", "models": ["a", "b"], "data": "seen"}
            | {"examples": 8, "save": str(place / "learned")},
        },
        "season": {"best": {"method": "grid", "models": ["a", "b"], "data": "seen", "shots": 6}},
        "measure": {
            "models": ["base", "tuned", "moved", "line", "soup", "informed", "best"],
            "with": [
                {"measure": "clean", "data": "toy"},
                {"measure": "corruption", "data": "toy", "corruptions": ["contrast"]}
                | {"severities": [1], "baseline": "soup"},
            ],
        },
        "report": {"title": "Pico"},
    }

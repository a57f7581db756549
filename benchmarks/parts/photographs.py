"""Photographs and networks that benchmarks make: the time they take is that of real ones."""

from __future__ import annotations

import io
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file

from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess
from stockpot.types import ImageSize

CLASSES = tuple(f"class{number:03d}" for number in range(1000))
WIDE, HIGH = 500, 375
NETWORKS: dict[str, tuple[str, int, dict[str, object]]] = {
    "resnet50": ("resnet", 224, {}),
    "vit-b16": ("vit", 224, {}),
    "vit-l16": (
        "vit",
        224,
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    ),
    "tiny": ("resnet", 64, {"hidden_sizes": [16, 32], "depths": [1, 1], "embedding_size": 16}),
}
"""Architecture, size of pictures, and what is not as transformers has it."""


def photographs(folder: Path, count: int, different: int | None = None) -> None:
    """JPEG files with the spectrum of photographs, a hundred classes of them.

    Args:
        folder: where to; what is there already stays.
        count: how many files.
        different: how many pictures; further files repeat them with a few bytes after their end.
    """
    generator = np.random.default_rng(0)
    scenes = [_scene(generator) for _ in range(16)]
    if folder.is_dir():
        return
    for name in CLASSES[: min(100, count)]:
        (folder / name).mkdir(parents=True)
    most = min(count, different or count)
    shifts = generator.integers(0, (HIGH, WIDE), size=(most, 2))

    def write(number: int) -> None:
        down, right = shifts[number % most]
        pixels = np.roll(scenes[number % most % len(scenes)], (down, right), axis=(0, 1))
        files = [
            folder / CLASSES[place % 100] / f"{place:06d}.jpg"
            for place in range(number, count, most)
        ]
        Image.fromarray(pixels).save(stream := io.BytesIO(), "JPEG", quality=90)
        for turn, file in enumerate(files):
            file.write_bytes(stream.getvalue() + (turn.to_bytes(4, "big") if turn else b""))

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, range(most)))


def _scene(generator: np.random.Generator) -> NDArray[np.uint8]:
    """Noise whose amplitude falls with frequency, and a few shapes with sharp edges."""
    across, down = np.fft.fftfreq(WIDE)[None], np.fft.fftfreq(HIGH)[:, None]
    amplitude = 1 / np.maximum(np.hypot(across, down), 1 / WIDE)
    noise = generator.standard_normal((3, HIGH, WIDE))
    planes = np.fft.ifft2(np.fft.fft2(0.7 * noise[:1] + 0.3 * noise) * amplitude).real
    planes = 110 + 55 * planes / planes.std()
    for _ in range(6):
        top, left = generator.integers(0, HIGH - 60), generator.integers(0, WIDE - 60)
        tall, broad = generator.integers(20, 120, size=2)
        planes[:, top : top + tall, left : left + broad] *= generator.uniform(0.5, 1.5)
    return np.ascontiguousarray(planes.clip(0, 255).astype(np.uint8).transpose(1, 2, 0))


def checkpoints(folder: Path, name: str, count: int) -> list[Path]:
    """Folders of the network with random weights."""
    architecture, size, config = NETWORKS[name]
    side = ImageSize(size, size)
    preprocess = Preprocess(side, int(size / 0.875), IMAGENET_MEAN, IMAGENET_STD)
    first, *others = (folder / f"{name}-{seed}" for seed in range(count))
    if not first.is_dir():
        new_huggingface(
            architecture, classes=CLASSES, preprocess=preprocess, seed=0, **config
        ).save(first)
    for turn, other in enumerate(others, start=1):
        if not other.is_dir():
            shutil.copytree(first, other)
            weights = load_file(first / "model.safetensors")
            head = next(key for key in weights if "classifier" in key and key.endswith("weight"))
            weights[head] = weights[head].roll(turn, 0).contiguous()
            save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    return [first, *others]

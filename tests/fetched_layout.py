"""Little datasets in the layout of fetched ones, so that tests need no download.

The pictures are noise; names, splits, channels, sides and the file itself are the real thing.
"""

from __future__ import annotations

from pathlib import Path

import torch

from stockpot.datasets.catalogue import catalogue, find
from stockpot.datasets.dataset import pixel_fingerprint
from stockpot.datasets.named.decoded import Part, write_decoded

SHAPES = {
    "cifar10": (3, 32, 32),
    "mnist": (1, 28, 28),
    "fashion_mnist": (1, 28, 28),
    "quickdraw": (1, 28, 28),
}
HELD_OUT = 1000
"""What `val` takes from the end of train, but for drawings, which hold three of a class out."""


def write_little_sets(cache: Path, names: tuple[str, ...] = tuple(catalogue)) -> None:
    """Put a few pictures of every class of these datasets where fetched ones lie."""
    for name in names:
        chosen = find(name)
        classes = len(chosen.classes)
        train = classes * 5 if name == "quickdraw" else HELD_OUT + classes * 4
        parts = {
            "train": _noise(SHAPES[name], train, classes, seed=1),
            "test": _noise(SHAPES[name], classes * 4, classes, seed=2),
        }
        facts = {
            f"{split}.fingerprint": pixel_fingerprint(part.in_colour(), part.labels, chosen.classes)
            for split, part in parts.items()
        }
        write_decoded(cache / "datasets" / f"{name}.safetensors", parts, facts)


def _noise(shape: tuple[int, int, int], count: int, classes: int, seed: int) -> Part:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, *shape), generator=generator, dtype=torch.uint8)
    return Part(pixels, torch.arange(count) % classes)

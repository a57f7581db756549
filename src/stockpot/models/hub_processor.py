"""What a folder of the hub says of how pictures become what its network sees; without torch.

So that pictures can be decoded for a model while torch is still being imported. `Preprocess` is
made of the same (`preprocess.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stockpot.checkpoints.resolve import Resolved, resolve
from stockpot.datasets.stream.geometry import CODES, Geometry
from stockpot.errors import BadCheckpointError
from stockpot.foreign import read_json_object, reading
from stockpot.models.config import adapter_config, kind_of, read_config
from stockpot.types import ImageSize

_LONGEST_SIDE = 10_000
_HALF = (0.5, 0.5, 0.5)
_LOCAL = ("zoo", "folder")


class Processor(NamedTuple):
    """Bring a picture to a size, then normalise it by a mean and a standard deviation."""

    geometry: Geometry
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __str__(self) -> str:
        size, resized, interpolation = self.geometry
        short = resized if isinstance(resized, int) else str(resized)
        numbers = "/".join(f"{m:g}:{s:g}" for m, s in zip(self.mean, self.std, strict=True))
        return f"resize {short} {interpolation} | crop {size} | normalise {numbers}"


def read_processor(folder: Path, *, default_size: int) -> Processor:
    """Read `preprocessor_config.json` (or `processor_config.json`) of a Hugging Face folder."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = folder / name
        if not path.exists():
            continue
        config = read_json_object(path, BadCheckpointError)
        with reading(path, BadCheckpointError):
            found = processor_of(config.get("image_processor", config), default_size=default_size)
            _check(found)
        return found
    # transformers itself would refuse such a folder; a plain resize is what its authors meant.
    side = ImageSize(default_size, default_size)
    return Processor(Geometry(side, side, "bilinear"), _HALF, _HALF)


def processor_of(config: Mapping[str, Any], *, default_size: int) -> Processor:
    """The same rules as the hub's image processors, from their configuration."""
    kind = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    size = _sides(config.get("size", default_size), kind)
    crop = _sides(config.get("crop_size", size), kind)
    resized: int | ImageSize = size
    final = crop if isinstance(crop, ImageSize) else ImageSize(crop, crop)
    if kind.startswith("ConvNext") and isinstance(size, int):
        # ConvNeXt: below 384 px the short side is size / crop_pct and the centre is cropped;
        # from 384 px on the picture is squeezed to a square.
        final = ImageSize(size, size)
        resized = int(size / config.get("crop_pct", 224 / 256)) if size < 384 else final
    elif not config.get("do_center_crop", False):
        final = size if isinstance(size, ImageSize) else ImageSize(size, size)
        resized = final
    if not config.get("do_resize", True):
        resized = final
    normalised = config.get("do_normalize", True)
    mean = config.get("image_mean", _HALF) if normalised else (0.0, 0.0, 0.0)
    std = config.get("image_std", _HALF) if normalised else (1.0, 1.0, 1.0)
    code = int(config.get("resample", 2 if kind.startswith("ViT") else 3))
    return Processor(Geometry(final, resized, CODES[code]), _triple(mean), _triple(std))


def folder_processor(folder: Path) -> Processor:
    """How the classifier of a folder wants its pictures."""
    config = read_config(folder)
    size = config.get("image_size") or config.get("vision_config", {}).get("image_size") or 224
    return read_processor(folder, default_size=size if isinstance(size, int) else size[0])


def expected_processor(place: Resolved) -> Processor | None:
    """How a model will want its pictures, where its folder tells that without its weights."""
    plain = place.has_files and kind_of(read_config(place.local())) == "classifier"
    return folder_processor(place.local()) if plain else None


def local_processor(source: str) -> Processor | None:
    """The same of a source that lies here as it is, with nothing to be fetched or merged first.

    Whatever is wrong with it, who loads it will say.
    """
    try:
        place = resolve(source)
        if place.kind not in _LOCAL or adapter_config(place.local()) is not None:
            return None
        whole = (place.local() / "config.json").is_file()
        return expected_processor(place) if whole else None
    except Exception:  # of whatever kind: a config may hold anything
        return None


def _check(found: Processor) -> None:
    size, resized, _ = found.geometry
    sides = resized if isinstance(resized, ImageSize) else (resized,)
    if not all(1 <= side <= _LONGEST_SIDE for side in (*size, *sides)):
        raise ValueError(f"sides from 1 to {_LONGEST_SIDE} pixels are expected: {found}")
    if not all(map(math.isfinite, (*found.mean, *found.std))) or 0 in found.std:
        raise ValueError(f"it does not normalise: {found}")


def _sides(value: Any, kind: str) -> int | ImageSize:
    if isinstance(value, Mapping):
        if "shortest_edge" in value:
            return int(value["shortest_edge"])
        return ImageSize(int(value["height"]), int(value["width"]))
    if isinstance(value, list | tuple):
        return ImageSize(int(value[0]), int(value[-1]))
    # Old files give one number: a short side for CLIP and ConvNeXt, a square for the others.
    short = kind.startswith(("CLIP", "ConvNext", "Bit"))
    return int(value) if short else ImageSize(int(value), int(value))


def _triple(values: Any) -> tuple[float, float, float]:
    if isinstance(values, int | float):
        values = (values,) * 3
    first, second, third = map(float, values)
    return first, second, third

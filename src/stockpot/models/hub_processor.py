"""What a folder of the hub says of how pictures become what its network sees; without torch.

So that pictures can be decoded for a model while torch is still being imported. `Preprocess` is
made of the same (`preprocess.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stockpot.checkpoints.resolve import Resolved, resolve
from stockpot.datasets.stream.geometry import CODES, Geometry
from stockpot.errors import BadCheckpointError
from stockpot.foreign import read_json_object, reading
from stockpot.models.config import adapter_config, kind_of, read_config
from stockpot.models.hub_kinds import HALF, KINDS, Kind, Triple, kind_name
from stockpot.types import ImageSize

_LONGEST_SIDE = 10_000
_LOCAL = ("zoo", "folder")
_STEPS = (
    "do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_flip_channel_order",
    "rescale_offset", "include_top",
)  # fmt: skip


class Processor(NamedTuple):
    """Bring a picture to a size, then normalise it by a mean and a standard deviation."""

    geometry: Geometry
    mean: Triple
    std: Triple
    bgr: bool = False
    """Whether the network takes blue first."""

    def __str__(self) -> str:
        size, resized, interpolation = self.geometry
        short = resized if isinstance(resized, int) else str(resized)
        numbers = "/".join(f"{m:g}:{s:g}" for m, s in zip(self.mean, self.std, strict=True))
        flipped = " | blue first" if self.bgr else ""
        return f"resize {short} {interpolation} | crop {size}{flipped} | normalise {numbers}"


def read_processor(folder: Path, *, default_size: int) -> Processor:
    """Read `preprocessor_config.json` (or `processor_config.json`) of a Hugging Face folder.

    Args:
        folder: where it lies.
        default_size: the network's, for a processor of which nothing is known.
    """
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = folder / name
        if not path.exists():
            continue
        config = read_json_object(path, BadCheckpointError)
        with reading(path, BadCheckpointError):
            found = processor_of(
                config.get("image_processor", config),
                default_size=default_size,
                model_type=_model_type(folder),
            )
            _check(found)
        return found
    # transformers itself would refuse such a folder; a plain resize is what its authors meant.
    side = ImageSize(default_size, default_size)
    return Processor(Geometry(side, side, "bilinear"), HALF, HALF)


def _model_type(folder: Path) -> str:
    path = folder / "config.json"
    return str(read_config(folder).get("model_type", "")) if path.exists() else ""


def processor_of(
    config: Mapping[str, Any], *, default_size: int, model_type: str = ""
) -> Processor:
    """The same rules as the hub's image processors, from their configuration.

    Args:
        config: of the processor.
        default_size: the network's, for a processor of which nothing is known.
        model_type: of the network's own configuration; a processor may leave its kind to it.
    """
    # A step that is `null` is not taken; any other `null` says nothing.
    said = {key: value for key, value in config.items() if value is not None or key in _STEPS}
    name = kind_name(said, model_type)
    kind = KINDS.get(name, Kind(default_size))
    size, final = _sizes(said, name, kind)
    code = int(said.get("resample", kind.resample))
    mean, std = _scaled(said, name, kind)
    bgr = bool(said.get("do_flip_channel_order", name == "MobileViT"))
    return Processor(Geometry(final, size, CODES[code]), mean, std, bgr)


def _sizes(said: Mapping[str, Any], name: str, kind: Kind) -> tuple[int | ImageSize, ImageSize]:
    """What pictures are resized to, and what is cropped from that."""
    size = _sides(said.get("size", kind.size), short=kind.short)
    square = size if isinstance(size, ImageSize) else ImageSize(size, size)
    if name == "ConvNext" and isinstance(size, int):
        # Below 384 px the short side is size / crop_pct and the centre is cropped; from 384 px on
        # the picture is squeezed to a square.
        resized = int(size / said.get("crop_pct", 224 / 256)) if size < 384 else square
    elif not said.get("do_center_crop", kind.crops):
        resized = square
    else:
        usual = (kind.crop or kind.size) if name in KINDS else square
        square = _square(_sides(said.get("crop_size", usual), short=False))
        resized = _enlarged(size, name, said)
    return (resized if said.get("do_resize", True) else square), square


def _enlarged(size: int | ImageSize, name: str, said: Mapping[str, Any]) -> int | ImageSize:
    """What some kinds resize to instead of the size that they are told."""
    if name == "Levit" and isinstance(size, int):
        return int(256 / 224 * size)
    if name == "PoolFormer":
        share = said.get("crop_pct", 0.9)
        if isinstance(size, int) or size.height == size.width:
            return int((size if isinstance(size, int) else size.height) / share)
        return ImageSize(int(size.height / share), int(size.width / share))
    return size


def _scaled(said: Mapping[str, Any], name: str, kind: Kind) -> tuple[Triple, Triple]:
    """The mean and the spread of pixels from 0 to 1, whatever they are scaled to before."""
    own = _triple(said.get("image_std", kind.std))
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if said.get("do_normalize", True) and name != "MobileViT":
        mean, std = _triple(said.get("image_mean", kind.mean)), own
    scales, offset = said.get("do_rescale", True), 0.0
    scale = 255 * float(said.get("rescale_factor", 1 / 255) if scales else 1)
    if name == "EfficientNet":
        if scales and said.get("rescale_offset", False):
            offset = 1.0
        if said.get("include_top", True):  # divided once more, as its weights were trained
            std = _three(lambda channel: std[channel] * own[channel])
    return (
        _three(lambda channel: (mean[channel] + offset) / scale),
        _three(lambda channel: std[channel] / scale),
    )


def _three(of: Callable[[int], float]) -> Triple:
    return of(0), of(1), of(2)


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


def _sides(value: Any, *, short: bool) -> int | ImageSize:
    if isinstance(value, Mapping):
        if "shortest_edge" in value:
            return int(value["shortest_edge"])
        return ImageSize(int(value["height"]), int(value["width"]))
    if isinstance(value, list | tuple):
        return ImageSize(int(value[0]), int(value[-1]))
    return int(value) if short else ImageSize(int(value), int(value))


def _square(sides: int | ImageSize) -> ImageSize:
    return ImageSize(sides, sides) if isinstance(sides, int) else sides


def _triple(values: Any) -> Triple:
    if isinstance(values, int | float):
        values = (values,) * 3
    first, second, third = map(float, values)
    return first, second, third

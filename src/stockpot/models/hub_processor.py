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
from stockpot.datasets.stream.geometry import CODES, Geometry, Interpolation
from stockpot.errors import BadCheckpointError
from stockpot.foreign import read_json_object, reading
from stockpot.models.config import adapter_config, kind_of, read_config
from stockpot.models.hub_kinds import (
    HALF,
    KINDS,
    Kind,
    Triple,
    called,
    check_plain,
    kind_name,
    refused,
)
from stockpot.models.hub_sizes import sizes
from stockpot.types import ImageSize

_LONGEST_SIDE = 10_000
_LOCAL = ("zoo", "folder")
_WHOLE, _PICTURES = "processor_config.json", "preprocessor_config.json"
_STEPS = (
    "do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_flip_channel_order",
    "rescale_offset", "include_top", "default_to_square", "crop_pct",
)  # fmt: skip
"""What is turned off where it is `null`; any other `null` says nothing."""


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


def read_processor(folder: Path, *, default_size: int, model_type: str = "") -> Processor:
    """Read `preprocessor_config.json` (or `processor_config.json`) of a Hugging Face folder.

    Args:
        folder: where it lies.
        default_size: the network's, for a processor of which nothing is known.
        model_type: of the network's own configuration; a processor may leave its kind to it.
    """
    stated = _stated(folder)
    if stated is None:
        # transformers itself would refuse such a folder; a plain resize is what its authors meant.
        side = ImageSize(default_size, default_size)
        return Processor(Geometry(side, side, "bilinear"), HALF, HALF)
    path, config = stated
    with reading(path, BadCheckpointError):
        try:
            found = processor_of(config, default_size=default_size, model_type=model_type)
        except BadCheckpointError as problem:
            raise BadCheckpointError(f"{path}: {problem.message}", hint=problem.hint) from problem
        _check(found)
    return found


def has_processor(folder: Path) -> bool:
    """Whether a folder says how its pictures are prepared, where transformers looks for that."""
    return (folder / _PICTURES).is_file() or "image_processor" in _object(folder / _WHOLE)


def _stated(folder: Path) -> tuple[Path, Any] | None:
    """The file that says how pictures are prepared, and what it says.

    That of a whole processor, with a tokenizer, goes first where it holds one of pictures.
    """
    pictures, whole = folder / _PICTURES, folder / _WHOLE
    said = _object(whole)
    if said.get("image_processor") is not None:
        return whole, said["image_processor"]
    if pictures.exists():
        return pictures, _object(pictures)
    return (whole, said) if whole.exists() else None


def _object(path: Path) -> dict[str, Any]:
    return read_json_object(path, BadCheckpointError) if path.exists() else {}


def processor_of(
    config: Mapping[str, Any], *, default_size: int, model_type: str = ""
) -> Processor:
    """The same rules as the hub's image processors, from their configuration.

    Args:
        config: of the processor.
        default_size: the network's, for a processor of which nothing is known.
        model_type: of the network's own configuration; a processor may leave its kind to it.

    Raises:
        BadCheckpointError: it does something that is not done here.
    """
    said = {key: value for key, value in config.items() if value is not None or key in _STEPS}
    name, known_as = kind_name(said, model_type), called(said, model_type)
    if name not in KINDS:
        check_plain(said, model_type)
    kind = KINDS.get(name, Kind(default_size))
    size, final = sizes(said, name, kind, known_as)
    mean, std = _scaled(said, name, kind)
    # Other kinds do not flip, whatever is said.
    bgr = name == "MobileViT" and bool(said.get("do_flip_channel_order", True))
    interpolation = _interpolation(said.get("resample", kind.resample), known_as)
    return Processor(Geometry(final, size, interpolation), mean, std, bgr)


def _interpolation(code: Any, known_as: str) -> Interpolation:
    if not isinstance(code, int) or isinstance(code, bool) or code not in range(len(CODES)):
        known = ", ".join(f"{number} ({each})" for number, each in enumerate(CODES))
        raise refused(known_as, f"has resample {code!r}, where one of {known} is expected")
    return CODES[code]


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


def folder_processor(folder: Path, config: Mapping[str, Any]) -> Processor:
    """How the classifier of a folder wants its pictures.

    Args:
        folder: where its processor lies.
        config: what its `config.json` says.
    """
    size = config.get("image_size") or config.get("vision_config", {}).get("image_size") or 224
    return read_processor(
        folder,
        default_size=size if isinstance(size, int) else size[0],
        model_type=str(config.get("model_type", "")),
    )


def expected_processor(place: Resolved) -> Processor | None:
    """How a model will want its pictures, where its folder tells that without its weights."""
    if not place.has_files:
        return None
    config = read_config(place.local())
    return folder_processor(place.local(), config) if kind_of(config) == "classifier" else None


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


def _triple(values: Any) -> Triple:
    if isinstance(values, int | float):
        values = (values,) * 3
    first, second, third = map(float, values)
    return first, second, third

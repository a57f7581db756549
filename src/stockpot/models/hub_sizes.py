"""What pictures are resized to, and what is cropped of that, as the hub's processors say it.

One size has to come of it, whatever the picture, and one resizing with one crop have to do it:
anything else is refused. Without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stockpot.models.hub_kinds import Kind, refused
from stockpot.types import ImageSize

_WARPS_FROM = 384
"""The side from which ConvNeXt's kind squeezes a picture instead of cropping its centre."""


def sizes(
    said: Mapping[str, Any], name: str, kind: Kind, called: str
) -> tuple[int | ImageSize, ImageSize]:
    """What pictures are resized to (a short side, or an exact size), and what is cropped of that.

    Args:
        said: by the configuration.
        name: of its kind.
        kind: what that does unless it is told otherwise.
        called: how messages name it.

    Raises:
        BadCheckpointError: it is something else.
    """
    if not said.get("do_resize", True):
        raise refused(called, "takes pictures in whatever size they come (do_resize)")
    if said.get("do_pad") and "pad_size" in said:
        raise refused(called, "pads pictures after they are resized (pad_size)")
    size, crop = _size(said, name, kind, called), _crop(said, name, kind, called)
    if name == "ConvNext":
        return _of_convnext(said, size, crop, called)
    resized = _enlarged(said, name, size)
    if crop is not None:
        return resized, crop
    if isinstance(resized, int):
        raise refused(called, "resizes the short side and crops nothing, for pictures of any shape")
    return resized, resized


def _size(said: Mapping[str, Any], name: str, kind: Kind, called: str) -> int | ImageSize:
    if name == "CLIP" and said.get("use_square_size"):
        return _square(kind.size)
    if "size" not in said:
        return kind.size if kind.short else _square(kind.size)
    value = said["size"]
    if isinstance(value, Mapping):
        value = {key: side for key, side in value.items() if side is not None}
        if set(value) == {"shortest_edge"}:
            return int(value["shortest_edge"])
        if set(value) != {"height", "width"}:
            raise refused(called, f"has a size of {', '.join(map(str, value)) or 'nothing'}")
        return _exact(value)
    # Siglip's kind has a square of its own, but takes a number for the short side.
    square = said.get("default_to_square", not kind.short and name != "Siglip")
    return _exact(value) if square or isinstance(value, list | tuple) else int(value)


def _crop(said: Mapping[str, Any], name: str, kind: Kind, called: str) -> ImageSize | None:
    # Segformer's kind is never cropped, whatever is said.
    if not said.get("do_center_crop", kind.crops) or name == "Segformer":
        return None
    value = said.get("crop_size", kind.crop)
    if not value or (isinstance(value, Mapping) and not {"height", "width"} <= set(value)):
        raise refused(called, "crops the centre without a crop_size of height and width")
    return _exact(value)


def _of_convnext(
    said: Mapping[str, Any], size: int | ImageSize, crop: ImageSize | None, called: str
) -> tuple[int | ImageSize, ImageSize]:
    if not isinstance(size, int):
        raise refused(called, "has a size that is no short side (shortest_edge)")
    square = _square(size)
    if size >= _WARPS_FROM:
        return square, crop or square
    if crop not in (None, square):
        raise refused(called, "crops twice (do_center_crop)")
    share = said.get("crop_pct")
    return int(size / (224 / 256 if share is None else share)), square


def _enlarged(said: Mapping[str, Any], name: str, size: int | ImageSize) -> int | ImageSize:
    """What some kinds resize to instead of the size that they are told."""
    if name == "Levit" and isinstance(size, int):
        return int(256 / 224 * size)
    share = said.get("crop_pct", 0.9) if name == "PoolFormer" else None
    if share is None:
        return size
    if isinstance(size, int) or size.height == size.width:
        return int((size if isinstance(size, int) else size.height) / share)
    return ImageSize(int(size.height / share), int(size.width / share))


def _exact(value: Any) -> ImageSize:
    if isinstance(value, Mapping):
        return ImageSize(int(value["height"]), int(value["width"]))
    if isinstance(value, list | tuple):
        if len(value) not in (1, 2):
            raise ValueError(f"a size is a number or two, not {value!r}")
        return ImageSize(int(value[0]), int(value[-1]))
    return _square(int(value))


def _square(side: int) -> ImageSize:
    return ImageSize(side, side)

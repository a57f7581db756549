"""What is said of a shipped model: its classes, and how pictures become what it takes.

The keys are those of the options (`classes`, `size`, `resize`, `squash`, `mean`, `std`,
`interpolation`), and `bgr`, true for a network that takes blue first. Each is taken from the first
place that has it: an option, `model.onnx.json` beside the file, what the file itself holds,
`preprocessor_config.json` and `config.json` beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from stockpot.datasets.stream.geometry import Interpolation
from stockpot.errors import BadCheckpointError, BadParameterError, UserError
from stockpot.foreign import reading
from stockpot.models.hub_processor import has_processor
from stockpot.models.preprocess import Preprocess, from_hub
from stockpot.types import ImageSize

KEYS = ("classes", "size", "resize", "squash", "mean", "std", "interpolation", "bgr")
Said = Mapping[str, Any]
PLAIN: Said = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "bgr": False}
"""Pixels in [0, 1] are taken as they are."""


def stated(preprocess: Preprocess, classes: Sequence[str]) -> dict[str, Any]:
    """A preprocessing and class names under the keys above."""
    exact = isinstance(preprocess.resized, ImageSize)
    return {
        "classes": list(classes),
        "size": list(preprocess.size),
        **({"squash": True} if exact else {"resize": preprocess.resized}),
        "mean": list(preprocess.mean),
        "std": list(preprocess.std),
        "interpolation": preprocess.interpolation,
        "bgr": preprocess.bgr,
    }


def settled(
    what: str, *places: Said, side: ImageSize | None = None, hub: Path | None = None
) -> tuple[tuple[str, ...] | None, Preprocess]:
    """Class names, where somebody says them, and the preprocessing.

    Args:
        what: the model, for messages.
        places: where things are said, the strongest first; a key that is none there is not said.
        side: the size that the model's input has, where that is fixed.
        hub: a folder in which Hugging Face may have said more, weaker than all of them.
    """
    said: dict[str, Any] = {}
    for place in reversed(places):
        said |= {key: place[key] for key in KEYS if place.get(key) is not None}
    why = ""
    if hub is not None:
        if "classes" not in said and (names := _hub_names(hub)):
            said["classes"] = names
        try:
            said = {**_hub_preprocess(hub), **said}
        except UserError as problem:
            why = f" {problem.message}"  # of no account where enough is said elsewhere
    missing = [key for key in ("mean", "std") if key not in said]
    if "size" not in said and side is None:
        missing.append("size")
    if missing:
        raise BadCheckpointError(
            f"{what}: nothing says its preprocessing ({', '.join(missing)}).{why}",
            hint="Give -m mean=R,G,B -m std=R,G,B -m size=N (0,0,0 and 1,1,1 for pixels in "
            f"[0, 1] as they are), or write them into {Path(what).name}.json beside it.",
        )
    size = _size(said["size"], what) if "size" in said else side
    if size is None or (side is not None and size != side):
        raise BadCheckpointError(f"{what}: its input is {side}, but size says {size}.")
    resized = said.get("resize")
    if resized is not None and not _is_side(resized):
        raise BadCheckpointError(f"{what}: resize: expected a number of pixels, got {resized!r}.")
    if 0 in (divisors := three(said["std"], "std")):
        raise BadParameterError(f"std: expected three numbers to divide by, got {said['std']!r}.")
    # Of a size that is no square, nothing says how the rest is to be cut.
    whole = _flag(said.get("squash", False), "squash") or (
        resized is None and size.height != size.width
    )
    classes = said.get("classes")
    return (
        None if classes is None else tuple(str(name) for name in classes),
        Preprocess(
            size,
            size if whole else resized or size.height,
            three(said["mean"], "mean"),
            divisors,
            _interpolation(said.get("interpolation", "bicubic")),
            _flag(said.get("bgr", False), "bgr"),
        ),
    )


def names_of(what: str, classes: tuple[str, ...] | None, outputs: int) -> tuple[str, ...]:
    """The names of so many outputs; plain numbers where nobody says them."""
    if classes is None:
        return tuple(str(index) for index in range(outputs))
    if len(classes) != outputs:
        raise BadCheckpointError(
            f"{what} has {outputs} outputs, but {len(classes)} class names are given."
        )
    return classes


def beside(file: Path) -> list[Said]:
    """What lies beside a file: `NAME.json`, and what Hugging Face keeps of a model."""
    found: list[Said] = []
    own = file.with_name(f"{file.name}.json")
    if own.is_file():
        said = read_json(own)
        if unknown := [key for key in said if key not in (*KEYS, "made")]:
            raise BadCheckpointError(
                f"{own}: unknown key {unknown[0]!r}. Known: {', '.join(KEYS)}."
            )
        found.append(said)
    return found


def _hub_names(folder: Path) -> list[Any]:
    """The classes that the `config.json` of a Hugging Face folder names."""
    names = _hub_config(folder).get("id2label") or {}
    with reading(f"id2label of {folder / 'config.json'}", BadCheckpointError):
        return [names[key] for key in sorted(names, key=int)]


def _hub_preprocess(folder: Path) -> Said:
    """The preprocessing that a Hugging Face folder states."""
    if not has_processor(folder):
        return {}
    model_type = str(_hub_config(folder).get("model_type", ""))
    said = stated(from_hub(folder, default_size=224, model_type=model_type), ())
    del said["classes"]
    return said


def _hub_config(folder: Path) -> dict[str, Any]:
    config = folder / "config.json"
    return read_json(config) if config.is_file() else {}


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise BadCheckpointError(f"{file} is not JSON: {problem}.") from problem
    if not isinstance(found, dict):
        raise BadCheckpointError(f"{file}: expected a JSON object, got {type(found).__name__}.")
    return found


def three(values: Any, what: str) -> tuple[float, float, float]:
    """One number for each channel; a recipe gives them as a list."""
    several = isinstance(values, Sequence) and not isinstance(values, str)
    if not several or len(values) != 3:
        raise BadParameterError(
            f"{what}: expected three numbers (red, green, blue), got {values!r}."
        )
    with reading(f"{what} (expected three numbers, got {values!r})", BadParameterError):
        red, green, blue = (float(value) for value in values)
    return red, green, blue


def _flag(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise BadCheckpointError(f"{key}: expected true or false, got {value!r}.")
    return value


def _size(value: Any, what: str) -> ImageSize:
    sides = [value, value] if isinstance(value, int) else value
    several = isinstance(sides, Sequence) and not isinstance(sides, str)
    if not several or len(sides) != 2 or not all(map(_is_side, sides)):
        raise BadCheckpointError(f"{what}: size: expected a number or two, got {value!r}.")
    return ImageSize(*sides)


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _interpolation(value: Any) -> Interpolation:
    if value not in get_args(Interpolation):
        known = ", ".join(get_args(Interpolation))
        raise BadParameterError(f"interpolation: expected one of {known}, got {value!r}.")
    found: Interpolation = value
    return found

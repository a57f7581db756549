"""From a source that has files (a zoo name, a folder, a file, a hub id) to those with the weights.

This module does not import torch: the files can be found, and their hashing begun, while torch is
still being imported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stockpot.checkpoints.resolve import WEIGHT_SUFFIXES, Resolved, resolve
from stockpot.errors import BadCheckpointError
from stockpot.foreign import read_json_object

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d+)-of-(?P<count>\d+)\.(?P<suffix>safetensors|bin)")
Format = Literal["safetensors", "torch", "adapter", "small", "timm", "open_clip"]
ON_A_BASE: tuple[Format, ...] = ("adapter", "small")
"""What is a change of another model, which its config names."""

_FOLDER_NAMES: tuple[tuple[str, Format], ...] = (
    ("adapter_config.json", "adapter"),
    ("small_config.json", "small"),
    ("model.safetensors.index.json", "safetensors"),
    ("model.safetensors", "safetensors"),
    ("pytorch_model.bin.index.json", "torch"),
    ("pytorch_model.bin", "torch"),
    ("open_clip_model.safetensors", "safetensors"),
    ("open_clip_pytorch_model.bin", "torch"),
)
CONFIGS = ("config.json", "open_clip_config.json")
"""What says which architecture the weights beside it have."""


@dataclass(frozen=True)
class Location:
    """Where a checkpoint lies."""

    label: str
    format: Format
    files: tuple[Path, ...]
    folder: Path | None
    config: tuple[tuple[str, Any], ...] = ()
    """The adapter's settings, when it is one; the name of a model that a package gives."""


def locate(source: str | Path | Resolved) -> Location:
    """Find the weight files of a zoo model, a folder, a file or a hub id.

    A model that timm or open_clip names has none: the package is asked when it is opened.
    """
    found = resolve(source, "weights")
    if found.kind == "timm" or found.kind == "open_clip":
        return Location(found.text, found.kind, (), None, (("name", found.name),))
    place = found.local()
    if place.is_dir():
        return _in_folder(place, found.text)
    return _single_file(place, found.text)


def _in_folder(folder: Path, label: str) -> Location:
    for name, form in _FOLDER_NAMES:
        path = folder / name
        if not path.is_file():
            continue
        if form == "adapter":
            return _adapter(folder, label)
        if form == "small":
            return _small(folder, label)
        files = indexed_files(path) if name.endswith(".index.json") else (path,)
        return Location(label, form, files, folder)
    if shards := unindexed_shards(folder):
        form = "safetensors" if shards[0].suffix == ".safetensors" else "torch"
        return Location(label, form, shards, folder)
    # A folder written by another tool: accept it when its weights are not ambiguous.
    for pattern, form in (("*.safetensors", "safetensors"), ("*.bin", "torch"), ("*.pt", "torch")):
        found = sorted(folder.glob(pattern))
        if len(found) == 1:
            return Location(label, form, (found[0],), folder)
    here = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
    raise BadCheckpointError(
        f"{label}: expected model.safetensors, pytorch_model.bin or an index of shards, "
        f"found {here}."
    )


def unindexed_shards(folder: Path, of: str = "") -> tuple[Path, ...]:
    """The shards of a folder that has no index of them: `model-00001-of-00003.safetensors`.

    Args:
        folder: where they lie.
        of: the name of one of them, where there may be several sets.
    """
    sets: dict[tuple[str, ...], dict[int, Path]] = {}
    for path in sorted(folder.iterdir()):
        if match := _SHARD.fullmatch(path.name):
            key = match["stem"], match["count"], match["suffix"]
            sets.setdefault(key, {})[int(match["number"])] = path
    asked = _SHARD.fullmatch(of)
    if asked:
        key = asked["stem"], asked["count"], asked["suffix"]
        sets = {key: sets[key]}
    elif len(sets) > 1:  # as transformers does, safetensors before the rest
        sets = {key: found for key, found in sets.items() if key[2] == "safetensors"}
    if len(sets) != 1:
        return ()
    (((_, count, _), found),) = sets.items()
    missing = [number for number in range(1, int(count) + 1) if number not in found]
    if missing:
        first = next(iter(found.values())).name
        raise BadCheckpointError(
            f"{folder}: shard {missing[0]} of {int(count)} is missing beside {first}."
        )
    return tuple(found[number] for number in sorted(found))


def _single_file(path: Path, label: str) -> Location:
    if path.name.endswith(".index.json"):
        form: Format = "safetensors" if "safetensors" in path.name else "torch"
        return Location(label, form, indexed_files(path), path.parent)
    if _SHARD.fullmatch(path.name):
        form = "safetensors" if path.suffix == ".safetensors" else "torch"
        return Location(label, form, unindexed_shards(path.parent, path.name), path.parent)
    configured = any((path.parent / name).is_file() for name in CONFIGS)
    folder = path.parent if configured else None
    if path.suffix == ".safetensors":
        return Location(label, "safetensors", (path,), folder)
    if path.suffix in WEIGHT_SUFFIXES:
        return Location(label, "torch", (path,), folder)
    raise BadCheckpointError(
        f"{label}: expected a .safetensors, .bin, .pt, .pth or .ckpt file, got {path.suffix!r}.",
        hint=f"If torch.save wrote it: stockpot convert {path} -o NAME.safetensors",
    )


def indexed_files(index: Path) -> tuple[Path, ...]:
    """The shards that an index names, all of which must be there."""
    shards = read_json_object(index, BadCheckpointError).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(one, str) for one in shards.values()):
        raise BadCheckpointError(f"{index}: not an index of shards (weight_map).")
    # A shard lies beside its index: a path that leads elsewhere is no name of one.
    outside = next((one for one in shards.values() if one != Path(one).name), None)
    if outside is not None:
        raise BadCheckpointError(
            f"{index}: expected the names of files beside it, got {outside!r}."
        )
    files = tuple(index.parent / name for name in dict.fromkeys(shards.values()))
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise BadCheckpointError(f"{index}: the shard {missing[0]} is missing.")
    return files


def base_of_adapter(adapter: Location) -> str:
    """What the config of an adapter or a small model names as its base, or a folder beside it."""
    named = str(dict(adapter.config).get("base_model_name_or_path") or "")
    if not named:
        kind = "a small model" if adapter.format == "small" else "a LoRA adapter"
        raise BadCheckpointError(
            f"{adapter.label}: is {kind} whose config does not name its base.",
            hint="Give the base with --base.",
        )
    # An adapter that moved together with its base still finds it.
    beside = adapter.files[0].parent.parent / Path(named).name
    if not Path(named).exists() and (beside / "config.json").is_file():
        return str(beside)
    return named


def _adapter(folder: Path, label: str) -> Location:
    config = read_json_object(folder / "adapter_config.json", BadCheckpointError)
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        if (folder / name).is_file():
            return Location(label, "adapter", (folder / name,), folder, tuple(config.items()))
    raise BadCheckpointError(f"{label}: adapter_config.json without adapter_model.safetensors.")


def _small(folder: Path, label: str) -> Location:
    config = read_json_object(folder / "small_config.json", BadCheckpointError)
    shared = config.get("shared")
    # What members share lies in a folder beside theirs: a path that leads elsewhere is none.
    file = folder / "small.safetensors"
    if shared is not None:
        file = folder.parent / Path(str(shared)).name / "model.safetensors"
    if not isinstance(config.get("names"), dict) or not isinstance(config.get("tied"), dict):
        raise BadCheckpointError(f"{label}: small_config.json does not name its tensors.")
    if config.get("kind") not in ("bits", "superposed"):
        raise BadCheckpointError(
            f"{label}: expected a kind of small model (bits, superposed), got "
            f"{config.get('kind')!r}."
        )
    if not file.is_file():
        raise BadCheckpointError(f"{label}: small_config.json without {file}.")
    return Location(label, "small", (file,), folder, tuple(config.items()))

"""Vision towers on their own: how an expert of a dual encoder is kept and put back.

An expert differs from its dual encoder in the vision tower alone, so only that is written, in the
layout of `CLIPVisionModel` (which published experts have too). Its `config.json` says under
`dual_encoder` where the text tower is; files of others say it under `_name_or_path`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from stockpot.checkpoints.layouts import plain_name
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.resolve import resolve, zoo_folder
from stockpot.errors import BadCheckpointError, UserError
from stockpot.models.config import is_vision_tower, read_config
from stockpot.models.fingerprint import fingerprint_folder
from stockpot.models.huggingface import quietly
from stockpot.models.preprocess import Preprocess

_PLACES = ("dual_encoder", "_name_or_path")
"""The keys of a config that say where the dual encoder is."""
_PASSENGERS = ("embeddings.position_ids", "visual_projection.weight")
"""Tensors that some files carry and the tower does not need: numbers 0, 1, 2, ..., and the
projection, which experts of `CLIPVisionModelWithProjection` share with their dual encoder."""


def dual_encoder_of(folder: Path, given: str | None) -> tuple[Path, str]:
    """The folder and the name of the dual encoder that a vision tower belongs to."""
    named = given or _named(read_config(folder))
    if not named:
        raise UserError(
            f"{folder} is a vision tower and does not say which dual encoder it belongs to.",
            hint="Give dual_encoder=..., a CLIP or SigLIP folder, zoo name or hub id.",
        )
    if found := _nearby(folder, named):
        return found
    elsewhere = resolve(named)
    return elsewhere.local(), elsewhere.lasting


def fingerprint_model(folder: Path, dual_encoder: str | None = None) -> str:
    """The identity of a model folder; that of a vision tower covers its dual encoder."""
    content = fingerprint_folder(folder, settings_without_place(folder))
    return with_dual_encoder(content, folder, dual_encoder)


def settings_without_place(folder: Path) -> dict[Path, str]:
    """The config of a vision tower -> the hash of what it says, except where its dual encoder is.

    Nothing for other models, whose config is hashed as it is.
    """
    if not _is_lone(folder):
        return {}
    config = {key: value for key, value in read_config(folder).items() if key not in _PLACES}
    text = json.dumps(config, sort_keys=True)
    return {folder / "config.json": hashlib.sha256(text.encode()).hexdigest()}


def with_dual_encoder(fingerprint: str, folder: Path, given: str | None = None) -> str:
    """The identity of a vision tower together with its dual encoder's; of others, as it is.

    A dual encoder that is not on this machine counts by its name on the hub.
    """
    if not _is_lone(folder):
        return fingerprint
    named = given or _named(read_config(folder))
    found = _nearby(folder, named) if named else None
    content = fingerprint_folder(found[0]) if found else named
    return hashlib.sha256(f"{fingerprint}:{content}".encode()).hexdigest()


def _is_lone(folder: Path) -> bool:
    """Whether a folder holds a vision tower that needs its dual encoder, having no head."""
    if not (folder / "config.json").is_file():
        return False
    config = read_config(folder)
    return is_vision_tower(config) and "head" not in config


def _named(config: Mapping[str, Any]) -> str:
    return next((str(config[key]) for key in _PLACES if config.get(key)), "")


def _nearby(folder: Path, named: str) -> tuple[Path, str] | None:
    """A dual encoder in the zoo or on this machine, and a name that means it from anywhere."""
    if found := zoo_folder(named):
        return found, found.name
    # A folder that moved together with its dual encoder still finds it beside itself.
    beside = folder.parent / Path(named).name
    places = (beside,) if named.startswith("..") else (Path(named).expanduser(), beside)
    for place in places:
        if _is_whole(place):
            return place, str(place.resolve())
    found = zoo_folder(Path(named).name)
    return (found, found.name) if found else None


def _is_whole(folder: Path) -> bool:
    return (folder / "config.json").is_file() and not is_vision_tower(read_config(folder))


def place_vision_tower(model: Any, folder: Path) -> None:
    """Put the weights of a lone vision tower into its dual encoder, every one of them."""
    source = open_checkpoint(folder)
    theirs = {plain_name(name): name for name in source.tensors()}
    own = model.vision_model.state_dict()
    wanted = {plain_name(name): name for name in own}
    missing = sorted(set(wanted) - set(theirs) - set(_PASSENGERS))
    extra = sorted(set(theirs) - set(wanted) - set(_PASSENGERS))
    if missing or extra:
        what = f"lacks {missing[0]}" if missing else f"holds {extra[0]} besides"
        raise BadCheckpointError(
            f"{folder} is not a vision tower of {model.config.model_type}: it {what}."
        )
    weights = {}
    for plain, name in wanted.items():
        if plain not in theirs:
            continue
        tensor = source.read(theirs[plain])
        if tensor.shape != own[name].shape:
            raise BadCheckpointError(
                f"{folder}: {plain} is {tuple(tensor.shape)}, its dual encoder has "
                f"{tuple(own[name].shape)}.",
                hint="Is it a fine-tuning of another size of model? Give dual_encoder=...",
            )
        weights[name] = tensor.to(own[name].dtype)
    model.vision_model.load_state_dict(weights, strict=False)


def save_vision_tower(tower: nn.Module, preprocess: Preprocess, base: str, folder: Path) -> None:
    """Write a vision tower and the name of its dual encoder, which must mean the same later."""
    folder.mkdir(parents=True, exist_ok=True)
    with quietly():
        tower.save_pretrained(folder)  # type: ignore[operator]
    home = Path(base)
    if home.is_absolute() and home.parent == folder.parent.resolve():
        base = f"../{home.name}"  # side by side, they may move together
    config = read_config(folder) | {"dual_encoder": base}
    _write_json(folder / "config.json", config)
    _write_json(folder / "preprocessor_config.json", preprocess.to_hub())


def save_dual_encoder(model: Any, tokenizer: Any, preprocess: Preprocess, folder: Path) -> None:
    """Write both towers, the tokenizer and the preprocessing."""
    folder.mkdir(parents=True, exist_ok=True)
    with quietly():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    _write_json(folder / "preprocessor_config.json", preprocess.to_hub())


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

"""Vision towers on their own: how an expert of a dual encoder is kept and put back.

An expert differs from its dual encoder in the vision tower alone, so only that is written, in the
layout of `CLIPVisionModel` (which published experts have too). Its `config.json` says under
`dual_encoder` where the text tower is; files of others say it under `_name_or_path`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from stockpot.checkpoints.layouts import plain_name
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.resolve import resolve
from stockpot.errors import BadCheckpointError, UserError
from stockpot.models.config import (
    named_dual_encoder,
    nearby_dual_encoder,
    read_config,
)
from stockpot.models.huggingface import quietly
from stockpot.models.preprocess import Preprocess

_PASSENGERS = ("embeddings.position_ids", "visual_projection.weight")
"""Tensors that some files carry and the tower does not need: numbers 0, 1, 2, ..., and the
projection, which experts of `CLIPVisionModelWithProjection` share with their dual encoder."""


def dual_encoder_of(folder: Path, given: str | None) -> tuple[Path, str]:
    """The folder and the name of the dual encoder that a vision tower belongs to."""
    named = given or named_dual_encoder(read_config(folder))
    if not named:
        raise UserError(
            f"{folder} is a vision tower and does not say which dual encoder it belongs to.",
            hint="Give dual_encoder=..., a CLIP or SigLIP folder, zoo name or hub id.",
        )
    if found := nearby_dual_encoder(folder, named):
        return found
    elsewhere = resolve(named)
    return elsewhere.local(), elsewhere.lasting


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

"""From a folder to a plain network, where there is one that fits it in every setting and weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stockpot.checkpoints.on_gpu import tensors_on
from stockpot.checkpoints.open import copied_tensors, open_checkpoint
from stockpot.checkpoints.safetensors_file import SafetensorsSource
from stockpot.errors import UserError
from stockpot.models.plain import resnet, vit
from stockpot.models.plain.answer import settings
from stockpot.models.plain.skeleton import Skeleton, skeleton

_MADE = {
    "resnet": ("ResNetForImageClassification", resnet.ResNet, resnet),
    "small_resnet": ("SmallResNetForImageClassification", resnet.ResNet, resnet),
    "vit": ("ViTForImageClassification", vit.ViT, vit),
}


def plain_network(
    folder: Path, config: dict[str, Any], device: torch.device | None = None
) -> nn.Module | None:
    """The network in float32 and evaluation mode; none where transformers must load it.

    What is wrong with a folder is for transformers to say too.

    Args:
        folder: where its weights lie.
        config: what its `config.json` says.
        device: a GPU that the weights go to at once; otherwise they are in the machine's memory.
    """
    pattern = plain_pattern(config)
    if pattern is None:
        return None
    network, rename = pattern
    try:
        source = open_checkpoint(folder)
        found = {rename(name): (name, info.shape) for name, info in source.tensors().items()}
        if {name: tuple(shape) for name, (_, shape) in found.items()} != network.shapes:
            return None
        if device is not None and isinstance(source, SafetensorsSource):
            weights = tensors_on(source, device)
        else:
            # Copied: what shares memory with a file would fail when somebody shortens it.
            weights = copied_tensors(source, source.tensors())
    except (UserError, OSError):
        return None
    own = {name: weights[found[name][0]] for name in network.shapes}
    narrow = [name for name, one in own.items() if one.dtype.is_floating_point]
    wide = {name: own[name].float() for name in narrow if own[name].dtype != torch.float32}
    return network.filled(own | wide)


def plain_pattern(config: Mapping[str, Any]) -> tuple[Skeleton, Callable[[str], str]] | None:
    """The plain network of these settings, and what a weight of a file is called in it.

    None where there is none that answers as transformers' does.

    Args:
        config: what `config.json` says.
    """
    kind = str(config.get("model_type"))
    if kind not in _MADE or not isinstance(config.get("id2label"), dict):
        return None
    name, network, room = _MADE[kind]
    if config.get("architectures") != [name]:
        return None
    chosen = settings(config, room.USUAL, room.FIXED)
    if chosen is None or not isinstance(getattr(chosen, "image_size", 0), int):
        return None
    return skeleton(network, chosen), getattr(room, "part_name", str)

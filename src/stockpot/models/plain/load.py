"""From a folder to a plain network, where there is one that fits it in every setting and weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from stockpot.checkpoints.open import copied_tensors, open_checkpoint
from stockpot.errors import UserError
from stockpot.models.plain import resnet, vit
from stockpot.models.plain.answer import settings
from stockpot.models.plain.skeleton import skeleton

_MADE = {
    "resnet": ("ResNetForImageClassification", resnet.ResNet, resnet),
    "small_resnet": ("SmallResNetForImageClassification", resnet.ResNet, resnet),
    "vit": ("ViTForImageClassification", vit.ViT, vit),
}


def plain_network(folder: Path, config: dict[str, Any]) -> nn.Module | None:
    """The network in float32 and evaluation mode; none where transformers must load it.

    What is wrong with a folder is for transformers to say too.
    """
    kind = str(config.get("model_type"))
    if kind not in _MADE or "id2label" not in config:
        return None
    name, network, room = _MADE[kind]
    if config.get("architectures") != [name]:
        return None
    chosen = settings(config, room.USUAL, room.FIXED)
    if chosen is None or not isinstance(getattr(chosen, "image_size", 0), int):
        return None
    pattern = skeleton(network, chosen)
    rename = getattr(room, "part_name", str)
    try:
        source = open_checkpoint(folder)
        found = {rename(name): (name, info.shape) for name, info in source.tensors().items()}
        if {name: tuple(shape) for name, (_, shape) in found.items()} != pattern.shapes:
            return None
        # Copied: what shares memory with a file would fail when somebody shortens it.
        weights = copied_tensors(source, source.tensors())
    except (UserError, OSError):
        return None
    own = {name: weights[found[name][0]] for name in pattern.shapes}
    wide = {name: values.float() for name, values in own.items() if values.is_floating_point()}
    return pattern.filled(own | wide)

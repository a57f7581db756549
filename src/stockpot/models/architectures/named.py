"""Names under which `new:` makes networks for small pictures, and telling transformers of them."""

from __future__ import annotations

import re
from typing import Any

_DEPTHS = (20, 32, 44, 56, 110)
"""Of the published ResNets for 32 px."""
_VIT = {
    "vit_tiny": {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768},
    "vit_small": {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
}
"""Widths of the published ViT-Ti and ViT-S (arXiv:2012.12877)."""
_PATCHES = 8
"""Patches along a side of a small picture: of 4 px at 32 px, of 8 px at 64 px."""
_WIDE = re.compile(r"(?:wrn|wide_resnet)[-_](\d+)[-_](\d+)")
_RESNEXT = re.compile(r"resnext(\d+)(?:[-_](\d+)x(\d+)d)?")
_SHAKE = re.compile(r"shake_shake(\d+)[-_]2x(\d+)d")


def settings_of(name: str, size: int) -> tuple[str, dict[str, Any]]:
    """The type that transformers knows and its settings; any other name is such a type itself.

    Args:
        name: such as `resnet20`, `wrn-28-10` or `resnext29_8x64d`.
        size: the side of the pictures, which a vision transformer's patches depend on.
    """
    short = name.lower()
    if found := _WIDE.fullmatch(short):
        return "wide_resnet", {"depth": int(found[1]), "widen_factor": int(found[2])}
    if short in {f"resnet{depth}" for depth in _DEPTHS}:
        return "cifar_resnet", {"depth": int(short.removeprefix("resnet"))}
    if short == "densenet40":
        return "cifar_densenet", {"depth": 40, "growth_rate": 12}
    if found := _RESNEXT.fullmatch(short):
        paths = {"cardinality": int(found[2]), "width": int(found[3])} if found[2] else {}
        return "cifar_resnext", {"depth": int(found[1]), **paths}
    if found := _SHAKE.fullmatch(short):
        return "shake_shake", {"depth": int(found[1]), "channels": int(found[2])}
    if short in _VIT:
        patches = {"image_size": size, "patch_size": max(1, size // _PATCHES)}
        return "vit", {**patches, "num_hidden_layers": 12, **_VIT[short]}
    return name, {}


def teach_transformers() -> None:
    """Tell transformers of the networks that it does not have; again does nothing."""
    from transformers import AutoConfig, AutoModelForImageClassification

    from stockpot.models.architectures import (
        cifar_resnet,
        densenet,
        lenet,
        msdnet,
        resnext,
        shake_shake,
        small_resnet,
        wide_resnet,
    )

    for config, network in (
        (cifar_resnet.CifarResNetConfig, cifar_resnet.CifarResNetForImageClassification),
        (densenet.DenseNetConfig, densenet.DenseNetForImageClassification),
        (lenet.LeNetConfig, lenet.LeNetForImageClassification),
        (msdnet.MSDNetConfig, msdnet.MSDNetForImageClassification),
        (resnext.ResNeXtConfig, resnext.ResNeXtForImageClassification),
        (shake_shake.ShakeShakeConfig, shake_shake.ShakeShakeForImageClassification),
        (small_resnet.SmallResNetConfig, small_resnet.SmallResNetForImageClassification),
        (wide_resnet.WideResNetConfig, wide_resnet.WideResNetForImageClassification),
    ):
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModelForImageClassification.register(config, network, exist_ok=True)

"""Stochastic depth: in training, residual branches are left out at random (arXiv:1603.09382).

A network's branches are known by how its blocks are put together, whoever wrote them. What a branch
adds is zero for some images and divided by the chance of staying for the others. The chance of
being left out rises evenly from 0 in the first block of a tower to the given rate in the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stockpot.errors import BadParameterError

_ENDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("drop_path1", "drop_path2"), ("drop_path1", "drop_path2")),  # timm's transformers
    (("drop_path",), ("drop_path",)),  # ConvNeXt, Swin, DINOv2 of transformers; timm's ConvNeXt
    (("stochastic_depth",), ("stochastic_depth",)),  # torchvision's ConvNeXt, Swin, EfficientNet
    (("self_attention", "mlp"), ("self_attention", "mlp")),  # torchvision's ViT
    (("attention", "mlp"), ("attention", "mlp")),  # ViT and DeiT of transformers
    (("self_attn", "mlp"), ("self_attn", "mlp")),  # CLIP and SigLIP
    (("attn", "mlp"), ("attn", "mlp")),  # open_clip
    (("shortcut", "layer"), ("layer",)),  # ResNets of transformers
    (("convShortcut", "conv2"), ("conv2",)),  # wide ResNets, whose branch ends in a convolution
    (("downsample", "bn3"), ("bn3",)),  # bottlenecks of torchvision and timm
    (("downsample", "bn2"), ("bn2",)),  # and their basic blocks
    (("shortcut", "bn3"), ("bn3",)),  # ResNeXt for small pictures
    (("shortcut", "bn2"), ("bn2",)),  # and ResNets
)
"""What a block of a family has, and the parts whose output is added to what passes by."""


class Branch(NamedTuple):
    """Where a residual branch ends, and how deep it lies: 0 in the first block, 1 in the last."""

    end: nn.Module
    depth: float


def residual_branches(model: nn.Module) -> list[Branch]:
    """The branches of every block; those that a network drops by itself are left to it."""
    towers: dict[tuple[bool, bool], list[list[nn.Module]]] = {}
    for name, block in model.named_modules():
        ends = _ends(block)
        if ends:
            # The towers of a CLIP: `text_model` of transformers, `visual` of open_clip.
            towers.setdefault(("text" in name, "visual" in name), []).append(ends)
    return [
        Branch(end, number / (len(blocks) - 1) if len(blocks) > 1 else 1.0)
        for blocks in towers.values()
        for number, ends in enumerate(blocks)
        for end in ends
        if not getattr(end, "drop_prob", 0.0) and not getattr(end, "p", 0.0)
    ]


def _ends(block: nn.Module) -> list[nn.Module]:
    if hasattr(block, "probe"):  # SigLIP's pooling looks like a block, and adds to nothing
        return []
    for marks, ends in _ENDS:
        if all(hasattr(block, mark) for mark in marks):
            found = [getattr(block, end) for end in ends]
            if all(isinstance(end, nn.Module) for end in found):
                return found
    return []


def need_branches(model: nn.Module) -> list[Branch]:
    """The same, or a complaint that there are none."""
    branches = residual_branches(model)
    if not branches:
        raise BadParameterError(
            "drop_path: no residual blocks of a known kind were found in the model "
            "(ResNets, ConvNeXt and vision transformers have them); expected 0."
        )
    return branches


@contextmanager
def stochastic_depth(branches: Sequence[Branch], rate: float) -> Iterator[None]:
    """Inside, branches are left out in training mode; draws come from torch's own generator."""
    handles = [branch.end.register_forward_hook(_Drop(rate * branch.depth)) for branch in branches]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Drop:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, branch: nn.Module, _: Any, output: Any) -> Any:
        if not branch.training or not self.rate:
            return output
        if isinstance(output, tuple):  # attention also tells its weights
            return (self.dropped(output[0]), *output[1:])
        return self.dropped(output)

    def dropped(self, change: Tensor) -> Tensor:
        """The branch of each image, or nothing."""
        # Drawn on the CPU, so that a seed means the same on every device.
        stays = (torch.rand(len(change)) >= self.rate).to(change) / (1 - self.rate)
        return change * stays.view(-1, *[1] * (change.ndim - 1))

"""Whether two threads may ask one network at a time, and the parts of a batch side by side."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from stockpot.engine.lanes import part_size, side_by_side

CPU_PIECE = 64
"""Images whose activations stay in a processor's cache."""
_PURE = (
    "torch.nn.modules.",
    "torchvision.models.",
    "torchvision.ops.",
    "transformers.activations",
    "transformers.models.clip.",
    "transformers.models.convnext.",
    "transformers.models.convnextv2.",
    "transformers.models.deit.",
    "transformers.models.resnet.",
    "transformers.models.vit.",
    "stockpot.models.architectures.",
    "stockpot.models.autoencoder.",
    "stockpot.models.classifier",
    "stockpot.models.forward.",
    "stockpot.models.huggingface",
    "stockpot.models.plain.",
    "stockpot.models.zero_shot",
)
"""Where modules are written of which is known that a pass leaves nothing behind in them."""
_LISTENERS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def keeps_nothing(model: object) -> bool:
    """Whether a pass of a model neither leaves anything behind in it nor draws, nor is listened to.

    Anybody's module may put aside in one line what it reads in the next, and two passes at a time
    would mix theirs; so only modules that are known count, in evaluation mode.
    """
    return isinstance(model, nn.Module) and all(
        not module.training
        and type(module).__module__.startswith(_PURE)
        and not any(_minds(module, name) for name in _LISTENERS)
        for module in model.modules()
    )


def _minds(module: nn.Module, name: str) -> bool:
    """Whether somebody listens who does not say that any thread may call."""
    found = getattr(module, name, None) or {}
    return any(not getattr(hook, "takes_turns", False) for hook in found.values())


def in_parts(
    run: Callable[[Tensor], Tensor], pixels: Tensor, most: int, *, apart: bool = True
) -> Tensor:
    """A pass over parts of a batch.

    Args:
        run: the pass.
        pixels: the batch.
        most: images of a part at most.
        apart: whether several parts may run at a time, as `keeps_nothing` tells.
    """
    size = part_size(len(pixels), most) if apart else most
    parts = torch.split(pixels, size)
    found = side_by_side(run, parts) if apart else [run(part) for part in parts]
    return found[0] if len(found) == 1 else torch.cat(found)

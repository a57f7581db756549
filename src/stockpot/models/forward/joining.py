"""Which layers of a folded copy become one: convolutions, ReLUs, and sums of residual blocks.

Which ReLU reads which convolution is seen from a few images; that the copy gives the model's
answers is checked by who makes it, or here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.models.forward.ends import Residual, conv_relu
from stockpot.models.forward.folding import Looked, Model

_ROUNDING = 1e-2

Change = tuple[str, nn.Module]
"""Where a module was, and which."""


def with_ends(model: Model, images: Tensor) -> Model:
    """The same network, changed in place, or the model as it is where its outputs would differ.

    Args:
        model: a copy that is ours to change, in evaluation mode.
        images: some of what it will see.
    """
    if not isinstance(model, nn.Module) or not len(images):
        return model
    # Negatives of pictures too: what is never below zero looks the same with and without a ReLU.
    few = torch.cat([images[:8], 1 - images[:8]])
    with torch.no_grad():
        expected = model(few)
        changes = join_ends(model, few)
        try:
            found = model(few)
            scale = expected.abs().amax().clamp(min=1e-12)
            close = float((found - expected).abs().amax() / scale) < _ROUNDING
        except Exception:  # of whatever kind: not every build of cuDNN has the operation
            close = False
    if not close:
        for place, module in reversed(changes):
            model.set_submodule(place, module)
    return model


@torch.no_grad()
def join_ends(model: nn.Module, images: Tensor) -> list[Change]:
    """Change a folded copy in place; what was there before, in the order of the changes."""
    return join_seen(model, ends_seen(model, images).pairs)


@torch.no_grad()
def join_seen(model: nn.Module, pairs: list[tuple[str, str]]) -> list[Change]:
    """The same for ReLUs of which is known what they read."""
    changes: list[Change] = []

    def put(place: str, module: nn.Module) -> None:
        changes.append((place, model.get_submodule(place)))
        model.set_submodule(place, module)

    for convolution, relu in pairs:
        layer: Any = model.get_submodule(convolution)
        put(convolution, conv_relu(layer))
        put(relu, nn.Identity())
    for name in [name for name, module in model.named_modules() if is_block(module)]:
        block: Any = model.get_submodule(name)
        own = [place for place, part in block.layer.named_modules() if isinstance(part, nn.Conv2d)]
        last: Any = block.layer.get_submodule(own[-1]) if own else None
        if is_plain(last):
            put(f"{name}.layer.{own[-1]}", conv_relu(last))
            put(name, Residual(block, own[-1]))
    return changes


def is_block(module: nn.Module) -> bool:
    """transformers' residual blocks and ours: `relu(layer(x) + shortcut(x))`."""
    names = {name for name, _ in module.named_children()}
    return names == {"layer", "shortcut", "activation"} and isinstance(module.activation, nn.ReLU)


def is_plain(layer: nn.Module | None) -> bool:
    """A convolution that a kernel knows by its numbers alone."""
    return (
        type(layer) is nn.Conv2d
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    )


def ends_seen(model: nn.Module, images: Tensor) -> Looked:
    """Answers to the images, and which ReLU reads exactly what which convolution gives."""
    made: dict[int, tuple[str, Tensor, Tensor]] = {}  # with the tensor: no id is used twice
    pairs: list[tuple[str, str]] = []
    runs: dict[str, int] = {}

    def gives(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def see(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            runs[name] = runs.get(name, 0) + 1
            made[id(output)] = name, output, output.clone()

        return see

    def reads(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def see(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            runs[name] = runs.get(name, 0) + 1
            known = made.pop(id(inputs[0]), None)
            # A block may have added to it in place.
            if known is not None and torch.equal(inputs[0], known[2]):
                pairs.append((known[0], name))

        return see

    handles = []
    for name, module in model.named_modules():
        if type(module) is nn.ReLU:
            handles.append(module.register_forward_pre_hook(reads(name)))
        elif is_plain(module):
            handles.append(module.register_forward_hook(gives(name)))
    try:
        answers: Tensor = model(images)
    finally:
        for handle in handles:
            handle.remove()
    return Looked(answers, [pair for pair in pairs if runs[pair[0]] == 1 and runs[pair[1]] == 1])

"""What follows a convolution in one kernel: its bias, what a block adds, and the ReLU.

On a GPU each of the three would read and write all maps once more, and in a residual network that
takes as long as the convolutions. To be used on a copy whose batch norms are folded already. Which
ReLU reads which convolution is seen from a few images; that the copy gives the model's answers is
checked by who makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_MOST = 2**31 - 4096
"""Numbers of a tensor that the kernel can count."""


class _Bent(nn.Module):
    """A convolution with its bias and a ReLU."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution, self.bias = _without_bias(convolution)

    def forward(self, maps: Tensor) -> Tensor:
        return end(self.convolution(maps), self.bias, None)


class _Residual(nn.Module):
    """A block of a residual network: its last bias, its shortcut and the ReLU at once."""

    def __init__(self, block: Any, last: str) -> None:
        super().__init__()
        bare, self.bias = _without_bias(block.layer.get_submodule(last))
        block.layer.set_submodule(last, bare)
        self.layer, self.shortcut = block.layer, block.shortcut

    def forward(self, maps: Tensor) -> Tensor:
        return end(self.layer(maps), self.bias, self.shortcut(maps))


def _without_bias(convolution: nn.Conv2d) -> tuple[nn.Conv2d, nn.Parameter]:
    bias = convolution.bias
    values = torch.zeros_like(convolution.weight[:, 0, 0, 0]) if bias is None else bias.detach()
    convolution.bias = None
    return convolution, nn.Parameter(values, requires_grad=False)


@torch.no_grad()
def fuse_ends(model: nn.Module, images: Tensor) -> int:
    """Change a folded copy in place; says at how many places."""
    bent = _bent(model, images)
    for convolution, relu in bent:
        layer: Any = model.get_submodule(convolution)
        model.set_submodule(convolution, _Bent(layer))
        model.set_submodule(relu, nn.Identity())
    blocks = [name for name, module in model.named_modules() if _is_block(module)]
    for name in blocks:
        block: Any = model.get_submodule(name)
        own = [place for place, module in block.layer.named_modules() if type(module) is nn.Conv2d]
        if own:
            model.set_submodule(name, _Residual(block, own[-1]))
    return len(bent) + len(blocks)


def _is_block(module: nn.Module) -> bool:
    """transformers' residual blocks and ours: `relu(layer(x) + shortcut(x))`."""
    names = {name for name, _ in module.named_children()}
    return names == {"layer", "shortcut", "activation"} and isinstance(module.activation, nn.ReLU)


def _bent(model: nn.Module, images: Tensor) -> list[tuple[str, str]]:
    """Names of convolutions and of the ReLUs that read exactly what they give."""
    made: dict[int, tuple[str, Tensor, Tensor]] = {}
    pairs: list[tuple[str, str]] = []
    runs: dict[str, int] = {}

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def see(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            runs[name] = runs.get(name, 0) + 1
            if isinstance(module, nn.Conv2d):
                made[id(output)] = name, output, output.clone()
                return
            known = made.get(id(inputs[0]))
            # A block may have added to it in place.
            if known is not None and torch.equal(inputs[0], known[2]):
                pairs.append((known[0], name))

        return see

    handles = [
        module.register_forward_hook(hook(name))
        for name, module in model.named_modules()
        if type(module) in (nn.Conv2d, nn.ReLU)
    ]
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    return [pair for pair in pairs if runs[pair[0]] == 1 and runs[pair[1]] == 1]


def end(maps: Tensor, bias: Tensor, rest: Tensor | None) -> Tensor:
    """`relu(maps + bias + rest)`, in the place of the maps."""
    dense = all(
        part.is_contiguous(memory_format=torch.channels_last)
        for part in (maps, rest)
        if part is not None
    )
    if maps.is_cuda and dense and maps.numel() < _MOST:
        from stockpot.models.forward.end_kernel import run_end

        return run_end(maps, bias, rest)
    maps += bias.view(1, -1, 1, 1)
    if rest is not None:
        maps += rest
    return maps.relu_()

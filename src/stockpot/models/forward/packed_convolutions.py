"""Residual networks on a processor: filters as its library wants to read them.

Such a filter need not be reordered at every pass, and what follows the convolution is done while
the result is in the cache: the ReLU, or the sum with what went around a block and the ReLU of that.

There is no gradient through it, and it is made of weights that stay as they are.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.models.forward.joining import ends_seen, is_block, is_plain

_ROWS = {
    ("stockpot.models.plain.resnet", "ConvLayer"),
    ("transformers.models.resnet.modeling_resnet", "ResNetConvLayer"),
}
"""Modules whose parts run in their order."""


class PackedConvolution(nn.Module):
    """A convolution, and the ReLU behind it where there is one."""

    def __init__(self, like: Any, shape: torch.Size, *, cuts: bool) -> None:
        """From a layer.

        Args:
            like: a convolution in NHWC.
            shape: of maps that it reads; the order of weights is chosen for about such.
            cuts: whether a ReLU follows.
        """
        super().__init__()
        self.bias = None if like.bias is None else like.bias.detach()
        self.settings = list(like.padding), list(like.stride), list(like.dilation), like.groups
        pack: Any = torch.ops.mkldnn._reorder_convolution_weight
        self.weight: Tensor = pack(like.weight.detach(), *self.settings, list(shape))
        self.cuts = "relu" if cuts else "none"

    def forward(self, maps: Tensor) -> Tensor:
        """Maps to maps."""
        run: Any = torch.ops.mkldnn._convolution_pointwise
        maps = maps.contiguous(memory_format=torch.channels_last)
        result: Tensor = run(maps, self.weight, self.bias, *self.settings, self.cuts, [], None)
        return result

    def added(self, maps: Tensor, other: Tensor) -> Tensor:
        """The result and other maps, cut at zero; neither is changed."""
        run: Any = torch.ops.mkldnn._convolution_pointwise.binary
        maps = maps.contiguous(memory_format=torch.channels_last)
        other = other.contiguous(memory_format=torch.channels_last)
        result: Tensor = run(
            maps, other, self.weight, self.bias, *self.settings, "add", 1.0, "relu", [], None
        )
        return result


class PackedResidual(nn.Module):
    """A block `relu(layer(x) + shortcut(x))` whose last convolution does sum and ReLU."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        *before, last = _flat(block.layer)
        self.before, self.last = nn.Sequential(*before), last
        self.shortcut = block.shortcut

    def forward(self, maps: Tensor) -> Tensor:
        """Maps to maps."""
        last: Any = self.last
        result: Tensor = last.added(self.before(maps), self.shortcut(maps))
        return result


@torch.no_grad()
def pack_convolutions(model: nn.Module, few: Tensor) -> bool:
    """Change a folded copy in place; says whether there was anything to change.

    Args:
        model: a copy that is ours to change, in evaluation mode, with its batch norms folded.
        few: some of what it will see.
    """
    shapes = _shapes(model, few)
    relus = dict(ends_seen(model, few).pairs)
    for name, shape in shapes.items():
        layer = model.get_submodule(name)
        model.set_submodule(name, PackedConvolution(layer, shape, cuts=name in relus).eval())
        if name in relus:
            model.set_submodule(relus[name], nn.Identity().eval())
    for name in [name for name, module in model.named_modules() if is_block(module)]:
        block: Any = model.get_submodule(name)
        parts = _flat(block.layer)
        last = parts[-1] if parts else None
        if isinstance(last, PackedConvolution) and last.cuts == "none":
            model.set_submodule(name, PackedResidual(block).eval())
    return bool(shapes)


def can_pack_convolutions(model: nn.Module) -> bool:
    """Whether there are residual blocks to change, and a library that knows such convolutions.

    Not where somebody listens to a part: it would hear nothing. Elsewhere than on x86 the library
    may be another one, and no faster.
    """
    parts = [module for name, module in model.named_modules() if name]
    if any(part.training or part._forward_hooks or part._forward_pre_hooks for part in parts):
        return False
    weights = list(model.parameters())
    plain = all(one.dtype == torch.float32 and one.device.type == "cpu" for one in weights)
    blocks = any(is_block(module) for module in model.modules())
    return plain and blocks and _has_convolutions()


def _shapes(model: nn.Module, few: Tensor) -> dict[str, torch.Size]:
    """What each convolution that runs once reads."""
    seen: dict[str, list[torch.Size]] = {}

    def hears(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def see(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen.setdefault(name, []).append(inputs[0].shape)

        return see

    handles = [
        module.register_forward_pre_hook(hears(name))
        for name, module in model.named_modules()
        if is_plain(module)
    ]
    try:
        model(few)
    finally:
        for handle in handles:
            handle.remove()
    return {name: shapes[0] for name, shapes in seen.items() if len(shapes) == 1}


def _flat(module: nn.Module) -> list[nn.Module]:
    """Parts of sequences in their order, without those that do nothing.

    A module with a forward of its own that is no sequence is one part: who knows what it does.
    """
    if isinstance(module, nn.Identity):
        return []
    if type(module) is nn.Sequential or _passes_on(module):
        return [part for child in module.children() for part in _flat(child)]
    return [module]


def _passes_on(module: nn.Module) -> bool:
    """Convolution, norm and activation one after the other, here and in transformers."""
    return (type(module).__module__, type(module).__name__) in _ROWS


@cache
def _has_convolutions() -> bool:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    try:
        layer = PackedConvolution(nn.Conv2d(4, 4, 1), torch.Size((2, 4, 3, 3)), cuts=True)
        maps = torch.zeros(2, 4, 3, 3)
        with torch.no_grad():
            layer.added(layer(maps), maps)
    except (AttributeError, RuntimeError, TypeError):  # not in this build, or by another name
        return False
    return True

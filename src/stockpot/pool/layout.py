"""Where tensors lie in one flat vector, and a model whose weights are views of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor, nn

CHUNK = 1024
"""Every tensor starts at a multiple of this in the flat vector, so that a chunk has one owner."""


@dataclass(frozen=True)
class Layout:
    """Tensors one after the other."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    places: tuple[str, ...]
    """For each tensor its name in the working model."""

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each tensor."""
        return tuple(torch.Size(shape).numel() for shape in self.shapes)

    @cached_property
    def chunks(self) -> tuple[int, ...]:
        """Chunks of each tensor, the last one padded."""
        return tuple(-(-size // CHUNK) for size in self.sizes)

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Where each tensor lies."""
        starts = [0, *(CHUNK * end for end in accumulate(self.chunks))]
        return tuple(slice(start, start + n) for start, n in zip(starts, self.sizes, strict=False))

    @cached_property
    def length(self) -> int:
        """Elements of the flat vector, padding included."""
        return CHUNK * sum(self.chunks)

    def flatten(self, tensors: Iterable[Tensor], device: torch.device | str = "cpu") -> Tensor:
        """Tensors in the order of `names` as a flat vector; padding is zero."""
        flat = torch.zeros(self.length, device=device)
        for span, values in zip(self.spans, tensors, strict=True):
            flat[span] = values.detach().reshape(-1)
        return flat

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """A flat vector as tensors by name."""
        return {
            name: flat[span].view(shape)
            for name, span, shape in zip(self.names, self.spans, self.shapes, strict=True)
        }


def float_layout(model: nn.Module) -> Layout:
    """Every floating parameter and saved buffer of a model once, tied ones by their first name."""
    kept = model.state_dict().keys()
    found = {
        name: tuple(tensor.shape)
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
        if name in kept and tensor.is_floating_point()
    }
    return Layout(tuple(found), tuple(found.values()), tuple(found))


def bind(model: nn.Module, layout: Layout, flat: Tensor) -> dict[int, nn.Parameter]:
    """Make the model's tensors views of a flat vector.

    Parameters stay the objects they are, so that tied ones stay tied.

    Returns:
        The parameters among them, by the number of the tensor.
    """
    parameters = {}
    views = layout.views(flat).values()
    for number, (place, view) in enumerate(zip(layout.places, views, strict=True)):
        module, leaf = _owner(model, place)
        parameter = module._parameters.get(leaf)
        if parameter is None:
            module._buffers[leaf] = view
        else:
            parameter.data = view
            parameters[number] = parameter
    return parameters


def own_buffers(model: nn.Module) -> None:
    """Give the buffers of a copied model memory of their own.

    A deep copy of a parameter has it already; one of a buffer holds on to the whole flat vector.
    """
    for module in model.modules():
        for leaf, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[leaf] = buffer.clone()


def put_tensor(model: nn.Module, place: str, values: Tensor) -> None:
    """Put values in the place of a parameter or buffer, whatever the shape of that was."""
    module, leaf = _owner(model, place)
    if leaf in module._parameters:
        module._parameters[leaf] = nn.Parameter(values, requires_grad=False)
    else:
        module._buffers[leaf] = values


def integer_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the buffers that cannot be mixed, such as counters."""
    return {
        name: buffer.clone()
        for name, buffer in model.named_buffers()
        if not buffer.is_floating_point()
    }


def _owner(model: nn.Module, place: str) -> tuple[nn.Module, str]:
    parent, _, leaf = place.rpartition(".")
    return model.get_submodule(parent), leaf

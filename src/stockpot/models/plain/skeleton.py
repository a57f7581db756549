"""A network without weights, built once for all models of the same settings.

To build the modules of a ResNet-50 and to hand its weights to them takes Python 60 ms, during which
no other thread runs Python: as long as reading the weights. The members of a pool differ in their
weights alone, so the modules of the first serve as the pattern of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_MOST = 8
_known: dict[str, Skeleton] = {}
_lock = Lock()


class Skeleton(NamedTuple):
    """A network on no device, and the shapes of the weights that it wants."""

    network: nn.Module
    shapes: dict[str, tuple[int, ...]]

    def filled(self, weights: Mapping[str, Tensor]) -> nn.Module:
        """A network of its own with these weights, in evaluation mode."""
        return _copied(self.network, "", weights, {})


def skeleton(make: Callable[[SimpleNamespace], nn.Module], chosen: SimpleNamespace) -> Skeleton:
    """The network that these settings make.

    Args:
        make: from settings to a network.
        chosen: the settings; they are not changed, and no network has this very object.
    """
    what = repr((make, sorted(vars(chosen).items())))
    with _lock:
        found = _known.get(what)
        if found is None:
            with torch.device("meta"):  # no weight is drawn that is read a moment later
                network = make(SimpleNamespace(**vars(chosen))).eval()
            shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
            found = _known[what] = Skeleton(network, shapes)
            while len(_known) > _MOST:
                del _known[next(iter(_known))]
    return found


def _copied(
    module: nn.Module, prefix: str, weights: Mapping[str, Tensor], settings: dict[int, Any]
) -> nn.Module:
    """A module like this one, as torch itself copies those of replicas, with weights by name."""
    twin = module.__new__(type(module))
    own: dict[str, Any] = {}
    for name, value in vars(module).items():
        if isinstance(value, SimpleNamespace):
            # One for the whole network: who changes how it attends changes it in all layers.
            own[name] = settings.setdefault(id(value), SimpleNamespace(**vars(value)))
        else:
            own[name] = value.copy() if isinstance(value, dict | set | list) else value
    own["_parameters"] = {
        name: None
        if value is None
        else nn.Parameter(weights[prefix + name], requires_grad=value.requires_grad)
        for name, value in module._parameters.items()
    }
    own["_buffers"] = {
        name: None if value is None else weights[prefix + name]
        for name, value in module._buffers.items()
    }
    own["_modules"] = {
        name: None if child is None else _copied(child, f"{prefix}{name}.", weights, settings)
        for name, child in module._modules.items()
    }
    vars(twin).update(own)
    return twin

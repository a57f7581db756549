"""Least squares for every layer: do to the mean of the members' inputs what they did, in the mean.

The members are in one order of units by then. Of a convolution every place of its output is a row,
with the patch that it reads; in fp64, from sums of products alone, so that images are seen once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.fuse.permutation.match import Permutations, permuted
from stockpot.fuse.permutation.networks import Networks
from stockpot.fuse.statistics.gram import Regression

Layer = nn.Linear | nn.Conv2d


def refitted(
    networks: Networks, moves: tuple[Permutations, ...], start: dict[str, Tensor], ridge: float
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Solve the linear layers and convolutions of aligned networks.

    Args:
        networks: who is fused.
        moves: of every network, the units that go to each place.
        start: the mean of the aligned networks, towards which the ridge pulls.
        ridge: what is added to the diagonal, as a share of its mean.

    Returns:
        Weights and biases by name, and what the error of each layer fell to, as a share of the
        error of `start`.
    """
    layers = _layers(networks, networks.models[0])
    fits = {name: _Fit(layer, name, start) for name, layer in layers.items()}
    table = networks.spec.groups_of()
    seen: list[dict[str, tuple[Tensor, Tensor]]] = [{} for _ in networks.models]
    handles = [
        layer.register_forward_hook(_note(name, seen[number]))
        for number, model in enumerate(networks.models)
        for name, layer in _layers(networks, model).items()
    ]

    def add() -> None:
        for name in layers:
            if name not in seen[0]:
                continue  # torch's own attention reads a layer that it never calls
            axes = table.get(name, {})
            pairs = [_moved(axes, own, one[name]) for own, one in zip(moves, seen, strict=True)]
            inputs, outputs = zip(*pairs, strict=True)
            fits[name].add(sum(inputs) / len(inputs), sum(outputs) / len(outputs))

    try:
        networks.run(add)
    finally:
        for handle in handles:
            handle.remove()
    found: dict[str, Tensor] = {}
    fell: dict[str, float] = {}
    for name, fit in fits.items():
        if fit.rows:
            tensors, fell[name] = fit.solve(ridge)
            found |= tensors
    return found, fell


class _Fit:
    """The sums of one layer."""

    def __init__(self, layer: Layer, name: str, start: dict[str, Tensor]) -> None:
        self.name = name
        self.layer = layer
        self.bias = name.removesuffix("weight") + "bias" if self.layer.bias is not None else None
        weight = start[name].double().flatten(1)
        parts = [weight, start[self.bias].double()[:, None]] if self.bias else [weight]
        self.start = torch.cat(parts, dim=1)
        self.rows = 0
        self._left = torch.zeros(())
        self._right = torch.zeros(())
        self._own = torch.zeros(())

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """Add a batch: what goes in, and what should come out."""
        x, y = _rows(self.layer, inputs), outputs
        if isinstance(self.layer, nn.Conv2d):
            y = outputs.flatten(2).transpose(1, 2)
        y = y.reshape(-1, y.shape[-1]).double()
        if self.bias:
            x = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        self._left = self._left + x.T @ x
        self._right = self._right + x.T @ y
        self._own = self._own + y.square().sum()
        self.rows += len(x)

    def solve(self, ridge: float) -> tuple[dict[str, Tensor], float]:
        """The tensors, and what the squared error fell to."""
        left, right = self._left / self.rows, self._right / self.rows
        pull = ridge * float(left.diagonal().mean())
        sums = Regression(1.0)
        eye = torch.eye(len(left), dtype=left.dtype, device=left.device)
        sums.put(self.name, left + pull * eye, right + pull * self.start.T)
        solved, _ = sums.solve(self.name, self.start)
        before, after = (self._error(w, left, right) for w in (self.start, solved))
        shape = self.layer.weight.shape
        if not self.bias:
            return {self.name: solved.view(shape)}, after / max(before, 1e-300)
        return {
            self.name: solved[:, :-1].reshape(shape),
            self.bias: solved[:, -1].contiguous(),
        }, after / max(before, 1e-300)

    def _error(self, weight: Tensor, left: Tensor, right: Tensor) -> float:
        own = self._own / self.rows
        cross = (weight.T * right).sum()
        return max(float(own - 2 * cross + ((weight @ left) * weight).sum()), 0.0)


def _layers(networks: Networks, model: nn.Module) -> dict[str, Layer]:
    """Linear layers and plain convolutions by the name of their weight."""
    found: dict[str, Layer] = {}
    for name, place in zip(networks.pool.names, networks.pool.places, strict=True):
        parent, _, leaf = place.rpartition(".")
        layer = model.get_submodule(parent)
        if leaf != "weight":
            continue
        if isinstance(layer, nn.Linear) or (
            isinstance(layer, nn.Conv2d) and layer.groups == 1 and layer.padding_mode == "zeros"
        ):
            found[name] = layer
    return found


def _note(name: str, seen: dict[str, tuple[Tensor, Tensor]]) -> Callable[..., None]:
    def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[name] = inputs[0].detach(), output.detach()

    return hook


def _moved(
    axes: Mapping[int, tuple[str, int]], moves: Permutations, seen: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """What one network's layer read and made, in the common order of units."""
    found = []
    for axis, values in zip((1, 0), seen, strict=True):
        if axis in axes:
            group, block = axes[axis]
            places = (moves[group][:, None] * block + torch.arange(block)).reshape(-1)
            channels = 1 if values.ndim == 4 else values.ndim - 1
            values = values.index_select(channels, places.to(values.device))
        found.append(values)
    return found[0], found[1]


def _rows(layer: Layer, inputs: Tensor) -> Tensor:
    """Rows of what a layer multiplies by its weights."""
    if isinstance(layer, nn.Linear):
        return inputs.reshape(-1, inputs.shape[-1]).double()
    patches = F.unfold(
        _padded(layer, inputs), layer.kernel_size, dilation=layer.dilation, stride=layer.stride
    )
    return patches.transpose(1, 2).reshape(-1, patches.shape[1]).double()


def _padded(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    sides = layer._reversed_padding_repeated_twice
    return F.pad(inputs, tuple(sides)) if any(sides) else inputs


def mean_of(networks: Networks, moves: tuple[Permutations, ...]) -> dict[str, Tensor]:
    """The mean of the aligned networks, in fp64."""
    states = [
        permuted(state, own, networks.spec)
        for state, own in zip(networks.states, moves, strict=True)
    ]
    return {
        name: torch.stack([state[name].double() for state in states]).mean(dim=0)
        for name in states[0]
    }

"""Gram matrices of the inputs of linear layers, and the least-squares mean they lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.fuse.learning.task_pool import TaskPool

_WORST = 1e-9
"""Pivots of a Cholesky factor that differ by more, squared, make a matrix ill-conditioned."""
_RIDGE = 1e-7
"""The share of the mean diagonal that is added to such a matrix, first."""


class StopEarlyError(Exception):
    """Ends a forward pass when nothing more is wanted of it."""


def linear_layers(pool: TaskPool) -> dict[str, nn.Linear]:
    """The fused linear layers of the working model, by the checkpoint's name of their weight."""
    found = {}
    for name, place in zip(pool.names, pool.places, strict=True):
        parent, _, leaf = place.rpartition(".")
        module = pool.model.get_submodule(parent)
        inside = pool.model.get_submodule(parent.rpartition(".")[0])
        # torch's own attention reads the weights of its last layer and never calls it.
        if isinstance(inside, nn.MultiheadAttention):
            continue
        if leaf == "weight" and isinstance(module, nn.Linear):
            found[name] = module
    return found


@torch.no_grad()
def grams(
    layers: Mapping[str, nn.Linear], run: Callable[[], Any], *, last: nn.Module | None = None
) -> dict[str, Tensor]:
    """The mean of x x^T over all inputs (images and tokens) of each layer, from one pass.

    Args:
        layers: linear layers by name.
        run: sends the images through the model.
        last: a module after which a forward pass may end.
    """
    sums: dict[str, Tensor] = {}
    rows: dict[str, int] = {}

    def watch(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x = inputs[0].detach().reshape(-1, inputs[0].shape[-1]).double()
            # In fp32 the rounding of a product would pass for input in directions never seen.
            product = x.T @ x
            sums[name] = sums[name] + product if name in sums else product
            rows[name] = rows.get(name, 0) + len(x)

        return hook

    def stop(*_: Any) -> None:
        raise StopEarlyError

    handles = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers.items()]
    if last is not None:
        handles.append(last.register_forward_hook(stop))
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return {name: value / rows[name] for name, value in sums.items()}


def send(pool: TaskPool, batches: Iterable[Tensor]) -> Callable[[], None]:
    """A run of the working model over batches, each ended early where a hook says so."""

    def run() -> None:
        for pixels in batches:
            try:
                pool.model.network(pixels)
            except StopEarlyError:
                continue

    return run


@dataclass
class Regression:
    """Sums over members of G_t and G_t W_t^T: all that the solution needs of them."""

    off_diagonal: float
    _left: dict[str, Tensor] = field(default_factory=dict)
    _right: dict[str, Tensor] = field(default_factory=dict)

    def add(self, name: str, gram: Tensor, weight: Tensor) -> None:
        """Add a member's layer."""
        scaled = gram.double() * self.off_diagonal
        scaled.diagonal().copy_(gram.double().diagonal())
        self.put(name, scaled, scaled @ weight.double().T)

    def put(self, name: str, left: Tensor, right: Tensor) -> None:
        """Add products of inputs, and of inputs and wanted outputs."""
        if name in self._left:
            self._left[name] += left
            self._right[name] += right
        else:
            self._left[name], self._right[name] = left, right

    def solve(self, name: str, mean: Tensor) -> tuple[Tensor, float]:
        """The merged weight, and the ridge that was needed (0 where the matrix is sound).

        An ill-conditioned matrix gets a ridge towards the members' mean: directions in which no
        input was seen take the plain mean, all others hardly move.

        Args:
            name: the layer's weight.
            mean: the mean of the members' weights.
        """
        left, right = self._left.pop(name), self._right.pop(name)
        factor = _sound_factor(left)
        ridge = 0.0
        while factor is None:
            ridge = ridge * 100 or _RIDGE * float(left.diagonal().mean()) or 1.0
            eye = torch.eye(len(left), dtype=left.dtype, device=left.device)
            factor = _sound_factor(left + ridge * eye)
        solved = torch.cholesky_solve(right + ridge * mean.double().T, factor)
        return solved.T.contiguous(), ridge


def _sound_factor(matrix: Tensor) -> Tensor | None:
    """The Cholesky factor, if there is one and it is not near to singular."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    if int(info) != 0 or not bool(torch.isfinite(factor).all()):
        return None
    diagonal = factor.diagonal()
    return factor if float(diagonal.min() / diagonal.max()) ** 2 > _WORST else None

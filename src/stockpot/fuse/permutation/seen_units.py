"""What the units of several networks do on the same images: their covariances.

A group of units is seen where the last layer that reads it takes it in, behind every norm and
activation: for the stream of a residual network that is the end of its stage. Where the reader gets
means over places, as a head does, the maps before are looked at, every place of which counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stockpot.errors import BadCheckpointError
from stockpot.fuse.permutation.networks import Networks
from stockpot.models.classifier import Classifier


@dataclass(frozen=True)
class Place:
    """Where a group is seen: what goes into a module, or what comes out."""

    module: str
    before: bool


def covariances(networks: Networks, *, centred: bool = True) -> dict[str, Tensor]:
    """Group -> covariance of all networks' units, those of the first network first, in fp64.

    Args:
        networks: who is looked at.
        centred: covariances; otherwise means of products.
    """
    places = _places(networks)
    seen: list[dict[str, Tensor]] = [{} for _ in networks.models]
    handles = [
        _hook(model, group, place, seen[number])
        for number, model in enumerate(networks.models)
        for group, place in places.items()
    ]
    products: dict[str, Tensor] = {}
    sums: dict[str, Tensor] = {}
    rows: dict[str, int] = {}

    def add() -> None:
        for group in places:
            # In fp64: means are large beside the deviations of a unit that hardly moves.
            values = torch.cat([_by_unit(one[group]) for one in seen]).double()
            product, total = values @ values.T, values.sum(dim=1)
            products[group] = products[group] + product if group in products else product
            sums[group] = sums[group] + total if group in sums else total
            rows[group] = rows.get(group, 0) + values.shape[1]

    try:
        networks.run(add)
    finally:
        for handle in handles:
            handle.remove()
    found = {}
    for group, product in products.items():
        mean = sums[group] / rows[group]
        found[group] = product / rows[group] - (torch.outer(mean, mean) if centred else 0)
    return found


def _by_unit(values: Tensor) -> Tensor:
    """Units x places: channels of maps come second, units of anything else last."""
    axis = 1 if values.ndim == 4 else -1
    return values.movedim(axis, 0).reshape(values.shape[axis], -1)


def _hook(
    model: Classifier, group: str, place: Place, seen: dict[str, Tensor]
) -> torch.utils.hooks.RemovableHandle:
    module = model.get_submodule(place.module)

    def before(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen[group] = inputs[0].detach()

    def after(_: nn.Module, __: object, output: Tensor) -> None:
        seen[group] = output.detach()

    if place.before:
        return module.register_forward_pre_hook(before)
    return module.register_forward_hook(after)


def _places(networks: Networks) -> dict[str, Place]:
    """Where each group is seen, found out by watching one network work."""
    model, pool, spec = networks.models[0], networks.pool, networks.spec
    calls: list[tuple[str, Tensor, object]] = []

    def note(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
            calls.append((name, inputs[0] if inputs else torch.empty(0), output))

        return hook

    handles = [m.register_forward_hook(note(name)) for name, m in model.named_modules() if name]
    try:
        with torch.no_grad():
            model.network(networks.batches[0][:2])
    finally:
        for handle in handles:
            handle.remove()
    order = {name: number for number, (name, _, _) in enumerate(calls)}
    modules = {
        name: place.rpartition(".")[0] for name, place in zip(pool.names, pool.places, strict=True)
    }
    found = {}
    for group, axes in spec.axes.items():
        readers = [modules[a.tensor] for a in axes if a.axis == 1 and modules[a.tensor] in order]
        makers = [modules[a.tensor] for a in axes if a.axis == 0 and modules[a.tensor] in order]
        if not readers or not makers:
            raise BadCheckpointError(
                f"{networks.method}: nothing reads or makes the units {group}."
            )
        last = max(readers, key=order.__getitem__)
        seen = calls[order[last]][1]
        place = Place(last, before=True)
        maker = max(makers, key=order.__getitem__)
        if seen.ndim == 2 and getattr(calls[order[maker]][2], "ndim", 0) == 4:
            place = _end_of_maps(maker, calls, order, spec.sizes[group])
        found[group] = place
    return found


def _end_of_maps(
    maker: str, calls: list[tuple[str, Tensor, object]], order: dict[str, int], units: int
) -> Place:
    """The outermost module around a layer that still gives maps of these units."""
    found = maker
    parent = maker
    while parent := parent.rpartition(".")[0]:
        output = calls[order[parent]][2] if parent in order else None
        if isinstance(output, Tensor) and output.ndim == 4 and output.shape[1] == units:
            found = parent
    return Place(found, before=False)

"""Bring independently trained networks of one family into line before they are fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stockpot.checkpoints.member_names import by_name
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.source import Source
from stockpot.checkpoints.state_dict import StateDictSource
from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.foreign import read_json_object
from stockpot.fuse.permutation.families import permutation_spec
from stockpot.fuse.permutation.match import match_weights, permuted

if TYPE_CHECKING:
    from stockpot.fuse.request import Spec

State = dict[str, Tensor]


class AlignedSource(StateDictSource):
    """Weights in memory whose units are in other places than in the files that they come from."""


def align_members(
    members: Sequence[Spec] | Mapping[str, Spec],
    *,
    heads: int | None = None,
    rounds: int = 100,
    seed: int = 0,
) -> dict[str, AlignedSource]:
    """Permute every member towards the first; each computes what it computed before.

    Args:
        members: checkpoints of one architecture, trained from different starts.
        heads: attention heads of a transformer; read from config.json where there is one.
        rounds: the largest number of rounds over all groups of units.
        seed: of the order in which groups are visited.

    Returns:
        Label -> weights in memory, to be given to `fuse` as members; `.state` is a state dict.
    """
    named = by_name(members)
    sources = {label: open_checkpoint(_state(spec), label=label) for label, spec in named.items()}
    if not sources:
        raise BadParameterError("members: expected at least one checkpoint, got none.")
    states = {label: _read(source) for label, source in sources.items()}
    first_label, first = next(iter(states.items()))
    shapes = {name: tuple(value.shape) for name, value in first.items()}
    spec = permutation_spec(shapes, heads=heads or _heads(sources[first_label]))
    aligned = {first_label: _source(first, sources[first_label])}
    for label, state in states.items():
        if label == first_label:
            continue
        if {name: tuple(value.shape) for name, value in state.items()} != shapes:
            raise BadCheckpointError(
                f"{label} and {first_label} have different tensors and cannot be aligned."
            )
        found = match_weights(first, state, spec, rounds=rounds, seed=seed)
        aligned[label] = _source(permuted(state, found, spec), sources[label])
    return aligned


@dataclass(frozen=True)
class Barrier:
    """The loss on the straight line between two models."""

    alphas: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def height(self) -> float:
        """How far the loss rises above the line between its ends, at most; 0 is no barrier."""
        first, last = self.losses[0], self.losses[-1]
        return max(
            loss - ((1 - alpha) * first + alpha * last)
            for alpha, loss in zip(self.alphas, self.losses, strict=True)
        )


@torch.no_grad()
def loss_barrier(
    first: Mapping[str, Tensor],
    second: Mapping[str, Tensor],
    loss: Callable[[State], float],
    *,
    points: int = 11,
) -> Barrier:
    """Measure the loss along the line from one model to another.

    Args:
        first: a state dict.
        second: a state dict with the same tensors.
        loss: called with each state dict on the way.
        points: how many, both ends included.
    """
    if points < 3:
        raise BadParameterError(f"points: expected at least 3, got {points}.")
    alphas = tuple(index / (points - 1) for index in range(points))
    losses = []
    for alpha in alphas:
        between = {
            name: (1 - alpha) * value + alpha * second[name] if value.is_floating_point() else value
            for name, value in first.items()
        }
        losses.append(float(loss(between)))
    return Barrier(alphas, tuple(losses))


def _state(spec: Any) -> Any:
    return spec.state_dict() if isinstance(spec, torch.nn.Module) else spec


def _source(state: State, origin: Source) -> AlignedSource:
    return AlignedSource(state, label=origin.label, folder=origin.folder, files=origin.files)


def _read(source: Source) -> State:
    return {name: source.read(name).clone() for name in source.tensors()}


def _heads(source: Source) -> int | None:
    config = source.folder / "config.json" if source.folder else None
    if config is None or not config.is_file():
        return None
    content = read_json_object(config, BadCheckpointError)
    found = content.get("num_attention_heads")
    return int(found) if isinstance(found, int) else None

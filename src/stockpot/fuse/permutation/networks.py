"""Members that were trained apart, side by side: their weights, symmetries and layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.permutation.families import permutation_spec
from stockpot.fuse.permutation.match import permuted
from stockpot.fuse.permutation.spec import PermutationSpec
from stockpot.models.classifier import Classifier
from stockpot.pool.batch_norm import recompute_batch_norm

_ALIKE = 1e-2
"""Logits of a network with its units in other places differ by less, relative to the largest."""


@dataclass(frozen=True)
class Networks:
    """What a method that matches units gets: networks, and which of their units may move."""

    method: str
    pool: TaskPool
    models: tuple[Classifier, ...]
    states: tuple[dict[str, Tensor], ...]
    """The members' fused tensors by the names of their files."""
    spec: PermutationSpec
    examples: int
    batch_size: int
    seed: int

    @cached_property
    def batches(self) -> tuple[Tensor, ...]:
        """The sampled images of every task, as the networks see them."""
        return tuple(self._sampled())

    def _sampled(self) -> Iterator[Tensor]:
        for task in self.pool.tasks:
            fit = self.pool.model.preprocess.fit
            for batch in task.sample(self.examples, self.batch_size, self.seed, fit):
                yield self.pool.seen(batch.images)

    @torch.no_grad()
    def run(self, watch: Callable[[], None]) -> None:
        """Send every batch through all networks; `watch` is called after each."""
        for number, batch in enumerate(self.batches):
            self.pool.progress("looking at units", number, len(self.batches))
            for model in self.models:
                model.network(batch)
            watch()

    @torch.no_grad()
    def settled(self, state: dict[str, Tensor], *, repair: bool) -> dict[str, Tensor]:
        """Fused weights as they are written, BatchNorm's statistics estimated anew if asked."""
        pool = self.pool
        flat = pool.layout.flatten((state[name] for name in pool.names), pool.device)
        pool.flat.copy_(flat)
        if repair:
            recompute_batch_norm(pool.model.network, self.batches)
        # The statistics are views of the flat vector, unless a reset has replaced them.
        places = pool.model.state_dict()
        found = zip(pool.names, pool.places, strict=True)
        return {name: places[place].detach().float().cpu().clone() for name, place in found}


def held_apart(batch_size: int, examples: int) -> tuple[Held, ...]:
    """Every member as a network and as a state, units that are watched, and images for repair."""
    return (Held(batch_size, copies=4, of_each=3, seen=examples),)


def networks_of(
    pool: TaskPool, method: str, *, examples: int, batch_size: int, seed: int
) -> Networks:
    """The members as networks of one known family, or a complaint."""
    if not pool.tasks:
        raise BadParameterError(
            f"{method}: expected unlabelled images to look at the units with, got none.",
            hint="Give tasks=DATA (--task DATA@train, or `data:` in a recipe).",
        )
    held = {name for name, value in pool.model.state_dict().items() if value.is_floating_point()}
    left_out = sorted(held - set(pool.places))
    if left_out:
        raise BadParameterError(
            f"{method}: brings all units into one order, the head's inputs too; expected every "
            f"tensor to be fused, got {len(left_out)} that are not, among them {left_out[0]}.",
            hint="Leave out head and exclude, and give plain classifiers of the same classes.",
        )
    shapes = dict(zip(pool.names, pool.shapes, strict=True))
    try:
        spec = permutation_spec(shapes, heads=_heads(pool.model))
    except BadCheckpointError as problem:
        raise BadCheckpointError(f"{method}: {problem.message}", hint=problem.hint) from None
    models, states = [], []
    for index in range(len(pool)):
        pool.load_member(index)
        models.append(pool.copy().requires_grad_(False).eval())
        views = pool.views(pool.flat)
        states.append({name: value.clone() for name, value in views.items()})
    found = Networks(
        method, pool, tuple(models), tuple(states), spec, examples, batch_size, seed
    )  # fmt: skip
    if not found.batches:
        raise BadParameterError(f"{method}: expected images to look at the units with, got none.")
    _check_symmetries(found)
    return found


@torch.no_grad()
def _check_symmetries(networks: Networks) -> None:
    """Raise where the family was mistaken: units that move must change no answer."""
    pool, spec = networks.pool, networks.spec
    generator = torch.Generator().manual_seed(0)
    moves = {g: torch.randperm(size, generator=generator) for g, size in spec.sizes.items()}
    moved = permuted(networks.states[0], moves, spec)
    pool.flat.copy_(pool.layout.flatten((moved[n] for n in pool.names), pool.device))
    batch = networks.batches[0][:8]
    want, got = networks.models[0].network(batch), pool.model.network(batch)
    error = float((want - got).abs().max() / want.abs().max().clamp(min=1e-12))
    if not error < _ALIKE:
        raise BadCheckpointError(
            f"{networks.method}: no permutation is known for this architecture: with its units in "
            "other places it answers differently.",
            hint="Known are ResNets (torchvision's and transformers' names), ViTs and plain MLPs.",
        )


def _heads(model: Classifier) -> int | None:
    config = getattr(getattr(model.network, "model", model.network), "config", None)
    found = getattr(config, "num_attention_heads", None)
    return found if isinstance(found, int) else None

"""PLeaS: permute networks trained apart, then solve every layer (Nasery et al., arXiv:2407.02447).

With every unit merged (the paper's ratio 0), so that the result has the members' size.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from stockpot.checkpoints.layouts import plain_name
from stockpot.errors import BadCheckpointError
from stockpot.fuse import fusers
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.permutation.match import Permutations, match_weights
from stockpot.fuse.permutation.networks import Networks, held_apart, networks_of
from stockpot.fuse.permutation.refit import mean_of, refitted
from stockpot.fuse.permutation.seen_units import covariances
from stockpot.fuse.statistics.regmean import solved_fuser
from stockpot.types import Count, NonNegative, Seed


@fusers.register(
    "pleas",
    paper="arXiv:2407.02447",
    learns=True,
    needs_data=True,
    at_least=2,
    each=False,
    apart=True,
)
def pleas(
    *,
    match: Literal["weights", "activations"] = "weights",
    examples: Count = 512,
    batch_size: Count = 64,
    ridge: NonNegative = 1e-3,
    repair: bool = True,
    seed: Seed = 0,
) -> DataFuser:
    """Permute the members towards the first, then refit every layer on unlabelled images.

    A layer's new weights are least squares: from the mean of the members' inputs to the mean of
    their outputs, all in the first member's order of units. Norms are averaged in that order. The
    paper's partial merging, which keeps units apart in a wider network, is not offered.

    Args:
        match: units by their weights (Git Re-Basin), or by how near their activations are on the
            images; transformers by weights alone.
        examples: images of each dataset; labels are not read.
        batch_size: images per forward pass.
        ridge: pulls a layer towards the members' mean, as a share of its inputs' mean square; a
            large one is permutation alone.
        repair: estimate BatchNorm's statistics anew on these images, as the authors do; otherwise
            they are averaged.
        seed: of the choice of images, and of the order in which groups are matched.
    """

    def learn(pool: TaskPool) -> Learned:
        networks = networks_of(pool, "pleas", examples=examples, batch_size=batch_size, seed=seed)
        moves = _by_weights(networks) if match == "weights" else _by_activations(networks)
        state = mean_of(networks, moves)
        solved, fell = refitted(networks, moves, state, ridge)
        settled = networks.settled({**state, **solved}, repair=repair)
        facts = {
            "examples": sum(map(len, networks.batches)),
            "groups": len(networks.spec.sizes),
            "layers": len(fell),
            "error_left": sum(fell.values()) / max(len(fell), 1),
        }
        return Learned({plain_name(name): value for name, value in settled.items()}, facts)

    return DataFuser(learn, solved_fuser, held_apart(batch_size, examples))


def _stay(networks: Networks) -> Permutations:
    return {group: torch.arange(size) for group, size in networks.spec.sizes.items()}


def _by_weights(networks: Networks) -> tuple[Permutations, ...]:
    first, *others = ({k: v.cpu() for k, v in state.items()} for state in networks.states)
    return (
        _stay(networks),
        *(match_weights(first, other, networks.spec, seed=networks.seed) for other in others),
    )


def _by_activations(networks: Networks) -> tuple[Permutations, ...]:
    """One assignment for each group: the distances of units over all images and places."""
    from scipy.optimize import linear_sum_assignment

    if "stream" in networks.spec.sizes:
        raise BadCheckpointError(
            "pleas: match=activations is for ResNets and plain MLPs; got a transformer.",
            hint="Leave out match: units are then matched by their weights.",
        )
    moves = [_stay(networks) for _ in networks.models]
    for group, products in covariances(networks, centred=False).items():
        size = networks.spec.sizes[group]
        squares = products.diagonal()
        for number in range(1, len(moves)):
            own = slice(number * size, (number + 1) * size)
            apart = squares[:size, None] + squares[None, own] - 2 * products[:size, own]
            _, columns = linear_sum_assignment(_distance(apart).cpu().numpy())
            moves[number][group] = torch.from_numpy(columns)
    return tuple(moves)


def _distance(squares: Tensor) -> Tensor:
    return squares.clamp(min=0).sqrt()

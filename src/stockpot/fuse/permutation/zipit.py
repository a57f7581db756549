"""ZipIt!: join units of networks that were trained apart (Stoica et al., arXiv:2305.03053)."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.checkpoints.layouts import plain_name
from stockpot.errors import BadCheckpointError
from stockpot.fuse import fusers
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.permutation.merged_units import merged
from stockpot.fuse.permutation.networks import Networks, held_apart, networks_of
from stockpot.fuse.permutation.pairing import correlations, paired
from stockpot.fuse.permutation.seen_units import covariances
from stockpot.fuse.statistics.regmean import solved_fuser
from stockpot.types import Count, Fraction01, Seed


@fusers.register(
    "zipit",
    paper="arXiv:2305.03053",
    learns=True,
    needs_data=True,
    at_least=2,
    each=False,
    apart=True,
)
def zipit(
    *,
    alpha: Fraction01 = 0.3,
    beta: Fraction01 = 0.125,
    examples: Count = 512,
    batch_size: Count = 64,
    repair: bool = True,
    seed: Seed = 0,
) -> DataFuser:
    """Join the units of networks trained from different starts that do alike on images.

    In every group of units (a residual stream, the inside of a block, a hidden layer) the two most
    correlated of all networks' units are joined, then the next, until one network's number is left;
    they may come from one network. Layers are averaged over what was joined: W = sum_i M_i W_i U_i,
    M_i the mean of joined outputs and U_i a copy for each joined input; the head is averaged.

    Args:
        alpha: multiplies the likeness of what was joined already, so that few units join twice; 0
            joins none again with units of the networks it came from.
        beta: the share of a network's part in all joins that may be within itself; 0 joins only
            units of different networks.
        examples: images of each dataset; labels are not read.
        batch_size: images per forward pass.
        repair: estimate BatchNorm's statistics anew on these images, as the authors do; otherwise
            they are joined as weights are.
        seed: of the choice of images.
    """

    def learn(pool: TaskPool) -> Learned:
        networks = networks_of(pool, "zipit", examples=examples, batch_size=batch_size, seed=seed)
        _check_plain(networks)
        goes: dict[str, Tensor] = {}
        alike, within, joined = 0.0, 0, 0
        for group, covariance in covariances(networks).items():
            likeness = correlations(covariance)
            goes[group] = paired(likeness, len(pool), alpha=alpha, beta=beta)
            alike += _likeness(likeness, goes[group])
            within += _within(goes[group], len(pool))
            joined += goes[group].shape[1]
        state = networks.settled(merged(networks.states, goes, networks.spec), repair=repair)
        facts = {
            "examples": sum(map(len, networks.batches)),
            "groups": len(goes),
            "units": joined,
            "of_one_network": within,
            "correlation": alike / joined,
        }
        return Learned({plain_name(name): value for name, value in state.items()}, facts)

    return DataFuser(learn, solved_fuser, held_apart(batch_size, examples))


def _check_plain(networks: Networks) -> None:
    """Raise for attention: its heads, and a norm over units, do not survive joining."""
    if "stream" in networks.spec.sizes:
        raise BadCheckpointError(
            "zipit: joins units of ResNets and plain MLPs; got a transformer.",
            hint="Its units can be permuted: use pleas, or average with --align.",
        )


def _likeness(alike: Tensor, goes: Tensor) -> float:
    """The sum over joined units of the mean correlation of what they are made of."""
    total = 0.0
    for column in goes.bool().T:
        part = alike[column][:, column]
        size = len(part)
        if size > 1:
            total += float((part.sum() - part.diagonal().sum()) / (size * (size - 1)))
        else:
            total += 1.0
    return total


def _within(goes: Tensor, networks: int) -> int:
    """How many joined units are of one network alone."""
    has = torch.stack([part.sum(dim=0) > 0 for part in goes.chunk(networks)])
    return int((has.sum(dim=0) == 1).sum())

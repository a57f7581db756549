"""Split conformal prediction: sets of classes that hold the right one as often as was asked.

How strange each class looks for an image is a number; the right class is stranger than a threshold
in at most a share alpha of images, when the threshold is the right quantile of held-out images:

- `lac`: one less the probability of the class (arXiv:1609.00451);
- `aps`: the probability of all classes before it, and a random share of its own (arXiv:2006.02544);
- `raps`: the same, and `penalty` for each rank beyond `free_ranks` (arXiv:2009.14193).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Method = Literal["lac", "aps", "raps"]


class Regular(NamedTuple):
    """What RAPS adds."""

    penalty: float = 0.01
    free_ranks: int = 5


def strangeness(
    probabilities: Floats, method: Method, chance: Floats | None, regular: Regular
) -> Floats:
    """How strange each class looks, images x classes.

    Args:
        probabilities: images x classes.
        method: how it is told.
        chance: for each image the share of a class's own probability that counts; all of it where
            there is none.
        regular: for `raps`.
    """
    if method == "lac":
        return 1 - probabilities
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, axis=1)
    share = np.ones(len(ranked)) if chance is None else chance
    # All before it, and a part of its own.
    sums = np.cumsum(ranked, axis=1) - (1 - share)[:, None] * ranked
    if method == "raps":
        ranks = np.arange(1, ranked.shape[1] + 1)
        sums = sums + regular.penalty * np.maximum(0, ranks - regular.free_ranks)
    found = np.empty_like(sums)
    np.put_along_axis(found, order, sums, axis=1)
    return found


def threshold(strange: Floats, alpha: float) -> float:
    """The strangeness that the right class of a new image exceeds with at most this chance.

    Of n held-out images it is the one of rank (n + 1) (1 - alpha), rounded up; where there are too
    few for that, nothing is too strange.
    """
    rank = int(np.ceil((len(strange) + 1) * (1 - alpha) - 1e-9))
    return float(np.inf) if rank > len(strange) else float(np.sort(strange)[max(rank, 1) - 1])

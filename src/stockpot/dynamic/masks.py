"""Sparse latent masks: which few coordinates of the latents a search really moves.

An l1-regularised logistic regression (scikit-learn's saga) tells latents before the search from
latents after it; the coordinates with non-zero weight are the mask, and only they move from then on
(arXiv:2308.10632, section on the sparse VQGAN). As published, the latents before are the encoder's
output and those after are quantised, so the classifier may key on "lies on a codebook vector"
instead of on the change. The variant `settled` compares quantised with quantised.
"""

from __future__ import annotations

import time
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stockpot.checkpoints.packages import import_extra
from stockpot.dynamic.generator import Generator
from stockpot.errors import BadDataError, BadParameterError

Variant = Literal["settled", "paper"]
PUBLISHED_STRENGTH = 36.36


class Mask(NamedTuple):
    """The coordinates that may move, and how they were found."""

    kept: Tensor
    """True where a coordinate moves; the shape of one image's latents."""
    sparsity: float
    """The share of coordinates that stay."""
    score: float
    """Accuracy of telling before from after on held-out latents."""
    seconds: float
    n: int


def fit_mask(
    before: Tensor,
    after: Tensor,
    *,
    strength: float = PUBLISHED_STRENGTH,
    held_out: float = 0.2,
    seed: int = 0,
) -> Mask:
    """Find the coordinates that tell latents before a search from latents after it.

    Args:
        before: N x ... latents of the images as they are.
        after: the latents of the same images after the search.
        strength: of the l1 penalty beside the summed loss, as published; scikit-learn's C is its
            inverse.
        held_out: the share of images whose latents only score the classifier.
        seed: of the split and the solver.
    """
    if before.shape != after.shape or len(before) < 10:
        raise BadDataError(
            "a mask needs latents of the same images before and after, of at least 10, "
            f"got {tuple(before.shape)} and {tuple(after.shape)}."
        )
    if strength <= 0 or not 0 < held_out < 1:
        raise BadParameterError(
            f"expected strength > 0 and 0 < held_out < 1, got {strength} and {held_out}."
        )
    sklearn: Any = import_extra("sklearn.linear_model", "masks")
    start = time.perf_counter()
    order = np.random.default_rng(seed).permutation(len(before))
    cut = max(1, round(held_out * len(order)))
    both = [part.flatten(1).double().cpu().numpy() for part in (before, after)]
    fit, test = (
        np.concatenate([part[rows] for part in both]) for rows in (order[cut:], order[:cut])
    )
    labels, truth = (np.repeat([0, 1], count) for count in (len(order) - cut, cut))
    mean, spread = fit.mean(axis=0), fit.std(axis=0)
    # A coordinate that never varies tells nothing; dividing by its spread would make noise of it.
    scale = np.where(spread > 1e-9, spread, np.inf)
    model = sklearn.LogisticRegression(
        solver="saga", l1_ratio=1.0, C=1 / strength, tol=0.1, random_state=seed, **_penalty()
    )
    model.fit((fit - mean) / scale, labels)
    score = float(model.score((test - mean) / scale, truth))
    kept = torch.from_numpy(model.coef_[0] != 0).view(before.shape[1:])
    sparsity = 1 - float(kept.float().mean())
    return Mask(kept, sparsity, score, time.perf_counter() - start, len(before))


def latents_of(
    variant: Variant, generator: Generator, start: Tensor, final: Tensor
) -> tuple[Tensor, Tensor]:
    """What the classifier compares: see the module's text."""
    before = start if variant == "paper" else generator.settled(start)
    return before, generator.settled(final)


def _penalty() -> dict[str, str]:
    # From 1.8 on l1_ratio alone means a mixture of penalties; before it, this has to be said.
    version: str = import_extra("sklearn", "masks").__version__
    major, minor = (int(part) for part in version.split(".")[:2])
    return {} if (major, minor) >= (1, 8) else {"penalty": "elasticnet"}

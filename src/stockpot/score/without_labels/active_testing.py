"""Active testing: label the images that may cost most, and weigh them so that nothing is biased.

Images are drawn in proportion to the loss that a surrogate expects, without replacement, and the
weights of Farquhar et al. (arXiv:2101.11665) make up for it (Kossen et al., arXiv:2103.05331). The
surrogate is the mean of all models' probabilities.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
_FLOOR = 0.05
"""The least chance of an image, in mean chances: one of none at all would never be looked at."""


def expected_losses(probabilities: Floats) -> Floats:
    """For each image how many of the models are wrong there, as their mean sees it.

    Args:
        probabilities: models x images x classes.
    """
    surrogate = probabilities.mean(axis=0)
    said = probabilities.argmax(axis=2)
    images = np.arange(probabilities.shape[1])
    expected: Floats = (1 - surrogate[images, said]).sum(axis=0)
    raised: Floats = np.maximum(expected, _FLOOR * expected.mean() + 1e-12)
    return raised


def chances(expected: Floats, labelled: Numbers) -> Floats:
    """The chance of each image to be drawn next; 0 for those that are labelled."""
    left = expected.copy()
    left[labelled] = 0.0
    found: Floats = left / left.sum()
    return found


def lure_weights(drawn_with: Floats, images: int) -> Floats:
    """The weight of each labelled image.

    Args:
        drawn_with: the chance that each had when it was drawn, in that order.
        images: how many images there are.
    """
    count = len(drawn_with)
    order = np.arange(1, count + 1)
    if count == images:
        return np.ones(count)
    odd = 1 / ((images - order + 1) * drawn_with) - 1
    found: Floats = 1 + (images - count) / (images - order) * odd
    return found


def lure_risk(losses: Floats, drawn_with: Floats, images: int) -> Floats:
    """The unbiased mean loss over all images, of each row of `losses` (models x labelled)."""
    found: Floats = (losses * lure_weights(drawn_with, images)).mean(axis=-1)
    return found

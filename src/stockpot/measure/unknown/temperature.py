"""Temperature scaling: one number that divides all logits (Guo et al., arXiv:1706.04599).

The temperature has the least negative log-likelihood on held-out answers. In its inverse that is
convex, so there is one least value, or it lies at an end: where all answers are right the
likelihood grows for ever, and the search stops at `LEAST`.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from stockpot.measure.unknown.answers import Answers, Floats
from stockpot.score.predictions import NONE

LEAST, MOST = 0.01, 100.0


def fitted_temperature(held_out: Answers) -> float:
    """The temperature that suits these answers best; 1 where there are none."""
    known = held_out.take(np.flatnonzero(held_out.answered))
    if not len(known):
        return 1.0

    def loss(log_temperature: float) -> float:
        return float(nll(known, float(np.exp(log_temperature))).mean())

    ends = (float(np.log(LEAST)), float(np.log(MOST)))
    found = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-7})
    return float(np.exp(found.x))


def nll(answers: Answers, temperature: float = 1.0) -> Floats:
    """Minus the log of the probability of what is right, for each image that has an answer."""
    scaled = answers.logits[answers.answered] / temperature
    wanted = answers.wanted[answers.answered]
    kept = np.take_along_axis(scaled, np.maximum(wanted, 0), axis=1)
    right = logsumexp(np.where(wanted == NONE, -np.inf, kept), axis=1)
    found: Floats = logsumexp(scaled, axis=1) - right
    return found

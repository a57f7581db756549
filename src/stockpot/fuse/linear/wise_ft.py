"""WiSE-FT: between a zero-shot and a fine-tuned model (Wortsman et al., arXiv:2109.01903)."""

from __future__ import annotations

from stockpot.fuse import fusers
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.linear.weighted import weighted_sum
from stockpot.pool.soups import line_weights


@fusers.register("wise_ft", paper="arXiv:2109.01903", pair=True, members=2, linear=True)
def wise_ft(*, alpha: float = 0.5) -> TensorFuser:
    """Interpolate linearly between two models.

    theta = (1 - alpha) theta_1 + alpha theta_2. The first model may also be given as the base.
    Values outside [0, 1] extrapolate. Sweep `alpha` from 0 to 1 for the curve of the paper.

    Args:
        alpha: the share of the second (fine-tuned) model.
    """
    return TensorFuser(
        lambda slab: weighted_sum(slab, line_weights(alpha)), elementwise=True, keeps_equal=True
    )

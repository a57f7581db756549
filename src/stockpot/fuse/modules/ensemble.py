"""Output ensembles: the baseline that a merge is measured against (Dietterich, 2000)."""

from __future__ import annotations

from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.fuser import SwitchFuser
from stockpot.fuse.parameters import normalized
from stockpot.models.modules.ensemble import Combine


@fusers.register("ensemble", paper="doi:10.1007/3-540-45014-9_1", linear=True, together=True)
def ensemble(
    *,
    combine: Combine = "probabilities",
    weights: list[float] | None = None,
    normalize: bool = True,
) -> SwitchFuser:
    """Keep all members and combine their answers: as many passes and weights as members.

    The result is a module: a folder with a model of each member that `load_model` reads. Nothing is
    merged; it is what a merge of the same members is compared with.

    Args:
        combine: `probabilities`: the weighted mean of the softmaxes; `logits`: the weighted sum of
            the logits; `max`: the largest logit of each class, whatever the weights.
        weights: one number per member; all equal by default.
        normalize: divide the weights by their sum.
    """
    if combine == "probabilities" and any(weight < 0 for weight in weights or ()):
        raise BadParameterError(
            f"weights: probabilities are weighed by numbers of at least 0, got {weights}.",
            hint="combine=logits takes any.",
        )
    shares = normalized(weights, normalize)
    return SwitchFuser(
        lambda slab: list(slab.members()),
        elementwise=True,
        together={"combine": combine, "weights": shares},
    )

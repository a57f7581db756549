"""Choose a soup for images without labels."""

from __future__ import annotations

from functools import partial

from stockpot.errors import BadParameterError
from stockpot.pool.pool import Pool
from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, need_shots
from stockpot.season.criteria import Criterion, calibrated_ensemble, judge
from stockpot.season.evaluate import logits_of, member_logits
from stockpot.season.grids import affine_grid
from stockpot.season.ranking import ranking
from stockpot.season.shots import Shots
from stockpot.types import Positive


@seasoners.register("label_free")
def label_free(
    pool: Pool,
    shots: Shots,
    context: Context,
    *,
    criterion: Criterion = "entropy",
    marginal: float = 1.0,
    low: float = -0.4,
    high: float = 1.4,
    step: Positive = 0.2,
) -> Choice:
    """Rank the grid's soups on unlabelled images, each soup calibrated on labelled source images.

    Extrapolation inflates logits, and a raw entropy would take that for certainty; therefore each
    soup first gets the temperature that fits the source.

    Args:
        criterion: `entropy`: sure about each image, and varied over all; `atc`: the accuracy that
            the share of confident images foretells; `agreement`: with the output ensemble of
            all members; `doc`: the source's accuracy less the confidence that is lost;
            `nuclear_norm`: of the table of predictions, sure and varied at once.
        marginal: the weight of variety (the entropy of the mean prediction) in `entropy`.
        low: the smallest weight; 0 makes the soups convex.
        high: the largest weight.
        step: the distance of grid points.
    """
    need_shots("label_free", shots)
    source = context.source
    if source is None or not len(source):
        raise BadParameterError(
            "label_free: needs labelled source images to calibrate on.",
            hint="Give source=DATASET (images of the kind that the members were trained on).",
        )
    soups = affine_grid(len(pool), low=low, high=high, step=step)
    known, target = (list(member_logits(pool, part)) for part in (source, shots))
    losses = partial(source.scorer.losses, rows=slice(None))
    ensemble = calibrated_ensemble(known, losses, target)
    judgements = []
    tell = context.told("trying soups")
    for weights in soups:
        model = pool.load(weights)
        judgements.append(
            judge(
                criterion,
                logits_of(model, source),
                source.scorer,
                logits_of(model, shots),
                ensemble,
                marginal,
            )
        )
        tell(len(judgements), len(soups))
    scores = [judgement.score for judgement in judgements]
    best = int(ranking(soups.numpy(), scores, seed=context.seed)[0])
    images = (len(soups) + len(pool)) * (len(shots) + len(source))
    notes = {"criterion": criterion, **judgements[best]._asdict()}
    return Choice(soups[best], images=images, notes=notes)

"""The measure `audit`: whether attacks on a model can be believed, with the curves to see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from stockpot.attack.threat import Eps, threat
from stockpot.audit.probes import LEAST
from stockpot.audit.run import Audit
from stockpot.audit.run import audit as check
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement, proportion, with_interval
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_for
from stockpot.results.schema import Flag, Score
from stockpot.results.statistics import wilson
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import scorer_for
from stockpot.types import Count, ModelRef, Norm


@measures.register("audit", paper="arXiv:1902.06705")
def audit(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    norm: Norm = "linf",
    eps: Eps = "8/255",
    budget: Annotated[int, Field(ge=LEAST)] = 500,
    images: Count = 64,
    twin: ModelRef = "",
    class_space: ClassSpace = "all",
) -> Measurement:
    """A verdict on whether attacks on this model can be believed: cleared, suspicious, convicted.

    Args:
        norm: `linf`, `l2` or `l1`.
        eps: the radius of the claim that is audited, in pixel units.
        budget: forward passes per image, at most.
        images: how many are looked at, drawn from the data.
        twin: a model of the same classes that hides nothing; images found on it are tried too.
        class_space: as for `clean`.
    """
    ball = threat(norm, eps)
    sample = data.limited(images, seed=context.seed)
    scorer = scorer_for(model.classes, sample, class_space)
    batches = list(sample.batches(context.batch_size, model.preprocess.fit))
    pixels = torch.cat([batch.images for batch in batches])
    # Images with several right labels are looked at through a view of the outputs; one view only.
    parts = scorer.parts(torch.cat([batch.rows for batch in batches]))
    part = max(parts, key=lambda each: len(each.places))
    found = check(
        model if part.view is None else _Seen(model, part.view),
        pixels[part.places].to(context.device),
        part.targets.to(context.device),
        norm=norm,
        eps=eps,
        budget=budget,
        twin=_twin(twin, model, data, context) if twin else None,
        seed=context.seed,
    )
    context.progress("audit", len(data), len(data))
    condition = {"norm": ball.norm, "eps": ball.eps}
    correct, robust = found.correct.cpu().numpy(), found.robust.cpu().numpy()
    left = len(sample) - len(correct)
    groups = None if sample.groups is None else np.asarray(sample.groups)[part.places.numpy()]
    notes = [f"audit {ball}: {found.verdict}", *_told(found)]
    notes += [f"audit: {left} images with other accepted labels were left out"] if left else []
    return Measurement(
        scores=[
            proportion("accuracy", correct, groups=groups),
            proportion("audited_accuracy", robust, condition, groups=groups),
            *_curves(found),
        ],
        convention=f"audit; {ball}; {budget} forward passes an image; pixels in [0, 1]",
        images=found.queries,
        outcomes={"correct": correct, "audited": robust},
        notes=(*notes, *scorer.notes),
        flags=tuple(
            Flag(name=each.name, count=each.count, of=each.of, condition=dict(condition))
            for each in found.findings
            if each.verdict != "cleared"
        ),
        findings=found.findings,
        class_space=scorer.description,
    )


class _Seen(nn.Module):
    """A model through a view of its outputs, as a module whose parts can be found."""

    def __init__(self, model: Classifier, view: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.view = model, view

    def forward(self, pixels: Tensor) -> Tensor:
        return self.view(self.model(pixels))


def _told(found: Audit) -> list[str]:
    return [
        f"{each.name} {each.verdict}: {each.count} of {each.of}: {each.words}"
        for each in found.findings
        if each.verdict != "cleared"
    ]


def _curves(found: Audit) -> list[Score]:
    """Accuracy and loss over radii, accuracy over steps, on the images that are right as is."""
    n, scores = int(found.correct.sum()), []
    for curve, points in (("eps", found.by_eps), ("steps", found.by_steps)):
        for point in points:
            condition: dict[str, str | int | float] = {
                "curve": curve,
                "eps": point.eps,
                "steps": point.steps,
            }
            interval = wilson(point.standing, n)
            scores.append(
                with_interval("probe_accuracy", point.standing / n, n, interval,
                              condition=condition)
            )  # fmt: skip
            if point.loss is not None:
                scores.append(
                    Score(metric="probe_loss", value=point.loss, n=n, higher_is_better=None,
                          unit="nats", condition=condition)
                )  # fmt: skip
    return scores


def _twin(source: str, model: Classifier, data: Dataset, context: Context) -> Classifier:
    twin = load_for(source, data, device=context.device)
    if twin.classes != model.classes:
        raise BadParameterError(
            f"twin: {source} has other classes, or the same in another order.",
            hint="A twin is a model of the same task, such as the one before a defence was added.",
        )
    return twin.eval()

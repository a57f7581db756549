"""Does the model notice images that show nothing it knows? The conventions of OpenOOD v1.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError, BadParameterError, UnknownNameError
from stockpot.measure import measures
from stockpot.measure.chosen_data import Chosen, Sets, load_chosen
from stockpot.measure.measurement import Context, Measurement, proportion, with_interval
from stockpot.measure.unknown.detection import (
    FEWER,
    MANY,
    METRICS,
    RESAMPLES,
    Found,
    Sample,
    detection,
    mean_detection,
)
from stockpot.measure.unknown.detectors import (
    ALL,
    LOGITS_ALONE,
    WITH_TRAINING,
    Detector,
    Settings,
    detector,
)
from stockpot.measure.unknown.known_classes import Overlapping, foreign
from stockpot.measure.unknown.penultimate import Penultimate
from stockpot.models.classifier import Classifier
from stockpot.results.schema import Score
from stockpot.score.class_space import is_numbered
from stockpot.score.predictions import finite
from stockpot.score.scorer import scorer_for
from stockpot.types import Check, Count, Natural


def _read_detectors(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else list(value)
    chosen = tuple(str(name).strip() for name in names)
    for name in chosen:
        if name not in ("all", *ALL):
            raise UnknownNameError("detector", name, ["all", *ALL])
    return chosen


Detectors = Annotated[tuple[str, ...], Check(_read_detectors)]
"""Detectors by name, or `all`."""


@measures.register("ood", paper="arXiv:2306.09301")
def ood(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    near: Sets | None = None,
    far: Sets | None = None,
    detectors: Detectors = ("all",),
    train: Chosen = "train",
    train_images: Natural = 50_000,
    k: Count = 50,
    dim: Natural | None = None,
    percentile: Annotated[float, Field(ge=0, lt=100)] = 90.0,
    overlap: Overlapping = "leave_out",
) -> Measurement:
    """Out-of-distribution detection: AUROC, FPR at 95 % TPR and AUPR for near and far sets.

    Args:
        near: sets whose images resemble the data's: names or folders with commas between, a list,
            or a mapping from names to datasets or their options.
        far: sets that are far from it, likewise.
        detectors: `all`, or some of msp, max_logit, energy, knn, vim, ash_p, ash_b, ash_s.
        train: images of the training distribution, for knn and vim: the data's `train` split, or
            another dataset.
        train_images: at most so many of them, chosen by seed; 0 for all.
        k: which nearest training image's distance counts, for knn.
        dim: of vim's principal space; by default 1000 from 2048 features on, 512 from 768 on, else
            half of them.
        percentile: of the features that ash removes from each image.
        overlap: whether images of classes that the model knows are left out of the sets, as in
            OpenOOD, or kept; they are told of in both cases.
    """
    sets = _sets(near, far)
    looking = Penultimate(model, data, context)
    names, notes = _possible(detectors, looking)
    # Numbers in place of names say nothing of what a class shows.
    known = data.classes if is_numbered(model.classes) else (*model.classes, *data.classes)
    chosen, flags = {}, []
    for (distance, name), place in sets.items():
        other = load_chosen(place, f"{distance}: {name}")
        chosen[distance, name], told, flag = foreign(name, other, known, overlap)
        notes += told
        flags += [flag] if flag else []
    training, said, trained = None, "", 0
    if set(names) & set(WITH_TRAINING):
        source = _training(data, context, train).limited(train_images or None, context.seed)
        training, trained = _features(looking, source), len(source)
        said = f"; training features of {len(source)} images of {source}"
        notes.append(f"training: {len(source)} of {source} ({source.fingerprint[:16]})")
    made = {n: detector(n, Settings(k, dim, percentile), looking.head, training) for n in names}
    run = {name: function for name, (function, _) in made.items()}
    scorer = scorer_for(model.classes, data)
    right: list[Tensor] = []
    note = context.note("correct", data, scorer)

    def judged(outputs: Tensor, rows: Tensor | slice) -> Tensor:
        note(scorer.logits(outputs), rows)
        return scorer.correct(outputs, rows)

    inside = _scored(looking, data, run, "inside", -np.inf, right, judged)
    groups = _groups(data)
    correct = torch.cat(right).cpu().numpy()
    scores = [proportion("accuracy", correct, groups=groups)]
    found: dict[tuple[str, str], dict[str, Found]] = {}
    most = len(data) + max(map(len, chosen.values()))
    resamples = RESAMPLES if most <= MANY else FEWER
    for place, ((distance, name), other) in enumerate(chosen.items()):
        outside = _scored(looking, other, run, name, np.inf)
        for each in names:
            samples = Sample(inside[each], groups), Sample(outside[each], _groups(other))
            result = detection(*samples, seed=context.seed, place=place, resamples=resamples)
            found.setdefault((each, distance), {})[name] = result
            about: dict[str, str | int] = {"detector": each, "distance": distance, "set": name}
            scores += _as_scores(result, len(data) + len(other), about)
        notes.append(f"{distance}: {other} ({other.fingerprint[:16]}), {len(other)} images")
    for (each, distance), by_set in found.items():
        total = len(data) + sum(len(chosen[distance, name]) for name in by_set)
        about = {"detector": each, "distance": distance, "sets": len(by_set)}
        scores += _as_scores(mean_detection(list(by_set.values())), total, about, f"{distance}_")
    return Measurement(
        scores=scores,
        convention=_convention([words for _, words in made.values()], looking, said),
        images=len(data) + sum(map(len, chosen.values())) + trained,
        outcomes={"correct": correct},
        notes=(*notes, *scorer.notes),
        flags=tuple(flags),
        class_space=scorer.description,
    )


def _sets(near: Mapping[str, Any] | None, far: Mapping[str, Any] | None) -> dict[Any, Any]:
    found = {("near", name): place for name, place in (near or {}).items()}
    found |= {("far", name): place for name, place in (far or {}).items()}
    if not found:
        raise BadParameterError(
            "ood: expected sets of other images in near or far, got none.",
            hint="Such as -p far=mnist,quickdraw.",
        )
    return found


def _possible(asked: tuple[str, ...], looking: Penultimate) -> tuple[list[str], list[str]]:
    """The detectors that this model allows; one that was asked for by name must be among them."""
    names = list(ALL) if "all" in asked else list(dict.fromkeys(asked))
    left = [name for name in names if name not in LOGITS_ALONE]
    if looking.head is not None or not left:
        return names, []
    told = f"{', '.join(left)} need the features before a last linear layer, and the model has none"
    if "all" not in asked:
        raise BadParameterError(f"detectors: {told}.", hint=f"Use {', '.join(LOGITS_ALONE)}.")
    return list(LOGITS_ALONE), [f"left out: {told}"]


def _training(data: Dataset, context: Context, train: Any) -> Dataset:
    if train != "train":
        return load_chosen(train, "train")
    if context.sibling is None:
        raise BadDataError(
            f"{data}: expected training images for knn and vim, and its train split is not known.",
            hint="Give train=DATASET, or detectors=msp,energy.",
        )
    return context.sibling("train")


def _features(looking: Penultimate, data: Dataset) -> Tensor:
    found = [seen.features for seen in looking.batches(data, "training")]
    return torch.cat([part for part in found if part is not None])


def _scored(
    looking: Penultimate,
    data: Dataset,
    run: Mapping[str, Detector],
    what: str,
    silent: float,
    right: list[Tensor] | None = None,
    correct: Any = None,
) -> dict[str, Any]:
    """Scores of all images by detector; outputs that are no numbers earn nobody anything.

    Args:
        looking: at the model.
        data: the images.
        run: the detectors.
        what: how the progress calls it.
        silent: the score of an image without an answer: always the wrong one.
        right: filled with what is right, where the data is the model's own.
        correct: says of outputs and rows what is right.
    """
    found: dict[str, list[Tensor]] = {name: [] for name in run}
    for seen in looking.batches(data, what):
        answered = finite(seen.logits)
        for name, function in run.items():
            score = function(seen.logits, seen.features).double()
            wrong = torch.full_like(score, silent)
            found[name].append(torch.where(answered & score.isfinite(), score, wrong).cpu())
        if right is not None:
            right.append(correct(seen.logits, seen.rows))
    return {name: torch.cat(parts).numpy() for name, parts in found.items()}


def _as_scores(
    found: Found, n: int, about: Mapping[str, str | int], prefix: str = ""
) -> list[Score]:
    return [
        with_interval(
            f"{prefix}{metric}",
            found.values[metric],
            n,
            found.intervals[metric],
            better=not metric.startswith("fpr"),
            condition=about,
        )
        for metric in METRICS
    ]


def _convention(settings: list[str], looking: Penultimate, training: str) -> str:
    layer = f"; features: {looking.head.words}" if looking.head else ""
    return (
        f"ood:openood-1.5; {', '.join(settings)}{layer}{training}; scores are large inside; "
        "fpr95: share of inside images turned away when 95 % of the others are"
    )


def _groups(data: Dataset) -> Any:
    return None if data.groups is None else np.asarray(data.groups)

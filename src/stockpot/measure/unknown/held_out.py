"""Images to set a temperature or a threshold on, which are never those that are scored.

`val` takes the data's own val split. What of it is among the measured images, or was trained on as
the model's record tells, is left out. Where nothing remains, or the data has no such split, and for
`content`, half of the measured images is taken instead, and only the other half is scored: the hash
of its pixels decides on which side an image lies; near twins and images of one original stay
together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from stockpot.datasets.by_content.image_hashes import image_hashes, look_at
from stockpot.datasets.by_content.parts import halves_by_hash
from stockpot.datasets.by_content.split_names import WHOLE
from stockpot.datasets.by_content.twins import twin_groups
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError, UserError
from stockpot.measure.chosen_data import load_chosen
from stockpot.measure.measurement import Context
from stockpot.measure.unknown.answers import Answers, answers_of
from stockpot.models.classifier import Classifier
from stockpot.models.inputs import seen_of
from stockpot.results.schema import Flag
from stockpot.score.class_space import ClassSpace

TRAINED = "held_out_trained_on"
"""The flag of held-out images that the model was trained on; they are left out."""
_LEARNED = ("training", "seasoning", "fusing")


class HeldOut(NamedTuple):
    """Answers to fit on and to score, and what there is to say of them."""

    fit: Answers
    scored: Answers
    whole: Answers
    """All measured images: those that are scored, and half of them more where they were halved."""
    words: str
    """Where the held-out images come from, for the convention."""
    notes: tuple[str, ...]
    flags: tuple[Flag, ...]
    images: int
    """Forward passes."""


def held_out_answers(
    model: Classifier,
    data: Dataset,
    context: Context,
    chosen: str | dict[str, Any] | Dataset,
    space: ClassSpace,
) -> HeldOut:
    """Answers to the measured images and to held-out ones.

    Args:
        model: the model.
        data: the measured images.
        context: how to run.
        chosen: `val`, `content`, or a dataset as `load_chosen` takes it.
        space: the class space.
    """
    whole = answers_of(model, data, context, "measured", space, "correct")
    why = ""
    if chosen != "content":
        try:
            other, flags = kept_apart(_other(data, context, chosen), model, data)
        except UserError as problem:
            if chosen != "val":
                raise
            why = f" (no val split to use: {problem.message.rstrip('.')})"
        else:
            fit = answers_of(model, other, context, "held out", space)
            words = f"{len(other)} of {other}"
            notes = [f"held out: {words} ({other.fingerprint[:16]})"]
            notes += [
                f"{flag.count} of {flag.of} held-out images were left out: the model was trained "
                "on them, or they are measured here"
                for flag in flags
            ]
            return HeldOut(fit, whole, whole, words, tuple(notes), flags, len(whole) + len(other))
    first = _first_half(data)
    if not 0 < first.sum() < len(data):
        raise BadDataError(
            f"{data}: expected images to hold out, and by content none of {len(data)} is on the "
            "other side.",
            hint="Give held_out=DATASET, or measure on more images.",
        )
    rows = np.arange(len(data))
    words = f"half by content, {int(first.sum())} of {len(data)} images"
    return HeldOut(
        whole.take(rows[first]),
        whole.take(rows[~first]),
        whole,
        words,
        (f"held out: {words}{why}; the other {int((~first).sum())} are scored",),
        (),
        len(whole),
    )


def _other(data: Dataset, context: Context, chosen: str | dict[str, Any] | Dataset) -> Dataset:
    if chosen != "val":
        return load_chosen(chosen, "held_out")
    if data.split == WHOLE or context.sibling is None:
        raise BadDataError(f"{data} has no splits.")
    return context.sibling("val")


def kept_apart(
    other: Dataset, model: str | Classifier, data: Dataset
) -> tuple[Dataset, tuple[Flag, ...]]:
    """The images that are not measured and, as far as is known, not trained on."""
    hashes = image_hashes(other.images)
    out = np.isin(hashes, image_hashes(data.images))
    known = seen_of(model).among(hashes, other.fingerprint)
    for use, seen in known.items():
        if use in _LEARNED:
            out |= seen
    rows = np.flatnonzero(~out)
    if not len(rows):
        raise BadDataError(f"{other}: all its images are measured here or were trained on.")
    if len(rows) == len(other):
        return other, ()
    flag = Flag(name=TRAINED, count=int(out.sum()), of=len(other))
    return other.take(rows.tolist()), (flag,)


def _first_half(data: Dataset) -> NDArray[np.bool_]:
    look = look_at(data.images)
    groups = twin_groups(look.thumbnails)
    if data.groups is not None:
        originals = np.unique(np.asarray(data.groups), return_inverse=True)[1]
        count = len(groups)
        # Images, and what they belong to, as the knots of a graph: what hangs together is one.
        rows = np.arange(count)
        left = np.concatenate([rows, rows])
        right = np.concatenate([count + groups, 2 * count + originals])
        graph = coo_array((np.ones(2 * count), (left, right)), shape=(3 * count, 3 * count))
        groups = connected_components(graph, directed=False)[1][:count]
    return halves_by_hash(look.hashes, groups)

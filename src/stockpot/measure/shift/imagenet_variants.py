"""ImageNet and its natural variants as one measure, every convention named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.natural.classes import answers
from stockpot.datasets.natural.cue_conflict import CUE_CONFLICT
from stockpot.datasets.natural.imagenet import SKETCH, STYLIZED, V2, VAL
from stockpot.datasets.natural.imagenet_real import real_labels
from stockpot.datasets.natural.imagenet_subsets import ADVERSARIAL, RENDITION
from stockpot.datasets.natural.layout import NaturalSet, located_under
from stockpot.datasets.natural.objectnet import OBJECTNET
from stockpot.errors import BadDataError, BadParameterError, UnknownNameError
from stockpot.measure import measures
from stockpot.measure.measurement import (
    Context,
    Flags,
    Measurement,
    flags_in_steps,
    proportion,
    with_interval,
)
from stockpot.measure.shift.shape_bias import decisions, shape_scores
from stockpot.measure.together.steps import Steps, in_steps
from stockpot.models.classifier import Classifier
from stockpot.results.schema import Score
from stockpot.results.several_sets import mean_of_sets, newcombe
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import scorer_for
from stockpot.score.usual_space import usual_space


class Variant(NamedTuple):
    """A set, and how it is usually scored."""

    known: NaturalSet
    convention: str


VARIANTS: Mapping[str, Variant] = {
    "imagenet_v2": Variant(V2["matched-frequency"], "matched-frequency, best of 1000"),
    "imagenet_r": Variant(RENDITION, "best of its 200"),
    "imagenet_sketch": Variant(SKETCH, "best of 1000"),
    "objectnet": Variant(OBJECTNET, "best of its 113, any of their outputs, 2 px off"),
    "imagenet_a": Variant(ADVERSARIAL, "best of its 200"),
    "stylized_imagenet": Variant(STYLIZED, "best of 1000"),
    "imagenet_real": Variant(VAL, "any accepted label, unlabelled left out"),
    "cue_conflict": Variant(CUE_CONFLICT, "mean probability of 16 categories"),
}
AVERAGED = ("imagenet_v2", "imagenet_r", "imagenet_sketch", "objectnet", "imagenet_a")
"""The five whose mean is the usual accuracy out of distribution."""


@measures.register("imagenet_variants", paper="arXiv:2303.03052", passes=True)
@in_steps
def imagenet_variants(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    root: str,
    sets: str | tuple[str, ...] = "found",
    limit: int | None = None,
) -> Steps[Measurement]:
    """Accuracy on ImageNet and on V2, R, Sketch, ObjectNet, A, Stylized, ReaL, cue conflict.

    The data is ImageNet's validation set. R and A are scored among their 200 classes and ObjectNet
    among its 113, and also among all 1000; for these three the accuracy on ImageNet's images of the
    same classes is given too. The mean outside is that of V2, R, Sketch, ObjectNet and A.

    Args:
        root: the folder that holds the sets under their public names (imagenetv2-...-format-val,
            imagenet-r, sketch, objectnet-1.0, imagenet-a, ...).
        sets: which of them, with commas between; `found` takes those that are there.
        limit: at most so many images of each set, chosen by a seed.
    """
    folder = Path(root).expanduser()
    chosen = _chosen(folder, sets)
    inside = (yield from flags_in_steps(model, data, context, "imagenet", record="correct"))["all"]
    scores = [proportion("accuracy", inside)]
    usual: dict[str, Flags] = {}
    images = len(data)
    notes = []
    for name in chosen:
        variant = context.pictures.load(name, path=str(folder), limit=limit)
        images += len(variant)
        notes.append(f"{name}: {len(variant):,} images ({variant.fingerprint[:16]})")
        if name == "cue_conflict":
            decided = yield from decisions(model, variant, context)
            scores += shape_scores(variant, decided, {"set": name})
            continue
        usual[name], found = yield from _scored(name, model, data, variant, inside, context)
        scores += found
    scores += _mean(usual)
    if absent := [name for name in VARIANTS if name not in chosen]:
        notes.append(f"not measured: {', '.join(absent)}")
    conventions = "; ".join(f"{name}: {VARIANTS[name].convention}" for name in chosen)
    return Measurement(
        scores=scores,
        convention=f"imagenet-variants; imagenet: best of 1000; {conventions}",
        images=images,
        outcomes={"correct": inside, **{f"outside:{k}": flags for k, flags in usual.items()}},
        notes=tuple(notes),
        class_space=scorer_for(model.classes, data).description,
    )


def _chosen(folder: Path, sets: str | tuple[str, ...]) -> list[str]:
    if not folder.is_dir():
        raise BadDataError(f"root: expected a folder of ImageNet's variants, {folder} is none.")
    here = [name for name in VARIANTS if _is_here(name, folder)]
    if sets in ("found", ("found",)):
        if not here:
            looked = ", ".join(variant.known.layout.folders[0] for variant in VARIANTS.values())
            raise BadDataError(
                f"root: {folder} holds none of the variants.", hint=f"Looked for {looked}."
            )
        return here
    names = [part.strip() for part in sets.split(",")] if isinstance(sets, str) else list(sets)
    for name in names:
        if name not in VARIANTS:
            raise UnknownNameError("variant of ImageNet", name, VARIANTS)
        if name not in here:
            looked = ", ".join(VARIANTS[name].known.layout.folders)
            raise BadParameterError(
                f"sets: {name} is not in {folder}.", hint=f"Looked for {looked}."
            )
    return names


def _is_here(name: str, root: Path) -> bool:
    """Whether a variant lies in the folder under one of its public names."""
    found = located_under(VARIANTS[name].known, root) is not None
    return found and (name != "imagenet_real" or real_labels(root) is not None)


def same_classes(data: Dataset, variant: Dataset) -> Dataset:
    """The images of ImageNet whose classes the variant has too, in the variant's class space."""
    own, asked = answers(data.classes), answers(variant.classes)
    if own is None or asked is None or any(len(places) != 1 for places in own):
        raise BadDataError(
            f"imagenet_variants: expected ImageNet's own classes, {data.name} has "
            f"{len(data.classes)}: {', '.join(data.classes[:4])}, ...",
            hint="Measure it with data=imagenet.",
        )
    number = {place: row for row, places in enumerate(asked) for place in places}
    labels = [number.get(own[label][0], -1) for label in data.labels.tolist()]
    rows = [row for row, label in enumerate(labels) if label >= 0]
    return replace(
        data.take(rows),
        labels=torch.tensor([labels[row] for row in rows], dtype=torch.long),
        classes=variant.classes,
        vocabulary=variant.vocabulary,
    )


def _scored(
    name: str,
    model: Classifier,
    data: Dataset,
    variant: Dataset,
    inside: Flags,
    context: Context,
) -> Steps[tuple[Flags, list[Score]]]:
    space = usual_space(name)
    spaces: tuple[ClassSpace, ...] = ("subset", "all") if space == "subset" else ("all",)
    flags = yield from flags_in_steps(model, variant, context, name, spaces, f"outside:{name}")
    scores = [
        proportion("outside_accuracy", flags[each], {"set": name, "space": each}) for each in spaces
    ]
    counterpart = inside
    if space == "subset":
        own = same_classes(data, variant)
        if not len(own):
            return flags[space], scores
        alike = yield from flags_in_steps(model, own, context, f"imagenet like {name}", ("subset",))
        counterpart = alike["subset"]
        condition = {"set": name, "space": "subset"}
        scores.append(proportion("same_classes_accuracy", counterpart, condition))
    scores.append(
        with_interval(
            "gap",
            float(counterpart.mean() - flags[space].mean()),
            flags[space].size,
            newcombe(counterpart, flags[space]),
            better=False,
            condition={"set": name, "space": space},
        )
    )
    return flags[space], scores


def _mean(usual: dict[str, Flags]) -> list[Score]:
    counted = [usual[name] for name in AVERAGED if name in usual]
    if not counted:
        return []
    mean, interval = mean_of_sets(counted)
    size = sum(flags.size for flags in counted)
    condition = {"sets": f"{len(counted)} of {len(AVERAGED)}"}
    return [with_interval("mean_outside_accuracy", mean, size, interval, condition=condition)]

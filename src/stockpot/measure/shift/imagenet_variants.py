"""ImageNet and its natural variants as one measure, every convention named."""

from __future__ import annotations

from pathlib import Path

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError, BadParameterError, UnknownNameError
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement, proportion, with_interval
from stockpot.measure.shift.answered import Flags, right_flags
from stockpot.measure.shift.gaps import difference, mean_of_sets
from stockpot.measure.shift.shape_bias import decisions, shape_scores
from stockpot.measure.shift.variants import (
    AVERAGED,
    VARIANTS,
    is_here,
    load_variant,
    same_classes,
)
from stockpot.models.class_space import ClassSpace, match_classes
from stockpot.models.classifier import Classifier
from stockpot.results.schema import Score


@measures.register("imagenet_variants", paper="arXiv:2303.03052")
def imagenet_variants(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    root: str,
    sets: str | tuple[str, ...] = "found",
    limit: int | None = None,
) -> Measurement:
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
    inside = right_flags(model, data, context, "imagenet")["all"]
    scores = [proportion("accuracy", inside)]
    usual: dict[str, Flags] = {}
    images = len(data)
    notes = []
    for name in chosen:
        variant = load_variant(name, folder, limit)
        images += len(variant)
        notes.append(f"{name}: {len(variant):,} images ({variant.fingerprint[:16]})")
        if name == "cue_conflict":
            scores += shape_scores(variant, decisions(model, variant, context), {"set": name})
            continue
        usual[name], found = _scored(name, model, data, variant, inside, context)
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
        class_space=match_classes(model.classes, data.classes).description,
    )


def _chosen(folder: Path, sets: str | tuple[str, ...]) -> list[str]:
    if not folder.is_dir():
        raise BadDataError(f"root: expected a folder of ImageNet's variants, {folder} is none.")
    here = [name for name in VARIANTS if is_here(name, folder)]
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


def _scored(
    name: str,
    model: Classifier,
    data: Dataset,
    variant: Dataset,
    inside: Flags,
    context: Context,
) -> tuple[Flags, list[Score]]:
    space = VARIANTS[name].space
    spaces: tuple[ClassSpace, ...] = ("subset", "all") if space == "subset" else ("all",)
    flags = right_flags(model, variant, context, name, spaces)
    scores = [
        proportion("outside_accuracy", flags[each], {"set": name, "space": each}) for each in spaces
    ]
    counterpart = inside
    if space == "subset":
        own = same_classes(data, variant)
        if not len(own):
            return flags[space], scores
        counterpart = right_flags(model, own, context, f"imagenet like {name}", ("subset",))[
            "subset"
        ]
        condition = {"set": name, "space": "subset"}
        scores.append(proportion("same_classes_accuracy", counterpart, condition))
    scores.append(
        with_interval(
            "gap",
            float(counterpart.mean() - flags[space].mean()),
            flags[space].size,
            difference(counterpart, flags[space]),
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

"""Accuracy under the ImageNet-C corruptions, made on the fly from the clean images."""

from __future__ import annotations

from typing import Annotated, Literal

from stockpot.corrupt.constants import Profile, profile_for
from stockpot.corrupt.ranges import (
    Severities,
    chosen_corruptions,
    chosen_severities,
    family_of_names,
)
from stockpot.corrupt.sizes import SizeRule, Sizing, sizing
from stockpot.corrupt.weather.frost import Overlays
from stockpot.datasets.corrupted.stored import CorruptionSet
from stockpot.datasets.dataset import Dataset
from stockpot.measure import measures
from stockpot.measure.corruption_scores import grid_scores
from stockpot.measure.grids import Grids, MadeGrids, StoredGrids
from stockpot.measure.mce import IMAGENET_C, NAMED_BASELINES, Baseline, named_baseline
from stockpot.measure.measurement import Context, Measurement
from stockpot.measure.stored_corruptions import StoredCorruptions, stored_cells
from stockpot.measure.together.steps import NUMBERS, Steps, in_steps, to_the_end
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.fingerprint import identity_in_use
from stockpot.models.load import identify, load_for, words_for
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import scorer_for
from stockpot.types import ModelRef, Reference


@measures.register("corruption", paper="arXiv:1903.12261", passes=True, splits=True)
@in_steps
def corruption(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    corruptions: StoredCorruptions = "benchmark",
    severities: Severities = "1-5",
    baseline: ModelRef = "alexnet-constants",
    profile: Profile | Literal["auto"] = "auto",
    size: SizeRule = "published",
    overlays: Overlays = "procedural",
    folder: Annotated[str, Reference("corrupted")] | None = None,
    class_space: ClassSpace = "all",
) -> Steps[Measurement]:
    """Error under each corruption and severity, mean corruption accuracy, mCE and relative mCE.

    Args:
        corruptions: `benchmark` (the fifteen), `extra` (the four), `all`, a family such as
            `imagenet-c-bar` or `cifar-10-c-bar`, or names; those of a folder with corruptions of
            its own (ImageNet-C-bar, ImageNet-3DCC, MNIST-C) there.
        severities: such as `1-5`, `1,2.5,5` or 3; between whole ones constants are interpolated.
        baseline: what errors are divided by: `alexnet-constants`, `alexnet-severities`, `none`, or
            any model, which is then measured in the same way.
        profile: whose constants: `imagenet` (224 px), `inception` (299 px), `tinyimagenet` (64 px),
            `cifar` (32 px), or `auto` by size.
        size: `published`: photographs are corrupted at 224 px and then brought whole to the model's
            size, small pictures of one size as they are, stored pictures of 224 px are not cropped
            again. `model`: at the size and with the crop of the model.
        overlays: frost's pictures: our `procedural` ones, or the classic `photographs` of an
            installed `imagecorruptions`.
        folder: existing corrupted images to read instead of corrupting here: ImageNet-C,
            CIFAR-10-C, CIFAR-100-C, Tiny-ImageNet-C, MNIST-C, ImageNet-C-bar, ImageNet-3DCC.
        class_space: as for `clean`.
    """
    levels, family = chosen_severities(severities), IMAGENET_C
    measured: Grids
    if folder is not None:
        stored = CorruptionSet(folder, data)
        cells, family = stored_cells(stored, corruptions, levels)
        measured = StoredGrids(data, context, cells, class_space, size, stored)
        cut = "not cropped again" if size == "published" else "as the model resizes and crops"
        recipe = f"read from {stored.description} (size={size}: {cut})"
    else:
        names = chosen_corruptions(corruptions)
        family = family_of_names(names) or family
        cells = [(name, severity) for name in names for severity in levels]
        measured = MadeGrids(data, context, cells, class_space, size, profile, overlays)
        recipe = _recipe(names, profile, overlays, data, sizing(data, model.preprocess, size))
    grid = yield from measured.of(model, context.identity, noted=True)
    known: Baseline | None
    notes = [f"corruptions: {recipe}"]
    if baseline in NAMED_BASELINES:
        known = named_baseline(baseline)
        if known is not None and data.name.lower() not in ("imagenet", "imagenet-c"):
            notes.append(
                f"mCE divides by AlexNet's errors on ImageNet, which says little about {data.name};"
                " a measured model as baseline is a fairer yardstick"
            )
    else:
        yield None  # it may be a model beside this one, whose grid is whole after this step
        yardstick = load_for(baseline, data, device=context.device)
        told = str(words_for(baseline, data) or "")
        with evaluating(yardstick):
            other = to_the_end(
                measured.of(yardstick, identity_in_use(identify(baseline), {}, told))
            )
        known = Baseline(_short(baseline), other.errors(), other.clean_error())
    yield NUMBERS
    scored = grid_scores(grid, known, seed=context.seed, family=family)
    scorer = scorer_for(model.classes, data, class_space)
    return Measurement(
        scores=scored.scores,
        convention=scored.convention,
        images=len(data) * (len(cells) + 1),
        outcomes={
            "correct": grid.clean,
            **{f"{name}:{severity}": flags for (name, severity), flags in grid.cells.items()},
        },
        notes=(*notes, *scored.notes, *scorer.notes),
        class_space=scorer.description,
    )


def _recipe(
    names: tuple[str, ...],
    profile: Profile | Literal["auto"],
    overlays: Overlays,
    data: Dataset,
    way: Sizing,
) -> str:
    """What the numbers depend on: whose constants at which size, and which frost."""
    size = way.corrupted_size(data)
    chosen = profile_for(size) if profile == "auto" else profile
    frost = f", {overlays} frost" if "frost" in names else ""
    return f"{chosen} constants {way.description(size)}{frost}"


def _short(source: str) -> str:
    return source.rstrip("/").rpartition("/")[2].removeprefix("zoo:")

"""Flip rate and top-5 distance along the sequences of ImageNet-P, made on the fly.

Of every sequence one frame is in memory at a time, for one batch of pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from stockpot.corrupt.apply import picture_seeds
from stockpot.corrupt.constants import Profile, profile_for
from stockpot.corrupt.sequences.frames import frames, is_noise
from stockpot.corrupt.sequences.steps import EXTRA, PERTURBATIONS
from stockpot.corrupt.sizes import native_size, whole_pictures
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.stream.geometry import PUBLISHED_SIDE
from stockpot.errors import BadParameterError, UnknownNameError
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement, with_interval
from stockpot.measure.perturbation.flips import Sequence
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.load import load_for
from stockpot.results.schema import Score
from stockpot.results.statistics import bootstrap_mean, never_certain
from stockpot.types import Check, ImageSize, ModelRef

Values = NDArray[np.float64]
_ROOM = 560
"""The side of the canvas around a photograph: what a scale of 0.4 brings into view of 224 px."""
_PHOTOGRAPHS = 32
"""Canvases of so many photographs are held as floats at once."""
SMALLEST = 0.001
"""A baseline that changes its answers more rarely than this is no yardstick."""


def _perturbations(value: Any) -> Any:
    chosen_perturbations(value)
    return value


def chosen_perturbations(wanted: Any) -> tuple[str, ...]:
    """Names from `benchmark` (the ten), `extra`, `all`, or names."""
    words = wanted.split(",") if isinstance(wanted, str) else wanted
    if not isinstance(words, list | tuple):
        raise BadParameterError(f"expected names of perturbations, got {wanted!r}.")
    sets = {"benchmark": PERTURBATIONS, "extra": EXTRA, "all": (*PERTURBATIONS, *EXTRA)}
    found: dict[str, None] = {}
    for word in (str(word).strip() for word in words):
        if word not in sets and word not in sets["all"]:
            raise UnknownNameError("perturbation", word, [*sets, *sets["all"]])
        found |= dict.fromkeys(sets.get(word, (word,)))
    if not found:
        raise BadParameterError("perturbations: expected at least one.")
    return tuple(found)


Perturbations = Annotated[str | tuple[str, ...], Check(_perturbations)]
"""Perturbations: `benchmark` (the ten), `extra`, `all`, or names."""


@measures.register("perturbation", paper="arXiv:1903.12261")
def perturbation(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    perturbations: Perturbations = "benchmark",
    difficulty: Literal[1, 2, 3] = 1,
    baseline: ModelRef = "none",
    profile: Profile | Literal["auto"] = "auto",
) -> Measurement:
    """How often answers change along the sequences of ImageNet-P: mFP, mFR, mT5D.

    Labels play no part. Frames of noise are compared with the clean picture, the others with the
    frame before.

    Args:
        perturbations: `benchmark` (the ten), `extra` (speckle noise, gaussian blur), `all` or
            names.
        difficulty: stronger noise, and comparisons so many frames apart elsewhere.
        baseline: what flip probabilities and distances are divided by: any model, which is then
            measured in the same way, or `none`.
        profile: whose numbers: of ImageNet-P (`imagenet`), Tiny-ImageNet-P (`tinyimagenet`),
            CIFAR-10-P (`cifar`), or `auto` by size.
    """
    names = chosen_perturbations(perturbations)
    native = native_size(data, PUBLISHED_SIDE)
    size = native or ImageSize(PUBLISHED_SIDE, PUBLISHED_SIDE)
    chosen = profile_for(size) if profile == "auto" else profile
    steady = partial(_steadiness, data, context, names, difficulty, chosen, native)
    found = steady(model)
    other = None
    if baseline != "none":
        other = steady(load_for(baseline, data, device=context.device))
    short = baseline.rstrip("/").rpartition("/")[2].removeprefix("zoo:")
    scores, left_out = _scores(found, other, short, data, context.seed)
    counted = sum(name in PERTURBATIONS for name in names)
    convention = f"mfr:{short}" + ("" if counted == len(PERTURBATIONS) else f":{counted}-of-10")
    notes = [f"sequences: {chosen} numbers at {size}, difficulty {difficulty}"]
    if left_out:
        notes.append(f"ratios leave out {', '.join(left_out)}: {short} hardly changes there")
    compared = sum(flips.shape[1] for flips in found.flips.values())
    return Measurement(
        scores=scores,
        convention=convention,
        images=len(data) * (compared + len(names)),
        outcomes={
            f"flips:{name}:{number}": column
            for name, flips in found.flips.items()
            for number, column in enumerate(flips.T, start=1)
        },
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class Steadiness:
    """Flips and distances by perturbation, pictures x comparisons."""

    flips: dict[str, NDArray[np.bool_]]
    distances: dict[str, Values]


def _steadiness(
    data: Dataset,
    context: Context,
    names: tuple[str, ...],
    difficulty: int,
    profile: Profile,
    native: ImageSize | None,
    model: Classifier,
) -> Steadiness:
    flips: dict[str, list[Tensor]] = {name: [] for name in names}
    moves: dict[str, list[Tensor]] = {name: [] for name in names}
    done, total = 0, len(data) * len(names)
    shown = native or ImageSize(PUBLISHED_SIDE, PUBLISHED_SIDE)
    with evaluating(model):
        for rows, pictures in _canvases(data, context, native):
            seeds = picture_seeds(context.seed, rows)
            for name in names:
                sequence = Sequence(noise=is_noise(name), step=difficulty)
                for frame in frames(
                    pictures, name, side=shown, seed=seeds, difficulty=difficulty, profile=profile
                ):
                    seen = frame if native else whole_pictures(frame, model.preprocess)
                    sequence.see(model(seen))
                flips[name].append(sequence.flips.cpu())
                moves[name].append(sequence.distances.cpu())
                done += len(rows)
                context.progress("perturbation", done, total)
    return Steadiness(
        {name: torch.cat(parts).numpy() for name, parts in flips.items()},
        {name: torch.cat(parts).double().numpy() for name, parts in moves.items()},
    )


def _canvases(
    data: Dataset, context: Context, native: ImageSize | None
) -> Iterator[tuple[list[int], Tensor]]:
    """Pictures with what lies around their middle; small ones as they are."""
    size = context.batch_size if native else min(context.batch_size, _PHOTOGRAPHS)
    for batch in data.batches(size, None if native else photograph):
        images = batch.images
        if not native and tuple(images.shape[2:]) != (_ROOM, _ROOM):
            pictures = images.permute(0, 2, 3, 1).contiguous().numpy()
            canvases = [np.array(photograph(Image.fromarray(one))) for one in pictures]
            images = torch.from_numpy(np.stack(canvases)).permute(0, 3, 1, 2)
        yield batch.rows.tolist(), images.to(context.device)


def photograph(image: Image.Image) -> Image.Image:
    """A photograph on its canvas: its short side 256 px, in the middle, black around it."""
    short = min(image.size)
    size = tuple(256 if one == short else int(256 * one / short) for one in image.size)
    image = image.convert("RGB").resize((size[0], size[1]), Image.Resampling.BILINEAR)
    left, top = round((image.width - _ROOM) / 2), round((image.height - _ROOM) / 2)
    return image.crop((left, top, left + _ROOM, top + _ROOM))


def _scores(
    found: Steadiness, other: Steadiness | None, baseline: str, data: Dataset, seed: int
) -> tuple[list[Score], list[str]]:
    scores: list[Score] = []
    left_out: dict[str, None] = {}
    for metric, mean, ratio, mean_ratio, unit, mine, theirs in (
        ("flip_probability", "mfp", "flip_rate", "mfr", "fraction", found.flips, "flips"),
        ("top5_distance", "mut5d", "top5_ratio", "mt5d", "score", found.distances, "distances"),
    ):
        per_image = {name: values.mean(1, dtype=np.float64) for name, values in mine.items()}
        divided: dict[str, Values] = {}
        for name, values in per_image.items():
            if other is not None:
                divisor = float(getattr(other, theirs)[name].mean())
                if divisor < SMALLEST:
                    left_out[name] = None
                else:
                    divided[name] = values / divisor

        def scored(metric: str, values: Values, unit: str, **condition: str) -> Score:
            interval = bootstrap_mean(values, seed=seed, groups=data.groups)
            value, n = float(values.mean()), len(values)
            if metric in ("flip_probability", "mfp"):
                interval = never_certain(interval, value, n, data.groups)
            return with_interval(
                metric, value, n, interval, better=False, unit=unit, condition=condition
            )

        against = {"baseline": baseline}
        for title, kept, kind, condition in (
            (mean, per_image, unit, {}),
            (mean_ratio, divided, "fraction", against),
        ):
            counted = [kept[name] for name in kept if name in PERTURBATIONS]
            if counted:
                scores.append(scored(title, np.mean(counted, axis=0), kind, **condition))
        for name, values in per_image.items():
            scores.append(scored(metric, values, unit, perturbation=name))
            if name in divided:
                told = {"perturbation": name, **against}
                scores.append(scored(ratio, divided[name], "fraction", **told))
    return scores, list(left_out)

"""`stockpot.season`: choose a soup's weights on some images and score it on the others."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from stockpot.checkpoints.folder import is_made
from stockpot.checkpoints.member_names import by_name
from stockpot.checkpoints.record import plain
from stockpot.checkpoints.seen import Seen
from stockpot.datasets.by_content.image_hashes import image_hashes
from stockpot.datasets.dataset import Dataset
from stockpot.engine import device_name, pick_device
from stockpot.errors import BadParameterError
from stockpot.lock import held_alone, lock_of
from stockpot.models.fingerprint import fingerprint_tensors
from stockpot.models.forward.arithmetic import warn_if_emulated
from stockpot.models.forward.options import chosen_forward
from stockpot.models.inputs import seen_in, seen_of
from stockpot.pool.batch_norm import Rule, Statistics
from stockpot.pool.family import Member, read_pool
from stockpot.pool.pool import Pool
from stockpot.results.provenance import provenance
from stockpot.results.schema import Score
from stockpot.score.predictions import NON_FINITE, watching
from stockpot.score.usual_space import Space, settled_space
from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context, Progress, no_progress
from stockpot.season.draws import draw
from stockpot.season.evaluate import answers, evaluate
from stockpot.season.record import (
    BnImages,
    Protocol,
    seasoning_data,
    seasoning_record,
    settled_bn,
    source_data,
)
from stockpot.season.seasoned import Seasoned, accuracy_score
from stockpot.season.shots import Shots, read_shots
from stockpot.stages import Spent, stage, timed
from stockpot.types import PrecisionChoice, check_seed


@timed()
def season(
    method: str,
    members: Sequence[Member] | Mapping[str, Member],
    data: str | Path | Dataset,
    *,
    source: str | Path | Dataset | None = None,
    out: str | Path | None = None,
    shots: int = 100,
    protocol: Protocol = "holdout",
    full_matrix: bool = False,
    seed: int = 0,
    device: str = "auto",
    batch_size: int = 256,
    command: str | None = None,
    progress: Progress = no_progress,
    bn: Rule | Literal["auto"] = "auto",
    bn_images: BnImages = "source",
    class_space: Space = "usual",
    precision: PrecisionChoice = "auto",
    **params: Any,
) -> Seasoned:
    """Choose the weights of a soup of `members` and score it on images the choice did not see.

    Args:
        method: a name from `stockpot list seasoners`.
        members: models of one family, as for `load_model`; the first is the base, and the others
            may also be state dicts. A list, or a mapping from names.
        data: the images to season for: a dataset, its name or path (its `test` split).
        source: labelled images of the members' own kind (a name means its `val` split): label-free
            methods calibrate on them, and BatchNorm statistics are estimated on them.
        out: a folder for the model, its card and its record.
        shots: how many images, drawn with the seed, the method may see.
        protocol: `holdout` scores on the images that the method did not see; `leaky` on all,
            those included, as the original paper does.
        full_matrix: also try the method's candidates on the held-out images, for study: the
            matrix then has a column for every image of the data.
        seed: the seed of the draw and of the method.
        device: where to run; `auto` is a GPU where there is one.
        batch_size: images per forward pass.
        command: the command line to write into the model's card.
        progress: called with what is under way, how much of it is done, and of how much.
        bn: BatchNorm's running statistics, by one rule for every soup, member and ensemble: `mix`
            them like weights, estimate them anew (`recompute`), or leave the first member's
            (`left`). `auto` estimates anew where there is a source, and mixes otherwise.
        bn_images: whose images `recompute` uses: the `source`, or, so that all are adapted to the
            `target`, the images that the method may see.
        class_space: among which outputs a model with more classes than the data is scored: `all`,
            the data's (`subset`), or as is `usual` for the data (the subset for ImageNet-A, -R,
            ObjectNet and cue conflict).
        precision: of forward passes: `fp32`, `tf32` (NVIDIA GPUs), `bf16`, or `auto` by device.
            Descents on weights are made in full precision, and attacks decided in it.
        params: the method's own parameters.
    """
    spent = Spent()
    entry = seasoners.get(method)
    chosen = entry.validate(params)
    if batch_size < 1 or protocol not in ("holdout", "leaky"):
        raise BadParameterError(
            "expected batch_size >= 1 and protocol holdout or leaky, "
            f"got {batch_size} and {protocol!r}."
        )
    check_seed(seed)
    rule = settled_bn(bn, bn_images, source is not None)
    place = pick_device(device)
    forward = chosen_forward(precision, False, place)
    warn_if_emulated(forward.precision, place)
    with stage("load"):
        images = seasoning_data(data)
        labelled = source_data(source) if source is not None else None
        asked = seasoning_record(
            method, members, images, source=labelled, shots=shots, protocol=protocol, seed=seed,
            batch_size=batch_size, bn=bn, bn_images=bn_images, class_space=class_space,
            precision=precision, **params,
        )  # fmt: skip
        if out:
            is_made(Path(out), asked)  # something else there is complained of before the work
        rows, others = draw(images, shots, seed)
        pool = read_pool(members, place, data=images)

    def read(part: Dataset) -> Shots:
        space = settled_space(class_space, part.name)
        return read_shots(
            part, pool.model, device=place, batch_size=batch_size, space=space, forward=forward
        )

    with stage("load"):
        known = read(labelled) if labelled else None
        seen = read(images.take(rows))
        pool.statistics, treated = _statistics(rule, known, seen)
    context = Context(seed, batch_size, known, progress)
    condition: dict[str, str] = {"protocol": protocol}
    clean = None
    with watching(pool.model) as watch:
        with stage("choose"):
            choice: Choice = entry(pool, seen, context, **chosen)
        with stage("judge"):
            judged = images.take(others) if protocol == "holdout" else images
            scored = read(judged)
            found = answers(pool, choice.weights, scored, context.told("scoring"))
            if choice.under:
                clean = accuracy_score(found.soup, scored.groups, **condition)
                found = choice.under.answers(
                    pool, choice.weights, scored, context.told("scoring under attack")
                )
                condition["threats"] = str(choice.under)
            matrix = choice.matrix
            if full_matrix and matrix is not None:
                judge = choice.under.matrix if choice.under else evaluate
                told = context.told("trying soups on all images")
                matrix = judge(pool, torch.from_numpy(matrix.weights), read(images), told)
    with stage("score"):
        model = pool.load(choice.weights)
        accuracy, together = (
            accuracy_score(flags, scored.groups, **condition)
            for flags in (found.soup, found.ensemble)
        )
        by_member = {
            name: accuracy_score(flags, scored.groups, **condition)
            for name, flags in zip(pool.members, found.members, strict=True)
        }
        parents = reduce(operator.or_, map(seen_of, by_name(members).values()), Seen())
        # Equal weights and a given alpha need no look at the images.
        looked = choice.images > 0 or rule.get("bn_images") == "target"
        used = seen_in("seasoning", images.take(rows)) if looked else Seen()
        if labelled is not None:
            used |= seen_in("seasoning", labelled)
    weights = choice.per_member(pool)
    per_tensor = _per_tensor(pool, choice.weights)
    details = {
        "command": command,
        "members": dict(zip(pool.members, weights, strict=True)),
        "tensor_weights": {k: v.tolist() for k, v in (per_tensor or {}).items()},
        "selected_on": rows.tolist(),
        "batch_norm": treated,
        "classes": scored.scorer.description,
        "precision": forward.precision,
        "scores": {
            "soup": _plain(accuracy),
            **({"soup, clean": _plain(clean)} if clean else {}),
            "output_ensemble": _plain(together),
            "members": {name: _plain(score) for name, score in by_member.items()},
        },
        "images": choice.images,
        "notes": {
            **choice.notes,
            **({NON_FINITE: watch.note} if watch.broken else {}),
            **_seen_before(parents, judged),
        },
        **spent.told(),
        "fingerprint": fingerprint_tensors(model.state_dict().items()),
    }
    versions = provenance(device_name(place)).model_dump()
    result = Seasoned(
        method=method,
        members=pool.members,
        weights=weights,
        tensor_weights=per_tensor,
        model=pool.copy().cpu(),
        accuracy=accuracy,
        member_accuracy=by_member,
        ensemble_accuracy=together,
        clean_accuracy=clean,
        selected_on=tuple(rows.tolist()),
        held_out=tuple(others.tolist()),
        matrix=matrix,
        seen=parents | used,
        record=asked.model_copy(update={"details": plain(details), "versions": versions}),
    )
    result.model.history = parents | used
    # A run that was killed right after its end has left the same; it is found again, not written.
    if out:
        with held_alone(lock_of(Path(out)), Path(out)):
            if not is_made(Path(out), asked):
                result.save(out)
    return result


def _statistics(
    rule: Mapping[str, str], known: Shots | None, seen: Shots
) -> tuple[Statistics, str]:
    """What BatchNorm's statistics become, and that in words. The one place that chooses images."""
    if rule["bn"] == "mix":
        return Statistics("mix"), "mixed like weights"
    if rule["bn"] == "left":
        return Statistics("left"), "left as the first member has them"
    asked = rule["bn_images"]
    images = known if asked == "source" and known is not None else seen
    if not len(images):
        raise BadParameterError("bn=recompute: expected images to estimate on, got none.")
    words = f"estimated anew on {len(images)} {asked} images"
    return Statistics("recompute", images.batches), words


def _seen_before(parents: Seen, judged: Dataset) -> dict[str, str]:
    """A note where the images that the soup is scored on were seen when a member was made."""
    if not parents or not len(judged):
        return {}
    marks = parents.among(image_hashes(judged.images), judged.fingerprint)
    count = int(np.any(list(marks.values()), axis=0).sum()) if marks else 0
    if not count:
        return {}
    uses = ", ".join(marks)
    return {"seen": f"{count} of {len(judged)} images scored were seen by members ({uses})"}


def _per_tensor(pool: Pool, weights: Tensor) -> dict[str, Tensor] | None:
    if weights.ndim == 1:
        return None
    return dict(zip(pool.names, pool.check(weights).T, strict=True))


def _plain(score: Score) -> dict[str, Any]:
    kept = {"metric", "value", "n", "ci_low", "ci_high", "ci_method", "condition"}
    return score.model_dump(include=kept)

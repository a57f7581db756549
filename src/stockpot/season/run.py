"""`stockpot.season`: choose a soup's weights on some images and score it on the others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from stockpot.checkpoints.folder import check_free
from stockpot.checkpoints.record import plain
from stockpot.datasets.dataset import Dataset
from stockpot.engine import device_name, pick_device
from stockpot.errors import BadParameterError
from stockpot.models.fingerprint import fingerprint_tensors
from stockpot.pool.batch_norm import Rule, Statistics
from stockpot.pool.family import Member, read_pool
from stockpot.pool.pool import Pool
from stockpot.results.provenance import provenance
from stockpot.results.schema import Score
from stockpot.score.predictions import NON_FINITE, watching
from stockpot.season import seasoners
from stockpot.season.choice import Choice, Context
from stockpot.season.evaluate import evaluate, logits_of, members_and_ensemble
from stockpot.season.record import Protocol, seasoning_data, seasoning_record, source_data
from stockpot.season.seasoned import Seasoned, accuracy_score
from stockpot.season.shots import Shots, draw, read_shots


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
    device: str = "cpu",
    batch_size: int = 256,
    command: str | None = None,
    bn: Rule = "extrapolated",
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
        device: where to run.
        batch_size: images per forward pass.
        command: the command line to write into the model's card.
        bn: BatchNorm's running statistics: `mix` them like weights, estimate them anew for every
            soup and member (`recompute`), or for soups with a negative weight (`extrapolated`).
        params: the method's own parameters.
    """
    entry = seasoners.get(method)
    chosen = entry.validate(params)
    if batch_size < 1 or protocol not in ("holdout", "leaky"):
        raise BadParameterError(
            "expected batch_size >= 1 and protocol holdout or leaky, "
            f"got {batch_size} and {protocol!r}."
        )
    if bn not in get_args(Rule):
        raise BadParameterError(f"bn: expected one of {', '.join(get_args(Rule))}, got {bn!r}.")
    if out:
        check_free(Path(out))
    place = pick_device(device)
    images = seasoning_data(data)
    labelled = source_data(source) if source is not None else None
    rows, others = draw(len(images), shots, seed)
    start = time.perf_counter()
    pool = read_pool(members, place, data=images)

    def read(part: Dataset) -> Shots:
        return read_shots(part, pool.model, device=place, batch_size=batch_size)

    known = read(labelled) if labelled else None
    seen = read(images.take(rows))
    # The one place that says which images statistics are estimated on.
    pool.statistics = Statistics(bn, (known or seen).batches)
    context = Context(seed, batch_size, known)
    with watching(pool.model) as watch:
        choice: Choice = entry(pool, seen, context, **chosen)
        scored = read(images.take(others) if protocol == "holdout" else images)
        alone, ensemble = members_and_ensemble(pool, scored)
        matrix = choice.matrix
        if full_matrix and matrix is not None:
            soups = torch.from_numpy(matrix.weights)
            matrix = evaluate(pool, soups, read(images))
        model = pool.load(choice.weights)
        correct = scored.scorer.right(logits_of(model, scored), slice(None))[:, 0]
    accuracy = accuracy_score(correct.cpu().numpy(), protocol=protocol)
    by_member = {
        name: accuracy_score(flags, protocol=protocol)
        for name, flags in zip(pool.members, alone, strict=True)
    }
    together = accuracy_score(ensemble, protocol=protocol)
    weights = choice.per_member(pool)
    per_tensor = _per_tensor(pool, choice.weights)
    asked = seasoning_record(
        method, members, images, source=labelled, shots=shots, protocol=protocol, seed=seed,
        batch_size=batch_size, bn=bn, **params,
    )  # fmt: skip
    details = {
        "command": command,
        "members": dict(zip(pool.members, weights, strict=True)),
        "tensor_weights": {k: v.tolist() for k, v in (per_tensor or {}).items()},
        "selected_on": rows.tolist(),
        "scores": {
            "soup": _plain(accuracy),
            "output_ensemble": _plain(together),
            "members": {name: _plain(score) for name, score in by_member.items()},
        },
        "images": choice.images,
        "notes": {**choice.notes, **({NON_FINITE: watch.note} if watch.broken else {})},
        "seconds": round(time.perf_counter() - start, 2),
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
        selected_on=tuple(rows.tolist()),
        held_out=tuple(others.tolist()),
        matrix=matrix,
        record=asked.model_copy(update={"details": plain(details), "versions": versions}),
    )
    if out:
        result.save(out)
    return result


def _per_tensor(pool: Pool, weights: Tensor) -> dict[str, Tensor] | None:
    if weights.ndim == 1:
        return None
    return dict(zip(pool.names, pool.check(weights).T, strict=True))


def _plain(score: Score) -> dict[str, Any]:
    return score.model_dump(include={"value", "n", "ci_low", "ci_high", "ci_method"})

"""The record of a seasoning: what would be made, told without making it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from stockpot.checkpoints.member_names import by_name
from stockpot.checkpoints.record import MEMBER, Record, plain
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadParameterError
from stockpot.models.inputs import data_inputs, model_input, named_models
from stockpot.pool.batch_norm import Rule
from stockpot.pool.family import Member
from stockpot.score.usual_space import Space, settled_space
from stockpot.season import seasoners
from stockpot.types import PrecisionChoice

Protocol = Literal["holdout", "leaky"]
BnImages = Literal["source", "target"]


def seasoning_record(
    method: str,
    members: Sequence[Member] | Mapping[str, Member],
    data: str | Path | Dataset,
    *,
    source: str | Path | Dataset | None = None,
    shots: int = 100,
    protocol: Protocol = "holdout",
    seed: int = 0,
    batch_size: int = 256,
    bn: Rule | Literal["auto"] = "auto",
    bn_images: BnImages = "source",
    class_space: Space = "usual",
    precision: PrecisionChoice = "auto",
    **params: Any,
) -> Record:
    """The record that `stockpot.season` with these arguments would write; nothing is chosen."""
    entry = seasoners.get(method)
    parameters, models = named_models(entry.validate(params), entry.references)
    inputs = [model_input(MEMBER, one, name) for name, one in by_name(members).items()]
    images = seasoning_data(data)
    inputs += data_inputs("data", images)
    if source is not None:
        inputs += data_inputs("source", source_data(source))
    return Record(
        verb="season",
        method=method,
        # Steps of a descent go over batches, and BatchNorm statistics are means over them.
        parameters=plain(
            parameters
            | {"shots": shots, "protocol": protocol, "batch_size": batch_size}
            | settled_bn(bn, bn_images, source is not None)
            | {"class_space": settled_space(class_space, images.name)}
            # What the device decides is no part of the question; `details` tells it.
            | ({"precision": precision} if precision != "auto" else {})
        ),
        seed=seed,
        inputs=[*inputs, *models],
    )


def settled_bn(
    bn: Rule | Literal["auto"], images: BnImages, sourced: bool
) -> dict[str, Rule | BnImages]:
    """The one rule for BatchNorm's statistics, and whose images it is carried out on.

    Args:
        bn: the rule; `auto` estimates anew where there are images to do it on, and else mixes.
        images: whose images may be used; the target's only when asked for.
        sourced: whether there are source images.
    """
    for name, given, known in (
        ("bn", bn, ("auto", *get_args(Rule))),
        ("bn_images", images, get_args(BnImages)),
    ):
        if given not in known:
            raise BadParameterError(f"{name}: expected one of {', '.join(known)}, got {given!r}.")
    at_hand = sourced or images == "target"
    rule: Rule = ("recompute" if at_hand else "mix") if bn == "auto" else bn
    if rule != "recompute":
        return {"bn": rule}
    if not at_hand:
        raise BadParameterError(
            "bn=recompute: expected source images to estimate statistics on, got none.",
            hint="Give source=DATASET, or bn_images=target to adapt to the images seen.",
        )
    return {"bn": rule, "bn_images": images}


def seasoning_data(data: str | Path | Dataset) -> Dataset:
    """A name means the test split."""
    return data if isinstance(data, Dataset) else load_dataset(str(data))


def source_data(source: str | Path | Dataset) -> Dataset:
    """A name means the validation split."""
    return source if isinstance(source, Dataset) else load_dataset(str(source), split="val")

"""The record of a seasoning: what would be made, told without making it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from stockpot.checkpoints.member_names import by_name
from stockpot.checkpoints.record import MEMBER, Record, plain
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.models.inputs import data_inputs, model_input, named_models
from stockpot.pool.batch_norm import Rule
from stockpot.pool.family import Member
from stockpot.season import seasoners

Protocol = Literal["holdout", "leaky"]


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
    bn: Rule = "extrapolated",
    **params: Any,
) -> Record:
    """The record that `stockpot.season` with these arguments would write; nothing is chosen."""
    entry = seasoners.get(method)
    parameters, models = named_models(entry.validate(params), entry.references)
    inputs = [model_input(MEMBER, one, name) for name, one in by_name(members).items()]
    inputs += data_inputs("data", seasoning_data(data))
    if source is not None:
        inputs += data_inputs("source", source_data(source))
    return Record(
        verb="season",
        method=method,
        # Steps of a descent go over batches, and BatchNorm statistics are means over them.
        parameters=plain(
            parameters | {"shots": shots, "protocol": protocol, "batch_size": batch_size, "bn": bn}
        ),
        seed=seed,
        inputs=[*inputs, *models],
    )


def seasoning_data(data: str | Path | Dataset) -> Dataset:
    """A name means the test split."""
    return data if isinstance(data, Dataset) else load_dataset(str(data))


def source_data(source: str | Path | Dataset) -> Dataset:
    """A name means the validation split."""
    return source if isinstance(source, Dataset) else load_dataset(str(source), split="val")

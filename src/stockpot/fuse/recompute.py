"""`bn=recompute`: estimate the BatchNorm statistics of fused weights anew, from images.

It is done while the folder is still being written, so that a model appears with its statistics or
not at all. Only the statistics are exchanged: names, shards and dtypes stay as they were fused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from stockpot.checkpoints.layouts import is_batch_norm_statistic, plain_name
from stockpot.checkpoints.locate import locate
from stockpot.checkpoints.open import open_checkpoint
from stockpot.datasets.dataset import Dataset
from stockpot.engine import pick_device
from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.fuse.job import Job
from stockpot.fuse.record import request_data
from stockpot.fuse.request import Request
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_for
from stockpot.pool.batch_norm import recompute_batch_norm

BATCH = 256
"""The statistics are means over batches of so many images."""


def check_recompute(request: Request, job: Job) -> None:
    """Raise where statistics cannot be estimated, before anything is fused."""
    if request.tasks is None:
        raise BadParameterError(
            "bn=recompute: expected images to estimate BatchNorm statistics from, got none.",
            hint="Give tasks, or on the command line --data (its train split is used).",
        )
    if job.module:
        raise BadParameterError(
            f"{request.method}: bn=recompute needs plain weights, and this makes a module."
        )
    template = job.stream.alignment.template
    if template.folder is None or not (template.folder / "config.json").is_file():
        raise BadParameterError(
            "bn=recompute runs the fused model: expected members in folders with a config.json, "
            f"got {template.label}."
        )


def recompute_folders(
    request: Request, job: Job, folders: Mapping[str, Path]
) -> dict[str, dict[str, object]]:
    """Estimate the statistics of every model that a request made.

    A model that is for one member learns from that member's data, where each has its own.

    Returns:
        Model -> how many layers there were and what they saw.
    """
    data: list[Dataset] = request_data(request)
    details: dict[str, dict[str, object]] = {}
    for label in job.of:
        models = job.models(label)
        for index, model in enumerate(models):
            own = [data[index]] if job.switches and len(data) == len(models) else data
            layers = _recompute(folders[model], own, str(pick_device(request.options.device)))
            seen = {"layers": layers, "data": [str(one) for one in own]}
            details[model] = {"batch_norm": seen}
    return details


def _recompute(folder: Path, data: Sequence[Dataset], device: str) -> int:
    model = load_for(folder, data[0], device=device)
    layers = recompute_batch_norm(model, chain.from_iterable(_batches(one, model) for one in data))
    if layers:
        _exchange(folder, _saved_statistics(model, folder))
    return layers


def _batches(data: Dataset, model: Classifier) -> Iterator[Tensor]:
    for batch in data.batches(BATCH, model.preprocess.fit):
        yield batch.images.to(model.device)


def _saved_statistics(model: Classifier, folder: Path) -> dict[str, Tensor]:
    """The statistics under the names that files of this architecture have."""
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as place:
        source = open_checkpoint(model.cpu().save(place))
        return {
            plain_name(name): source.read(name).clone()
            for name in source.tensors()
            if is_batch_norm_statistic(name)
        }


def _exchange(folder: Path, statistics: Mapping[str, Tensor]) -> None:
    from safetensors.torch import load_file, save_file

    found = 0
    for path in locate(folder).files:
        weights = load_file(path)
        names = [name for name in weights if is_batch_norm_statistic(name)]
        for name in names:
            value = statistics.get(plain_name(name))
            if value is None:
                raise BadCheckpointError(
                    f"{path}: {name} has no place in the model that is loaded."
                )
            weights[name] = value.to(weights[name].dtype)
        if names:
            save_file(weights, path, metadata={"format": "pt"})
        found += len(names)
    if not found:
        raise BadCheckpointError(f"{folder}: holds no BatchNorm statistics to estimate anew.")

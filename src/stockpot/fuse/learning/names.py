"""Which tensor of a loaded model each tensor of a file became.

Loaders rename: transformers 5 reads `vit.encoder.layer.0...` into `vit.layers.0...`. Names that are
equal without their wrappers pair at once. Otherwise a copy of the checkpoint is made in which
every tensor holds its own number, and the numbers are read off the model that is loaded from it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from stockpot.checkpoints.folder import copy_companions
from stockpot.checkpoints.layouts import plain_name
from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.errors import BadCheckpointError
from stockpot.models.classifier import Classifier


def tensor_places(
    names: Sequence[str],
    model: nn.Module,
    template: Source,
    infos: Mapping[str, TensorInfo],
    load: Callable[[Path], Classifier],
) -> dict[str, str]:
    """For each name of a checkpoint the name in `model.state_dict()`.

    Args:
        names: the tensors to find.
        model: the loaded classifier.
        template: the checkpoint that has these names.
        infos: every tensor of that checkpoint.
        load: loads a folder of the template's kind.
    """
    own = {bare(name): name for name in model.state_dict()}
    found = {name: own[bare(name)] for name in names if bare(name) in own}
    if len(found) < len(names) and template.folder is not None:
        found = _numbered(infos, template.folder, load)
    missing = [name for name in names if name not in found]
    if missing:
        raise BadCheckpointError(
            f"{template.label}: {len(missing)} tensors have no place in the loaded model, among "
            f"them {missing[0]}.",
            hint="Give the members and the base as folders of one kind.",
        )
    return {name: found[name] for name in names}


def bare(name: str) -> str:
    """The name without the wrappers of programs and of a classifier."""
    return plain_name(name.removeprefix("network."))


def _numbered(
    infos: Mapping[str, TensorInfo], folder: Path, load: Callable[[Path], Classifier]
) -> dict[str, str]:
    from safetensors.torch import save_file

    floats = [name for name, info in infos.items() if info.dtype.is_floating_point]
    with tempfile.TemporaryDirectory(prefix="stockpot-") as work:
        copy = Path(work)
        copy_companions(folder, copy, dtype="float32")
        tensors = {
            name: torch.zeros(info.shape, dtype=torch.int64)
            for name, info in infos.items()
            if name not in floats
        }
        tensors |= {
            name: torch.full(infos[name].shape, float(number))
            for number, name in enumerate(floats, start=1)
        }
        save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
        state = load(copy).state_dict()
    found = {}
    for place, value in state.items():
        if not value.is_floating_point() or not value.numel():
            continue
        number = float(value.reshape(-1)[0])
        if number.is_integer() and 1 <= number <= len(floats):
            name = floats[int(number) - 1]
            if value.shape == infos[name].shape and bool((value == number).all()):
                found[name] = place
    return found

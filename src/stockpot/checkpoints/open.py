"""Open anything that holds weights as a `Source`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from stockpot.checkpoints.adapter import AdapterSource
from stockpot.checkpoints.float8 import EIGHT_BITS, Float8Source
from stockpot.checkpoints.locate import Location, base_of_adapter, locate
from stockpot.checkpoints.packages import open_package
from stockpot.checkpoints.safetensors_file import SafetensorsSource
from stockpot.checkpoints.small import SmallSource
from stockpot.checkpoints.source import Source
from stockpot.checkpoints.state_dict import StateDictSource, open_torch_files
from stockpot.errors import BadCheckpointError
from stockpot.foreign import reading

Spec = str | Path | Location | Mapping[str, Tensor] | Source


def open_checkpoint(spec: Spec, *, label: str = "", base: Source | None = None) -> Source:
    """Open a folder, file, hub id or state dict; nothing but headers is read.

    Args:
        spec: what to open.
        label: how messages call it; by default what was given.
        base: the model under a LoRA adapter or a small model, when its own config should not
            choose it.
    """
    if isinstance(spec, Mapping):
        return _wide(StateDictSource(spec, label=label or "state dict"))
    if isinstance(spec, str | Path):
        spec = locate(spec)
    if not isinstance(spec, Location):
        return _wide(spec)
    label = label or spec.label
    if spec.format == "adapter":
        return _open_adapter(spec, label, base)
    if spec.format == "small" and spec.folder is not None:
        under = open_checkpoint(base_of_adapter(spec)) if base is None else base
        kept = SafetensorsSource(spec.files, label=label, folder=spec.folder)
        with reading(label, BadCheckpointError):
            return SmallSource(under, kept, dict(spec.config), label=label, folder=spec.folder)
    if spec.format == "timm" or spec.format == "open_clip":
        return open_package(spec.format, dict(spec.config)["name"], label=label)
    return _wide(_opener(spec)(spec.files, label=label, folder=spec.folder))


def _wide(source: Source) -> Source:
    """The source itself, or one that gives its FP8 tensors in a wider dtype."""
    eight = any(info.dtype in EIGHT_BITS for info in source.tensors().values())
    return Float8Source(source) if eight else source


def read_tensors(path: Path | Location) -> dict[str, Tensor]:
    """All tensors of a file or folder by name."""
    source = open_checkpoint(path)
    return {name: source.read(name) for name in source.tensors()}


def copied_tensors(source: Source, names: Iterable[str]) -> dict[str, Tensor]:
    """Tensors that stay as they are whatever becomes of the file."""
    if isinstance(source, SafetensorsSource):
        return source.copies(names)
    return {name: source.read(name).clone() for name in names}


def _open_adapter(location: Location, label: str, base: Source | None) -> Source:
    config: dict[str, Any] = dict(location.config)
    if base is None:
        base = open_checkpoint(base_of_adapter(location))
    adapter = _opener(location)(location.files, label=label, folder=location.folder)
    return AdapterSource(base, adapter, config, label=label)


def _opener(location: Location) -> Callable[..., Source]:
    safe = location.files[0].suffix == ".safetensors"
    return SafetensorsSource if safe else open_torch_files

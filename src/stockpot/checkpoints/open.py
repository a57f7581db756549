"""Open anything that holds weights as a `Source`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from stockpot.checkpoints.adapter import AdapterSource
from stockpot.checkpoints.locate import Location, base_of_adapter, locate
from stockpot.checkpoints.safetensors_file import SafetensorsSource
from stockpot.checkpoints.source import Source
from stockpot.checkpoints.state_dict import StateDictSource, open_torch_files

Spec = str | Path | Location | Mapping[str, Tensor] | Source


def open_checkpoint(spec: Spec, *, label: str = "", base: Source | None = None) -> Source:
    """Open a folder, file, hub id or state dict; nothing but headers is read.

    Args:
        spec: what to open.
        label: how messages call it; by default what was given.
        base: the model under a LoRA adapter, when the adapter's own config should not choose it.
    """
    if isinstance(spec, Mapping):
        return StateDictSource(spec, label=label or "state dict")
    if isinstance(spec, str | Path):
        spec = locate(spec)
    if not isinstance(spec, Location):
        return spec
    label = label or spec.label
    if spec.format == "safetensors":
        return SafetensorsSource(spec.files, label=label, folder=spec.folder)
    if spec.format == "torch":
        return open_torch_files(spec.files, label=label, folder=spec.folder)
    return _open_adapter(spec, label, base)


def read_tensors(path: Path | Location) -> dict[str, Tensor]:
    """All tensors of a file or folder by name."""
    source = open_checkpoint(path)
    return {name: source.read(name) for name in source.tensors()}


def _open_adapter(location: Location, label: str, base: Source | None) -> Source:
    config: dict[str, Any] = dict(location.config)
    if base is None:
        base = open_checkpoint(base_of_adapter(location))
    if location.files[0].suffix == ".safetensors":
        adapter: Source = SafetensorsSource(location.files, label=label, folder=location.folder)
    else:
        adapter = open_torch_files(location.files, label=label, folder=location.folder)
    return AdapterSource(base, adapter, config, label=label)

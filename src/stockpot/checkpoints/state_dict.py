"""Weights that are already in memory, or that torch mapped from a `.bin` or `.pt` file."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stockpot.checkpoints.pickles.weights import WRAPPERS
from stockpot.checkpoints.source import TensorInfo
from stockpot.errors import BadCheckpointError


class StateDictSource:
    """A mapping from names to tensors."""

    def __init__(
        self,
        state: Mapping[str, Tensor],
        *,
        label: str = "state dict",
        folder: Path | None = None,
        files: tuple[Path, ...] = (),
    ) -> None:
        wrong = [name for name, value in state.items() if not isinstance(value, Tensor)]
        if wrong:
            kind = type(state[wrong[0]]).__name__
            raise BadCheckpointError(f"{label}: expected only tensors, {wrong[0]!r} is a {kind}.")
        self.label = label
        self.folder = folder
        self.files = files
        self.state = {name: value.detach() for name, value in state.items()}
        self.tied = _shared(self.state)

    def tensors(self) -> Mapping[str, TensorInfo]:
        return {
            name: TensorInfo(tuple(value.shape), value.dtype) for name, value in self.state.items()
        }

    def read(self, name: str) -> Tensor:
        return self.state[name]

    def stretch(self, name: str, start: int, stop: int) -> Tensor:
        return self.read(name).reshape(-1)[start:stop]

    def prefetch(self, name: str, start: int, stop: int) -> None:
        """Nothing to do: the values are in memory or mapped."""


def open_torch_files(
    files: tuple[Path, ...], *, label: str, folder: Path | None
) -> StateDictSource:
    """Open `.bin`/`.pt` files as data: no code in them is run, and tensors stay on disk."""
    state: dict[str, Tensor] = {}
    for path in files:
        state.update(_load(path))
    return StateDictSource(state, label=label, folder=folder, files=files)


def read_torch_file(path: Path, *, mapped: bool) -> Any:
    """What a file of `torch.save` holds, as data: no code in it is run.

    Args:
        path: the file.
        mapped: leave tensors on disk until they are looked at; the file must stay as it is.
    """
    try:
        return _torch_load(path, mapped)
    except pickle.UnpicklingError:
        raise BadCheckpointError(
            f"{path}: holds Python objects, not only tensors, and is not loaded.",
            hint=f"Take the weights out without running any of it: stockpot convert {path} -o "
            f"{path.with_suffix('.safetensors').name}",
        ) from None
    except Exception as problem:  # a spoilt file can break the reader anywhere
        reason = str(problem).partition("\n")[0]
        raise BadCheckpointError(f"{path}: not a readable torch file: {reason}") from None


def _load(path: Path) -> dict[str, Tensor]:
    content = read_torch_file(path, mapped=True)
    while isinstance(content, Mapping) and not _is_state_dict(content):
        inner = next(
            (content[key] for key in WRAPPERS if isinstance(content.get(key), Mapping)), None
        )
        if inner is None:
            keys = ", ".join(map(repr, list(content)[:6]))
            raise BadCheckpointError(f"{path}: expected a state dict, found the keys {keys}.")
        content = inner
    if not isinstance(content, Mapping):
        kind = type(content).__name__
        raise BadCheckpointError(f"{path}: expected a state dict, found a {kind}.")
    return dict(content)


def _torch_load(path: Path, mapped: bool) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except RuntimeError as problem:
        if "mmap" not in str(problem) or not mapped:
            raise
        # Files of torch 1.5 and older have a layout that cannot be mapped.
        return torch.load(path, map_location="cpu", weights_only=True)


def _is_state_dict(content: Mapping[Any, Any]) -> bool:
    return bool(content) and all(isinstance(value, Tensor) for value in content.values())


def _shared(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Names whose tensor is the same piece of memory as an earlier one."""
    first: dict[tuple[int, int, tuple[int, ...], tuple[int, ...]], str] = {}
    tied = {}
    for name, value in state.items():
        if not value.numel() or value.device.type == "meta":
            continue
        storage = value.untyped_storage().data_ptr()
        place = (storage, int(value.storage_offset()), tuple(value.shape), value.stride())
        if place in first:
            tied[name] = first[place]
        else:
            first[place] = name
    return tied

"""Where fused tensors go: into memory, or into folders of safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from stockpot.checkpoints.source import TensorInfo
from stockpot.checkpoints.write import ShardWriter


class Sink(Protocol):
    """Takes stretches of tensors of one or more models, from any thread, in any order."""

    def write(self, model: str, name: str, values: Tensor, start: int) -> None:
        """Take a flat stretch of a tensor from element `start` on."""
        ...


class MemorySink:
    """Models as state dicts."""

    def __init__(self, infos: Mapping[str, Mapping[str, TensorInfo]]) -> None:
        self.weights = {
            model: {name: torch.empty(info.shape, dtype=info.dtype) for name, info in own.items()}
            for model, own in infos.items()
        }

    def write(self, model: str, name: str, values: Tensor, start: int) -> None:
        flat = self.weights[model][name].view(-1)
        flat[start : start + values.numel()] = values.reshape(-1)


class FolderSink:
    """Models as folders of safetensors."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        infos: Mapping[str, Mapping[str, TensorInfo]],
        max_shard: int,
    ) -> None:
        self._writers: dict[str, ShardWriter] = {}
        try:
            for model, folder in folders.items():
                self._writers[model] = ShardWriter(folder, infos[model], max_shard=max_shard)
        except BaseException:
            self.close()
            raise

    def write(self, model: str, name: str, values: Tensor, start: int) -> None:
        self._writers[model].write(name, values, start=start)

    def close(self) -> None:
        """Close all files."""
        for writer in self._writers.values():
            writer.close()

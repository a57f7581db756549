"""A LoRA adapter applied to its base: W = W0 + (alpha / r) B A (Hu et al., arXiv:2106.09685).

Reads as if the adapted model had been saved: the names are the base's, and only the adapted
tensors differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.errors import BadCheckpointError

_PREFIX = "base_model.model."
_UNSUPPORTED = ("use_dora", "lora_bias", "megatron_config", "alora_invocation_tokens")


class AdapterSource:
    """A base checkpoint with a LoRA adapter merged in, computed tensor by tensor."""

    def __init__(
        self, base: Source, adapter: Source, config: Mapping[str, Any], *, label: str
    ) -> None:
        kind = config.get("peft_type", "LORA")
        unsupported = [key for key in _UNSUPPORTED if config.get(key)]
        if kind != "LORA" or unsupported:
            what = unsupported[0] if unsupported else f"peft_type {kind}"
            raise BadCheckpointError(f"{label}: only plain LoRA can be applied, not {what}.")
        self.label = label
        self.folder: Path | None = base.folder
        self.files = (*base.files, *adapter.files)
        self.tied = base.tied
        self._base = base
        self._adapter = adapter
        self._config = config
        self._pairs, self._whole = self._match()

    def _match(self) -> tuple[dict[str, str], dict[str, str]]:
        names = self._base.tensors()
        pairs: dict[str, str] = {}
        whole: dict[str, str] = {}
        unknown = []
        for key in self._adapter.tensors():
            plain = key.removeprefix(_PREFIX)
            if plain.endswith(".lora_A.weight"):
                target = _target(plain.removesuffix(".lora_A.weight") + ".weight", names)
                place = pairs
            elif plain.endswith(".lora_B.weight"):
                continue
            else:
                # PEFT's `modules_to_save`: tensors replaced as a whole, such as a new head.
                target = _target(plain.replace(".modules_to_save", ""), names)
                place = whole
            if target is None:
                unknown.append(plain)
            else:
                place[target] = key
        if unknown:
            raise BadCheckpointError(
                f"{self.label}: {len(unknown)} adapter tensors have no place in "
                f"{self._base.label}, the first is {unknown[0]!r}.",
                hint="Give the base that the adapter was trained on.",
            )
        return pairs, whole

    def tensors(self) -> Mapping[str, TensorInfo]:
        infos = dict(self._base.tensors())
        saved = self._adapter.tensors()
        infos.update({name: saved[key] for name, key in self._whole.items()})
        return infos

    def read(self, name: str) -> Tensor:
        if key := self._whole.get(name):
            return self._adapter.read(key)
        values = self._base.read(name)
        key = self._pairs.get(name)
        if key is None:
            return values
        down = self._adapter.read(key).float()
        up = self._adapter.read(key.replace(".lora_A.", ".lora_B.")).float()
        change = (up.flatten(1) @ down.flatten(1)) * self._scale(name, down.shape[0])
        if self._config.get("fan_in_fan_out"):
            change = change.T
        return (values.float() + change.reshape(values.shape)).to(values.dtype)

    def prefetch(self, name: str) -> None:
        self._base.prefetch(name)

    def _scale(self, name: str, rank: int) -> float:
        module = name.removesuffix(".weight")
        alpha = _per_module(self._config.get("alpha_pattern"), module)
        if alpha is None:
            alpha = self._config.get("lora_alpha", rank)
        return float(alpha) / (math.sqrt(rank) if self._config.get("use_rslora") else rank)


def _target(name: str, names: Mapping[str, TensorInfo]) -> str | None:
    if name in names:
        return name
    # A vision tower may be saved with or without the name of its wrapper in front.
    longer = [known for known in names if known.endswith(f".{name}")]
    shorter = [known for known in names if name.endswith(f".{known}")]
    found = [*longer, *shorter]
    return found[0] if len(found) == 1 else None


def _per_module(pattern: Mapping[str, Any] | None, module: str) -> Any:
    for key, value in (pattern or {}).items():
        if module == key or module.endswith(f".{key}"):
            return value
    return None

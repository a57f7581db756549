"""A LoRA adapter applied to its base: W = W0 + s B A (Hu et al., arXiv:2106.09685).

The factor s is alpha / r, or alpha / sqrt(r) for rsLoRA (arXiv:2312.03732). DoRA (arXiv:2402.09353)
gives every row of W the length that the adapter has learned. Files, names and patterns are those
of peft. It reads as if the adapted model had been saved: the names are the base's, and only the
adapted tensors differ.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from stockpot.checkpoints.layouts import by_plain_name, plain_name
from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.errors import BadCheckpointError

PREFIX = "base_model.model."
_UNSUPPORTED = (
    "megatron_config", "alora_invocation_tokens", "use_qalora", "use_bdlora", "kasa_config",
    "monteclora_config", "layer_replication", "trainable_token_indices", "target_parameters",
)  # fmt: skip
_PART = re.compile(
    r"\.lora_(?:(embedding_)?([AB])(?:\.(weight|bias))?|(magnitude_vector)(?:\.weight)?)$"
)
"""The end of a name in an adapter: a factor, the bias of one, or DoRA's lengths."""


@dataclass(frozen=True)
class _Pair:
    """The names of an adapter's tensors for one tensor of the base."""

    module: str
    down: str
    up: str
    lengths: str | None
    embedding: bool


class AdapterSource:
    """A base checkpoint with a LoRA adapter merged in, computed tensor by tensor."""

    def __init__(
        self, base: Source, adapter: Source, config: Mapping[str, Any], *, label: str
    ) -> None:
        kind = config.get("peft_type", "LORA")
        unsupported = [key for key in _UNSUPPORTED if config.get(key)]
        if kind != "LORA" or unsupported:
            what = unsupported[0] if unsupported else f"peft_type {kind}"
            raise BadCheckpointError(f"{label}: only LoRA and DoRA can be applied, not {what}.")
        self.label = label
        self.folder: Path | None = base.folder
        self.files = (*base.files, *adapter.files)
        self.tied = base.tied
        # The base's place decides nothing; its content is known by its files.
        deciding = {k: v for k, v in config.items() if k != "base_model_name_or_path"}
        self.settings = json.dumps(deciding, sort_keys=True, default=str)
        self._base = base
        self._adapter = adapter
        self._config = config
        self._pairs: dict[str, _Pair] = {}
        self._biases: dict[str, tuple[str, _Pair]] = {}
        self._whole: dict[str, str] = {}
        self._match()

    def _match(self) -> None:
        names = self._base.tensors()
        plain = by_plain_name(names)
        saved = self._adapter.tensors()
        unknown = []
        for key in saved:
            own = key.removeprefix(PREFIX)
            part = _PART.search(own)
            if part is None:
                # Tensors replaced as a whole: a new head (`modules_to_save`), a trained bias.
                own = own.replace(".modules_to_save", "").replace(".base_layer.", ".")
                target = _target(own, names, plain)
                if target is not None:
                    self._whole[target] = key
            else:
                module = own[: part.start()]
                target = _target(f"{module}.weight", names, plain)
                if target is not None and part[2] == "A":
                    start = key[: -len(own)] + module if len(own) < len(key) else module
                    ending = f".lora_{part[1] or ''}A"
                    up = key.replace(ending, ending[:-1] + "B")
                    lengths = [f"{start}.lora_magnitude_vector{end}" for end in ("", ".weight")]
                    length = next((name for name in lengths if name in saved), None)
                    pair = _Pair(module, key, up, length, part[1] is not None)
                    if up not in saved:
                        unknown.append(f"{own} without its other factor")
                    self._pairs[target] = pair
                    bias = f"{start}.lora_B.bias"
                    if bias in saved and target.removesuffix("weight") + "bias" in names:
                        self._biases[target.removesuffix("weight") + "bias"] = (bias, pair)
            if target is None:
                unknown.append(own)
        if unknown:
            raise BadCheckpointError(
                f"{self.label}: {len(unknown)} adapter tensors have no place in "
                f"{self._base.label}, the first is {unknown[0]!r}.",
                hint="Give the base that the adapter was trained on.",
            )

    def tensors(self) -> Mapping[str, TensorInfo]:
        infos = dict(self._base.tensors())
        saved = self._adapter.tensors()
        infos.update({name: saved[key] for name, key in self._whole.items()})
        return infos

    def read(self, name: str) -> Tensor:
        if key := self._whole.get(name):
            return self._adapter.read(key)
        values = self._base.read(name)
        if name in self._biases:
            bias, pair = self._biases[name]
            return (values.float() + self._scale(pair) * self._adapter.read(bias).float()).to(
                values.dtype
            )
        if name in self._pairs:
            return self._adapted(values, self._pairs[name]).to(values.dtype)
        return values

    def stretch(self, name: str, start: int, stop: int) -> Tensor:
        if name in self._whole or name in self._biases or name in self._pairs:
            return self.read(name).reshape(-1)[start:stop]
        return self._base.stretch(name, start, stop)

    def prefetch(self, name: str, start: int, stop: int) -> None:
        if name not in self._whole:
            self._base.prefetch(name, start, stop)

    def factors(self, name: str, base: Source | None) -> tuple[Tensor, Tensor] | None:
        """The change of a matrix of this base as a product; none where it is not kept as one."""
        shape = self._base.tensors()[name].shape
        if base is not self._base or name in self._whole or len(shape) != 2:
            return None
        pair = self._pairs.get(name)
        if pair is None:
            like = self._base.read(name)
            return like.new_empty(shape[0], 0), like.new_empty(0, shape[1])
        if pair.lengths is not None or self._config.get("use_dora"):
            return None
        down, up = (self._adapter.read(key).float().flatten(1) for key in (pair.down, pair.up))
        up = up * self._scale(pair)
        turned = pair.embedding or bool(self._config.get("fan_in_fan_out"))
        return (down.T, up.T) if turned else (up, down)

    def _adapted(self, values: Tensor, pair: _Pair) -> Tensor:
        down, up = (self._adapter.read(key).float() for key in (pair.down, pair.up))
        change = (up.flatten(1) @ down.flatten(1)) * self._scale(pair)
        turned = bool(self._config.get("fan_in_fan_out"))
        if pair.embedding or turned:
            change = change.T
        merged = values.float() + change.reshape(values.shape)
        if pair.lengths is None:
            if self._config.get("use_dora"):
                raise BadCheckpointError(
                    f"{self.label}: use_dora, but {pair.module} has no lora_magnitude_vector."
                )
            return merged
        if pair.embedding:
            raise BadCheckpointError(f"{self.label}: DoRA of an embedding cannot be applied.")
        rows = merged.T if turned else merged
        wanted = self._adapter.read(pair.lengths).float().reshape(-1)
        found = rows.flatten(1).norm(dim=1)
        scaled: Tensor = rows * (wanted / found).view(-1, *[1] * (rows.ndim - 1))
        return scaled.T if turned else scaled

    def _scale(self, pair: _Pair) -> float:
        rank = self._adapter.tensors()[pair.down].shape[0]
        alpha = _per_module(self._config.get("alpha_pattern"), pair.module)
        if alpha is None:
            alpha = self._config.get("lora_alpha", rank)
        return float(alpha) / (math.sqrt(rank) if self._config.get("use_rslora") else rank)


def _target(name: str, names: Mapping[str, TensorInfo], plain: Mapping[str, str]) -> str | None:
    """The base's name for an adapter's: transformers 4 and 5 and wrappers differ in prefixes."""
    if name in names:
        return name
    if found := plain.get(plain_name(name)):
        return found
    # A tower may be saved with or without the name of another wrapper in front.
    longer = [known for known in names if known.endswith(f".{name}")]
    shorter = [known for known in names if name.endswith(f".{known}")]
    near = [*longer, *shorter]
    return near[0] if len(near) == 1 else None


def _per_module(pattern: Mapping[str, Any] | None, module: str) -> Any:
    """peft's rule: a key is a regular expression for the whole name, or for its end after a dot."""
    for key, value in (pattern or {}).items():
        if re.match(rf"(.*\.)?({key})$", module):
            return value
    return None

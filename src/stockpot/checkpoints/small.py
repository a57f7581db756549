"""Models kept as a small change of a base: one bit for each weight, or a seed and a shared tensor.

    MEMBER/small_config.json       the kind, the base, names and dtypes of all tensors, its numbers
    MEMBER/small.safetensors       `NAME.bits` and `NAME.scale`, or `NAME` where it is kept whole
    shared/model.safetensors       what all members of one superposition have in common

What a folder says nothing of is the base's. `bits`: base + scale where a bit is set, base - scale
elsewhere (BitDelta). `superposed`: base + scale * signs * shared, the signs drawn from a seed, the
shared tensor perhaps that of another layer (RanDeS). Both are read as ordinary checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from stockpot.checkpoints.layouts import by_plain_name, plain_name
from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.errors import BadCheckpointError

CONFIG, FILE, SHARED = "small_config.json", "small.safetensors", "shared"
BITS, SCALE = ".bits", ".scale"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def pack_bits(signs: Tensor) -> Tensor:
    """Truth values as bytes, the first in the lowest bit."""
    flat = signs.reshape(-1).cpu().numpy()
    return torch.from_numpy(np.packbits(flat, bitorder="little"))


def from_bits(base: Tensor, bits: Tensor, scale: Tensor) -> Tensor:
    """The base with the scale added where a bit is set, and taken away elsewhere."""
    flat = np.unpackbits(bits.cpu().numpy(), count=base.numel(), bitorder="little")
    up = torch.from_numpy(flat).to(base.device).view(base.shape).bool()
    size = scale.to(base)
    return base + torch.where(up, size, -size)


def column_signs(width: int, seed: int, name: str | None = None) -> Tensor:
    """Plus or minus one for each column, drawn as FusionBench draws them.

    Args:
        width: how many columns.
        seed: of the member.
        name: the tensor's, where each has signs of its own.
    """
    own = 0 if name is None else crc32(name.encode()) % 1_000_000
    drawn = np.random.RandomState((seed + own) % 2**32).binomial(p=0.5, n=1, size=(1, width))
    return torch.from_numpy(drawn.astype(np.float32) * 2 - 1)


def shuffled(infos: Mapping[str, TensorInfo], seed: int) -> dict[str, str]:
    """Under which layer's name each tensor is kept: equal tensors of layers change places.

    The numbers of all layers that have a tensor of one name and shape are shuffled as FusionBench
    does it.
    """
    groups: dict[tuple[str, TensorInfo], list[str]] = {}
    for name, info in infos.items():
        if match := _NUMBER.search(name):
            groups.setdefault((name[: match.start()] + name[match.end() :], info), []).append(name)
    found: dict[str, str] = {}
    for names in groups.values():
        order = list(range(len(names)))
        Random(seed).shuffle(order)
        found |= {name: names[place] for name, place in zip(names, order, strict=True)}
    return found


class SmallSource:
    """A member that is kept small, over its base.

    Args:
        base: what it is a change of.
        own: the packed tensors; those that it shares with others where it has none of its own.
        config: what its folder says.
        label: how messages call it.
        folder: where it lies.
    """

    def __init__(
        self, base: Source, own: Source, config: Mapping[str, Any], *, label: str, folder: Path
    ) -> None:
        self.label, self.folder = label, folder
        self.files = own.files
        self.tied: Mapping[str, str] = config["tied"]
        self._base, self._own, self._config = base, own, config
        under, kept = by_plain_name(base.tensors()), own.tensors()
        self._infos: dict[str, TensorInfo] = {}
        self._under: dict[str, str] = {}
        for name, dtype in config["names"].items():
            place = under.get(plain_name(name))
            if place is None and name not in kept:
                raise BadCheckpointError(
                    f"{label}: {name} is a change of a tensor that {base.label} does not have.",
                    hint="Give the base that it was made with.",
                )
            shape = kept[name].shape if place is None else base.tensors()[place].shape
            kind = getattr(torch, str(dtype), None)
            if not isinstance(kind, torch.dtype):
                raise BadCheckpointError(f"{label}: {name} has no dtype named {dtype!r}.")
            self._infos[name] = TensorInfo(tuple(shape), kind)
            if place is not None:
                self._under[name] = place
        if config["kind"] == "superposed":
            _check_superposed(config, self._infos, label)
        self._targets = {name: self._infos[name] for name in config.get("superposed", ())}
        self._moved = shuffled(self._targets, config["seed"]) if config.get("shuffle") else {}
        # A walk asks for one tensor stretch by stretch, in several threads.
        self._kept: tuple[tuple[str, Tensor], ...] = ()

    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._infos

    def read(self, name: str) -> Tensor:
        own = self.tied.get(name, name)
        for known, values in self._kept:
            if known == own:
                return values
        found = self._unpack(own)
        self._kept = (*self._kept[-1:], (own, found))
        return found

    def stretch(self, name: str, start: int, stop: int) -> Tensor:
        return self.read(name).reshape(-1)[start:stop]

    def prefetch(self, name: str, start: int, stop: int) -> None:
        if name in self._under:
            self._base.prefetch(self._under[name], start, stop)

    def _unpack(self, name: str) -> Tensor:
        dtype, kept = self._infos[name].dtype, self._own.tensors()
        if f"{name}{BITS}" in kept:
            bits, scale = self._own.read(f"{name}{BITS}"), self._own.read(f"{name}{SCALE}")
            base = _wide(self._base.read(self._under[name]))
            if bits.numel() != -(-base.numel() // 8):
                raise BadCheckpointError(f"{self.label}: the bits of {name} do not fit it.")
            return from_bits(base, bits, scale).to(dtype)
        if self._config["kind"] == "superposed" and name in kept:
            place = self._moved.get(name, name)
            base, change = _wide(self._base.read(self._under[name])), _wide(self._own.read(place))
            if name in self._targets:
                own = name if self._config["vary"] else None
                signs = column_signs(base.shape[-1], self._config["seed"], own)
                change = change * signs.to(change)
            merged: Tensor = base + change * float(self._config["scale"])
            return merged.to(dtype)
        if name in kept:
            return self._own.read(name).to(dtype)
        return self._base.read(self._under[name]).to(dtype)


def _check_superposed(config: Mapping[str, Any], known: Mapping[str, Any], label: str) -> None:
    named, seed, scale = (config.get(key) for key in ("superposed", "seed", "scale"))
    if not isinstance(named, list) or not all(isinstance(n, str) and n in known for n in named):
        raise BadCheckpointError(f"{label}: small_config.json does not name what is superposed.")
    if not isinstance(seed, int) or not isinstance(scale, int | float) or "vary" not in config:
        raise BadCheckpointError(
            f"{label}: small_config.json lacks seed, scale or vary, which the signs follow from."
        )


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))

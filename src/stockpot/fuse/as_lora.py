"""`as_lora`: what a fusion changed of its base, as a LoRA adapter in peft's layout.

The change of every linear and convolutional layer is cut to its largest singular values, which no
other matrices of that rank come closer to (Eckart & Young, 1936). Norms, embeddings and biases have
no rank to cut and are kept whole; a parameter that belongs to no layer of its own (a class token, a
temperature) has no place in such a folder and is dropped. What this costs is in the record.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from stockpot.checkpoints.adapter import PREFIX
from stockpot.checkpoints.layouts import by_plain_name, plain_name
from stockpot.checkpoints.locate import ON_A_BASE, Location
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.resolve import resolve
from stockpot.checkpoints.source import Source
from stockpot.errors import BadParameterError
from stockpot.fuse.job import Job
from stockpot.fuse.request import Request
from stockpot.models.config import is_vision_tower, read_config

_EMBEDDING = re.compile(r"embed(ding|_tokens|dings)?$|wte$|wpe$|shared$")
_TOWER = "vision_model."


@dataclass
class _Adapter:
    """What goes into the folder, gathered layer by layer."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    whole: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    biases: bool = False
    changed: float = 0.0
    lost: float = 0.0

    @property
    def error(self) -> float:
        """The part of the change that is lost, in Frobenius norms."""
        return math.sqrt(self.lost / self.changed) if self.changed else 0.0


def check_as_lora(request: Request, job: Job) -> None:
    """Raise where a result cannot be written as an adapter, before anything is fused."""
    rank = request.options.as_lora
    if rank is None:
        return
    if rank < 1:
        raise BadParameterError(f"as_lora: expected a rank of at least 1, got {rank}.")
    if not isinstance(request.base, Location) or request.base.format in ON_A_BASE:
        raise BadParameterError(
            "as_lora: an adapter is a change of a base: expected a base in a folder or file.",
            hint="Give base=... (--base).",
        )
    if job.module:
        raise BadParameterError(
            f"{request.method}: makes a module of its own, which no adapter can hold."
        )


def write_adapters(request: Request, folders: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """Replace the fused weights in every folder by an adapter; returns what is told of each."""
    rank, base = request.options.as_lora, request.base
    if rank is None or not isinstance(base, Location):  # `check_as_lora` has seen to the base
        return {}
    details = {}
    for model, folder in folders.items():
        under = open_checkpoint(base, label="base")
        fused = open_checkpoint(folder)
        made = _adapter(under, fused, rank)
        if not made.tensors:
            raise BadParameterError("as_lora: the fusion changes no layer of the base.")
        short = _short_names(under)
        for path in (*fused.files, *folder.glob("*.json")):
            path.unlink()
        save_file(
            {f"{PREFIX}{short(name)}": values for name, values in made.tensors.items()},
            folder / "adapter_model.safetensors",
            metadata={"format": "pt"},
        )
        config = _config(made, rank, lasting(base), short)
        text = json.dumps(config, indent=2) + "\n"
        (folder / "adapter_config.json").write_text(text, encoding="utf-8")
        details[model] = {
            "as_lora": {
                "rank": rank,
                "layers": len(made.ranks),
                "relative_error": made.error,
                "kept_whole": len(made.whole),
                "dropped": made.dropped,
            }
        }
    return details


def lasting(base: Location) -> str:
    """The base as a text that means the same later; a folder is a folder whatever its name."""
    if base.folder is not None and Path(base.label).resolve() == base.folder.resolve():
        return str(base.folder.resolve())
    return resolve(base.label, "weights").lasting


def _short_names(base: Source) -> Any:
    """Names as transformers 5 has them: a lone vision tower has nothing in front."""
    folder = base.folder
    if folder is None or not (folder / "config.json").is_file():
        return lambda name: name
    alone = is_vision_tower(read_config(folder))
    return lambda name: name.removeprefix(_TOWER) if alone else name


def _adapter(base: Source, fused: Source, rank: int) -> _Adapter:
    made = _Adapter()
    theirs = by_plain_name(fused.tensors())
    names = {
        name: theirs[plain_name(name)] for name in base.tensors() if plain_name(name) in theirs
    }
    if extra := set(theirs.values()) - set(names.values()):
        raise BadParameterError(
            f"as_lora: the fusion has {sorted(extra)[0]}, which the base has not."
        )
    whole: dict[str, None] = {}
    for name, own in names.items():
        before, after = base.read(name), fused.read(own)
        if not before.dtype.is_floating_point:
            continue
        if before.shape != after.shape:
            raise BadParameterError(f"as_lora: {name} has another shape than in the base.")
        change = after.float() - before.float()
        size = float(change.square().sum(dtype=torch.float64))
        if not size:
            continue
        made.changed += size
        module, _, part = name.rpartition(".")
        if part == "weight" and _has_rank(module, change):
            factors = _cut(change, rank)
            made.lost += factors.lost
            made.ranks[module] = factors.rank
            made.tensors[f"{module}.lora_A.weight"] = factors.down
            made.tensors[f"{module}.lora_B.weight"] = factors.up
        elif f"{module}.weight" in names and not _holds_layers(module, names):
            whole[module] = None
        else:
            made.dropped.append(name)
            made.lost += size
    for module in whole:
        own_parts = [name for name in names if name.rpartition(".")[0] == module]
        if module in made.ranks or any(
            _has_rank(module, base.read(name)) for name in own_parts if name.endswith(".weight")
        ):
            # The bias of an adapted layer; one whose weights did not change is adapted by nothing.
            made.biases = True
            bias = f"{module}.bias"
            made.tensors[f"{module}.base_layer.bias"] = fused.read(names[bias]).float().clone()
            if module not in made.ranks:
                factors = _cut(torch.zeros_like(base.read(f"{module}.weight").float()), 1)
                made.ranks[module] = factors.rank
                made.tensors[f"{module}.lora_A.weight"] = factors.down
                made.tensors[f"{module}.lora_B.weight"] = factors.up
            continue
        made.whole.append(module)
        for name in own_parts:
            made.tensors[name] = fused.read(names[name]).clone()
    return made


def _holds_layers(module: str, names: Mapping[str, str]) -> bool:
    return any(n.startswith(f"{module}.") and n.count(".") > module.count(".") + 1 for n in names)


def _has_rank(module: str, change: Tensor) -> bool:
    """Whether a layer is linear or a convolution over all its channels, not a table of rows."""
    if change.ndim == 4:
        return not change.shape[1] == 1 < change.shape[0]
    return change.ndim == 2 and not _EMBEDDING.search(module)


@dataclass(frozen=True)
class _Factors:
    up: Tensor
    down: Tensor
    rank: int
    lost: float


def _cut(change: Tensor, rank: int) -> _Factors:
    # In double precision: where two singular values are close, the cut between them is delicate.
    left, values, right = torch.linalg.svd(change.flatten(1).double(), full_matrices=False)
    kept = min(rank, len(values))
    root = values[:kept].sqrt()
    up, down = left[:, :kept] * root, root[:, None] * right[:kept]
    if change.ndim == 4:
        up, down = up[:, :, None, None], down.reshape(kept, *change.shape[1:])
    lost = float(values[kept:].square().sum())
    return _Factors(
        up.to(change.dtype).contiguous(), down.to(change.dtype).contiguous(), kept, lost
    )


def _config(made: _Adapter, rank: int, base: str, short: Any) -> dict[str, Any]:
    # Where a layer has fewer singular values than the rank, its own rank; the factor stays 1.
    own = {f"^{re.escape(short(m))}": own for m, own in made.ranks.items() if own != rank}
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": base,
        "task_type": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "lora_only" if made.biases else "none",
        "fan_in_fan_out": False,
        "target_modules": [short(module) for module in made.ranks],
        "modules_to_save": [short(module) for module in made.whole] or None,
        "rank_pattern": own,
        "alpha_pattern": own,
    }

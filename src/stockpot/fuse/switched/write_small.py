"""Write models per member as small changes of their base, which are read back as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from stockpot.checkpoints.layouts import by_plain_name, plain_name
from stockpot.checkpoints.locate import ON_A_BASE, Location
from stockpot.checkpoints.small import CONFIG, FILE, SHARED
from stockpot.checkpoints.write import ShardWriter
from stockpot.errors import BadParameterError
from stockpot.fuse.as_lora import lasting
from stockpot.fuse.finite import check_merged
from stockpot.fuse.fuser import Slab, Small, SwitchFuser
from stockpot.fuse.job import Job
from stockpot.fuse.request import Request


def check_small(request: Request, job: Job) -> None:
    """Raise where models cannot be kept small, before anything is fused."""
    if not isinstance(request.base, Location) or request.base.format in ON_A_BASE:
        raise BadParameterError(
            f"{request.method}: a small model names its base: expected a base in a folder or file.",
            hint="Without out, the models are given whole.",
        )
    if request.options.as_lora is not None:
        raise BadParameterError(f"{request.method}: is small already; leave out as_lora.")
    if request.options.bn == "recompute":
        raise BadParameterError(f"{request.method}: keeps BatchNorm statistics; leave out bn.")
    if SHARED in job.members:
        raise BadParameterError(f"{request.method}: no member may be called {SHARED}.")


def write_small(request: Request, job: Job, folder: Path) -> dict[str, dict[str, Any]]:
    """Write every model of a job; returns what is told of each."""
    details: dict[str, dict[str, Any]] = {}
    for label, of in job.of.items():
        numbers = {row.name: of[row.name] for row in job.stream.alignment.rows}
        made = {name: found for name, number in numbers.items() if (found := job.small(number))}
        smalls = [fuser.small for fuser in made.values() if fuser.small is not None]
        if smalls[0].share is not None and len(set(numbers.values())) > 1:
            raise BadParameterError(
                f"{request.method}: is one superposition; expected one value per parameter, got "
                "values that differ from tensor to tensor."
            )
        if not isinstance(request.base, Location):  # `check_small` has seen to it
            return {}
        writer = _Writer(request, job, label, made, smalls[0], folder)
        details |= writer.write(lasting(request.base))
    return details


class _Writer:
    """The models of one point."""

    def __init__(
        self,
        request: Request,
        job: Job,
        label: str,
        fusers: Mapping[str, SwitchFuser],
        small: Small,
        folder: Path,
    ) -> None:
        self.job, self.label, self.folder = job, label, folder
        self.method = request.method
        self.fusers, self.small = fusers, small
        self.models = job.models(label)
        self.kept: dict[str, dict[str, Tensor]] = {model: {} for model in self.models}
        self.lock = Lock()

    def write(self, base: str) -> dict[str, dict[str, Any]]:
        """Walk over all tensors and write what is kept, over a base of this name."""
        alignment = self.job.stream.alignment
        self._copies()
        if self.small.share is None:
            self._walk(self._pack)
            shared = 0
        else:
            place = self.folder / self.label / SHARED
            place.mkdir(parents=True)
            infos = {row.name: row.info for row in alignment.rows}
            with closing(ShardWriter(place, infos, max_shard=1 << 62)) as writer:
                self._walk(lambda slab: self._share(slab, writer))
            shared = sum(path.stat().st_size for path in place.glob("*.safetensors"))
        return {
            model: self._finish(number, model, base, shared)
            for number, model in enumerate(self.models)
        }

    def _walk(self, work: Any) -> None:
        stream = self.job.stream
        stream.walk(stream.pieces(stream.alignment.rows, lambda row: False), work)

    def _pack(self, slab: Slab) -> None:
        fuser = self.fusers[slab.name]
        pack = None if fuser.small is None else fuser.small.pack
        if pack is not None and self.small.packed(slab.name, slab.info.shape):
            for model, own in zip(self.models, pack(slab), strict=True):
                for end, values in own.items():
                    if values.is_floating_point():
                        check_merged(values, slab.name, self.method)
                    self._keep(model, f"{slab.name}{end}", values)
            return
        for model, values in zip(self.models, fuser.merge(slab), strict=True):
            check_merged(values, slab.name, self.method)
            if not torch.equal(values, slab.base):
                whole = values.to(self.job.infos[slab.name].dtype)
                self._keep(model, slab.name, whole.cpu().contiguous().clone())

    def _share(self, slab: Slab, writer: ShardWriter) -> None:
        if self.small.share is not None:
            values = self.small.share(slab)
            check_merged(values, slab.name, self.method)
            writer.write(slab.name, values)

    def _keep(self, model: str, name: str, values: Tensor) -> None:
        with self.lock:
            self.kept[model][name] = values

    def _copies(self) -> None:
        """What is not fused: what differs from the base is kept whole."""
        alignment = self.job.stream.alignment
        base = alignment.base
        under = {} if base is None else by_plain_name(base.tensors())
        heads = self.job.heads(self.label)
        for model in self.models:
            for copied in (*alignment.copies, *heads.get(model, ())):
                values = copied.source.read(copied.source_name)
                place = under.get(plain_name(copied.name))
                if base is None or place is None or not torch.equal(base.read(place), values):
                    self._keep(model, copied.name, values.clone())
        if self.small.share is not None and any(self.kept.values()):
            name = next(name for own in self.kept.values() for name in own)
            raise BadParameterError(
                f"{self.method}: {name} is not the base's, and a seed cannot keep it.",
                hint="bitdelta keeps what differs whole.",
            )

    def _finish(self, number: int, model: str, base: str, shared: int) -> dict[str, Any]:
        place, infos = self.folder / model, self.job.infos_of(model)
        config: dict[str, Any] = {
            "kind": self.small.kind,
            "base_model_name_or_path": base,
            "names": {name: str(info.dtype).removeprefix("torch.") for name, info in infos.items()},
            "tied": dict(self.job.stream.alignment.tied),
            **self.small.settings,
        }
        own = 0
        if self.small.share is None:
            kept = self.kept[model] or {"nothing": torch.zeros(1)}
            save_file(kept, place / FILE, metadata={"format": "pt"})
            own = (place / FILE).stat().st_size
        else:
            config |= {"shared": SHARED, "seed": self.small.seed + number}
            config["superposed"] = _superposed(self.job, self.small)
        text = json.dumps(config, indent=1) + "\n"
        (place / CONFIG).write_text(text, encoding="utf-8")
        own += len(text.encode())
        told: Mapping[str, int] = {
            "bytes": own,
            "shared_bytes": shared,
            "whole_bytes": sum(info.nbytes for info in infos.values()),
        }
        return {"small": dict(told)}


def _superposed(job: Job, small: Small) -> list[str]:
    """The tensors that have signs."""
    rows = job.stream.alignment.rows
    return [row.name for row in rows if small.packed(row.name, row.info.shape)]

"""From a request to a job: open everything, check everything, build every fuser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stockpot.checkpoints.alignment import align
from stockpot.checkpoints.layouts import by_plain_name, is_batch_norm_statistic, is_whole_clip
from stockpot.checkpoints.member_names import member_names
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.kinds import DataFuser, Fuser, Learner, ModuleFuser, SwitchFuser, TensorFuser
from stockpot.fuse.linear.average import mean
from stockpot.fuse.options import DTYPES, Options
from stockpot.fuse.parameters import assign
from stockpot.fuse.run import Request
from stockpot.fuse.stream import Stream
from stockpot.models.classifier import Classifier
from stockpot.models.device import pick_device
from stockpot.registry import Entry

_STATISTICS = TensorFuser(mean, elementwise=True, keeps_equal=True)
"""BatchNorm statistics are averaged where the method itself is not linear."""
_BEYOND_VISION = (
    "text_model.*", "text_projection.*", "visual_projection.*", "logit_scale", "logit_bias",
)  # fmt: skip
"""What data-driven methods leave alone in a dual encoder: they run its vision tower only."""


@dataclass(frozen=True)
class Job:
    """A fusion that is ready to run."""

    entry: Entry[Callable[..., Any]]
    stream: Stream
    fusers: list[Fuser | Learner]
    of: Mapping[str, Mapping[str, int]]
    """Label of a point of the sweep -> tensor name -> number of its fuser."""
    members: tuple[str, ...]
    """Short, unique names of the members, fit for folders."""
    infos: Mapping[str, TensorInfo]
    """Every tensor of the output."""
    switches: bool
    """Whether it makes one model per member."""
    module: bool = False
    """Whether the model is a module: its plain weights then lie in a folder `base` inside."""

    @property
    def learns(self) -> bool:
        """Whether it must learn from data before it can merge."""
        return any(isinstance(fuser, DataFuser | ModuleFuser) for fuser in self.fusers)

    def models(self, label: str) -> list[str]:
        """The models that one point makes; a slash parts the point and the member."""
        if self.module:
            return [f"{label}/base" if label else "base"]
        if not self.switches:
            return [label]
        return [f"{label}/{member}" if label else member for member in self.members]


def prepare(request: Request) -> Job:
    """Open, check and build; raises for everything that can be found wrong beforehand."""
    entry = fusers.get(request.method)
    options = request.options
    members, base = _open(request, entry)
    exclude = options.exclude
    if entry.tags.get("learns") and _any_whole_clip([*members, *([base] if base else [])]):
        exclude = (*exclude, *_BEYOND_VISION)
    alignment = align(
        members, base, exclude=exclude, intersect=options.intersect, head=options.head
    )
    accumulate = torch.float64 if options.accumulate == "fp64" else torch.float32
    stream = Stream(alignment, str(pick_device(options.device)), accumulate, options.threads)
    names = [row.name for row in alignment.rows]
    made: list[Fuser | Learner] = []
    of = {}
    for label, params in request.points.items():
        sets = assign(entry, params, names)
        if entry.tags.get("learns") and len(sets.distinct) > 1:
            raise BadParameterError(
                f"{request.method}: learns for the whole model; expected one value per parameter, "
                "got values that differ from tensor to tensor."
            )
        for values in sets.distinct:
            _check_weights(values, len(members))
        of[label] = {name: len(made) + number for name, number in sets.of.items()}
        made += [entry.function(**values) for values in sets.distinct]
    statistics = {name: len(made) for name in names if is_batch_norm_statistic(name)}
    if statistics and not entry.tags.get("linear"):
        made.append(_STATISTICS)
        of = {label: {**numbers, **statistics} for label, numbers in of.items()}
    switches = any(isinstance(f, SwitchFuser) or getattr(f, "switches", False) for f in made)
    short = tuple(member_names([source.label for source in members]))
    dtype = output_dtype(options)
    infos = {
        name: info._replace(dtype=dtype) if dtype and info.dtype.is_floating_point else info
        for name, info in alignment.infos().items()
    }
    module = any(isinstance(fuser, ModuleFuser) for fuser in made)
    return Job(entry, stream, made, of, short, infos, switches, module)


def _any_whole_clip(sources: list[Source]) -> bool:
    return any(is_whole_clip(by_plain_name(source.tensors())) for source in sources)


def _open(request: Request, entry: Entry[Callable[..., Any]]) -> tuple[list[Source], Source | None]:
    found = dict(request.members)
    base = request.base
    if entry.tags.get("pair") and base is not None:
        # Two models, one of them called the base: the base is the first of the pair.
        found, base = {"base": base, **found}, None
    _check_count(request.method, len(found), entry)
    if entry.tags.get("needs_base") and base is None:
        raise BadParameterError(
            f"{request.method}: needs the model that the members were fine-tuned from.",
            hint="Give it as base (--base).",
        )
    opened = None if base is None else open_checkpoint(_as_state(base), label="base")
    members = [
        open_checkpoint(_as_state(spec), label=label, base=opened) for label, spec in found.items()
    ]
    return members, opened if entry.tags.get("needs_base") else None


def _check_count(method: str, count: int, entry: Entry[Callable[..., Any]]) -> None:
    exactly = entry.tags.get("members")
    if exactly is not None and count != exactly:
        raise BadParameterError(f"{method}: expected exactly {exactly} models, got {count}.")
    at_least = entry.tags.get("at_least", 1)
    if count < at_least:
        raise BadParameterError(f"{method}: expected at least {at_least} members, got {count}.")


def _as_state(spec: Any) -> Any:
    if isinstance(spec, Classifier):  # its names without what the classifier adds
        return getattr(spec.network, "model", spec.network).state_dict()
    return spec.state_dict() if isinstance(spec, nn.Module) else spec


def _check_weights(params: Mapping[str, Any], count: int) -> None:
    weights = params.get("weights")
    if weights is not None and len(weights) != count:
        raise BadParameterError(f"weights: expected one per member ({count}), got {len(weights)}.")


def output_dtype(options: Options) -> torch.dtype | None:
    """The dtype that was asked for, if one was."""
    if options.dtype is None:
        return None
    dtype: torch.dtype = getattr(torch, DTYPES[options.dtype])
    return dtype

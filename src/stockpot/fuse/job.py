"""From a request to a job: open, check and build everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stockpot.checkpoints.alignment import Copy, align
from stockpot.checkpoints.layouts import by_plain_name, is_batch_norm_statistic, is_whole_clip
from stockpot.checkpoints.member_names import member_names
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.errors import BadParameterError
from stockpot.fuse import FuserTags, fusers
from stockpot.fuse.finish.then import THEN, build, check_base, split_then
from stockpot.fuse.finish.wrap import finished
from stockpot.fuse.fuser import Fuser, SwitchFuser, TensorFuser
from stockpot.fuse.learning.learner import DataFuser, Learner, ModuleFuser
from stockpot.fuse.linear.average import mean
from stockpot.fuse.parameters import assign, check_members, check_parameters
from stockpot.fuse.permutation.whole import check_whole
from stockpot.fuse.request import DTYPES, Options, Request
from stockpot.fuse.stacking import stack_layers
from stockpot.fuse.stream import Stream, device_for
from stockpot.models.classifier import Classifier
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

    entry: Entry[FuserTags]
    stream: Stream
    fusers: list[Fuser | Learner]
    of: Mapping[str, Mapping[str, int]]
    """Label of a point of the sweep -> tensor name -> number of its fuser."""
    members: tuple[str, ...]
    """Short, unique names of the members, fit for folders."""
    infos: Mapping[str, TensorInfo]
    """Every tensor of the output."""
    switches: bool
    """Whether it makes one model per member: a method may, and heads of their own do."""
    module: bool = False
    """Whether the model is a module: its plain weights then lie in a folder `base` inside."""
    dtype: torch.dtype | None = None
    """Of the output's floats, where one was asked for."""

    def small(self, number: int) -> SwitchFuser | None:
        """A fuser by its number, where it keeps its models small."""
        fuser = self.fusers[number]
        return fuser if isinstance(fuser, SwitchFuser) and fuser.small is not None else None

    @property
    def together(self) -> Mapping[str, Mapping[str, Any]]:
        """Label of each point whose models are an ensemble -> how they answer together."""
        found: dict[str, Mapping[str, Any]] = {}
        for label, of in self.of.items():
            for number in dict.fromkeys(of.values()):
                settings = getattr(self.fusers[number], "together", None)
                if settings is None:
                    continue
                if found.setdefault(label, settings) != settings:
                    raise BadParameterError(
                        f"{self.entry.name}: answers together as a whole; expected one value per "
                        "parameter, got values that differ from tensor to tensor."
                    )
        return found

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

    def heads(self, label: str) -> dict[str, tuple[Copy, ...]]:
        """The head of each model that one point makes, where members keep their own."""
        found = self.stream.alignment.heads
        return dict(zip(self.models(label), found, strict=True)) if found else {}

    def infos_of(self, model: str) -> dict[str, TensorInfo]:
        """Every tensor of one model of the output."""
        own = next((h[model] for h in map(self.heads, self.of) if model in h), ())
        dtype = self.dtype
        return {**self.infos, **{
            copied.name: copied.info._replace(dtype=dtype) if dtype else copied.info
            for copied in own
        }}  # fmt: skip


def prepare(request: Request) -> Job:
    """Open, check and build; raises for everything that can be found wrong beforehand."""
    entry = fusers.get(request.method)
    options = request.options
    for key in ("save", "load"):
        if getattr(options, key) is not None and not entry.tags.learns:
            raise BadParameterError(f"{key}: {request.method} learns nothing; leave out {key}.")
    members, around = _open(request, entry)
    if entry.tags.stacks:
        members = [stack_layers(members, _spans(request, entry))]
    exclude = options.exclude
    if entry.tags.learns and _any_whole_clip([*members, *([around] if around else [])]):
        exclude = (*exclude, *_BEYOND_VISION)
    finishes = any(params.get(THEN) for params in request.points.values())
    alignment = align(
        members,
        around if entry.tags.needs_base or entry.tags.takes_base or finishes else None,
        # What a method computes without a base may still belong into one.
        frame=around,
        exclude=exclude,
        intersect=options.intersect,
        head=options.head,
        layout=options.layout,
    )
    accumulate = torch.float64 if options.accumulate == "fp64" else torch.float32
    device = device_for(options.device, heavy=entry.tags.heavy or entry.tags.learns or finishes)
    stream = Stream(alignment, str(device), accumulate, options.threads)
    names = [row.name for row in alignment.rows]
    made: list[Fuser | Learner] = []
    of = {}
    labels = [source.label for source in members]
    for label, params in request.points.items():
        own, steps = split_then(params)
        sets = assign(entry, own, names, labels)
        if entry.tags.learns and len(sets.distinct) > 1:
            raise BadParameterError(
                f"{request.method}: learns for the whole model; expected one value per parameter, "
                "got values that differ from tensor to tensor."
            )
        for values in sets.distinct:
            _check_lists(values, len(members))
        fresh = [entry.function(**values) for values in sets.distinct]
        numbers = sets.of
        if steps:
            built = [build(step, names, labels) for step in steps]
            fresh = [finished(request.method, fresh, sets.of, built)]
            numbers = dict.fromkeys(names, 0)
        of[label] = {name: len(made) + number for name, number in numbers.items()}
        made += fresh
    statistics = {name: len(made) for name in names if is_batch_norm_statistic(name)}
    if statistics and not (entry.tags.linear or entry.tags.apart):
        made.append(_STATISTICS)
        of = {label: {**numbers, **statistics} for label, numbers in of.items()}
    switches = any(isinstance(f, SwitchFuser) or getattr(f, "switches", False) for f in made)
    switches = switches or bool(alignment.heads)
    short = tuple(member_names([source.label for source in members]))
    dtype = output_dtype(options)
    infos = {
        name: info._replace(dtype=dtype) if dtype and info.dtype.is_floating_point else info
        for name, info in alignment.infos().items()
    }
    module = any(isinstance(fuser, ModuleFuser) for fuser in made)
    if module and alignment.heads:
        raise BadParameterError(
            f"{request.method}: a module keeps the heads of its tasks by itself; leave out "
            "head=each."
        )
    return Job(entry, stream, made, of, short, infos, switches, module, dtype)


def _spans(request: Request, entry: Entry[FuserTags]) -> list[str] | None:
    if request.base is not None:
        raise BadParameterError(f"{request.method}: stacks its members alone; leave out the base.")
    asked: list[list[str] | None]
    asked = [check_parameters(entry, params)["layers"] for params in request.points.values()]
    if any(spans != asked[0] for spans in asked):
        raise BadParameterError(
            "layers: the points of a sweep share their layers; fuse once for each."
        )
    return asked[0]


def _any_whole_clip(sources: list[Source]) -> bool:
    return any(is_whole_clip(by_plain_name(source.tensors())) for source in sources)


def _open(request: Request, entry: Entry[FuserTags]) -> tuple[list[Source], Source | None]:
    found, base = request.members, request.base
    if entry.tags.apart:
        check_whole(request)
    check_members(entry, len(found), base is not None)
    for params in request.points.values():
        check_base(entry, params, base is not None)
    opened = None if base is None else open_checkpoint(_as_state(base), label="base")
    members = [
        open_checkpoint(_as_state(spec), label=label, base=opened) for label, spec in found.items()
    ]
    if entry.tags.pair and opened is not None:
        # Two models, one of them called the base: the base is the first of the pair.
        return [opened, *members], None
    return members, opened


def _as_state(spec: Any) -> Any:
    if isinstance(spec, Classifier):  # its names without what the classifier adds
        return getattr(spec.network, "model", spec.network).state_dict()
    return spec.state_dict() if isinstance(spec, nn.Module) else spec


def _check_lists(params: Mapping[str, Any], count: int) -> None:
    for name in ("weights", "densities", "gammas", "epsilons"):
        given = params.get(name)
        if given is not None and len(given) != count:
            raise BadParameterError(f"{name}: expected one per member ({count}), got {len(given)}.")


def output_dtype(options: Options) -> torch.dtype | None:
    """The dtype that was asked for, if one was."""
    if options.dtype is None:
        return None
    dtype: torch.dtype = getattr(torch, DTYPES[options.dtype])
    return dtype

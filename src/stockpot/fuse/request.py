"""What is asked of a fusion: members, base, data, parameters, and the options of every method.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stockpot.checkpoints.locate import Location, locate
from stockpot.checkpoints.member_names import by_name
from stockpot.errors import BadParameterError
from stockpot.fuse import fusers

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stockpot.checkpoints.source import Source
    from stockpot.datasets.dataset import Dataset

    Spec: TypeAlias = str | Path | Location | Mapping[str, Tensor] | nn.Module | Source
    Tasks: TypeAlias = str | Path | Dataset | Sequence[Any] | Mapping[str, Any]

Accumulate = Literal["fp32", "fp64"]
DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
}
_CHOICES = {
    "head": ("keep", "drop", "first", "each"),
    "accumulate": ("fp32", "fp64"),
    "bn": ("linear", "recompute"),
    "layout": (None, "hf", "open_clip"),
}
_DECIDING = ("exclude", "intersect", "head", "dtype", "accumulate", "bn")


@dataclass(frozen=True)
class Options:
    """How a fusion is run.

    Args:
        exclude: globs of tensor names that are not fused but taken from the base or first member.
        intersect: fuse what all checkpoints have in one shape; take the rest from the first.
        head: fuse the classification head (keep), leave it out (drop), take the first's, or make
            a model for each member with its own head over what is fused (each).
        dtype: the dtype of the result (fp32, bf16, fp16, fp64); by default the first member's.
        max_shard: the largest file to write, such as 5GB.
        device: where the arithmetic runs: cpu, cuda, cuda:1, ...; auto is an accelerator for what
            learns and for methods of much arithmetic (singular vectors, descents), where there is
            one, and the CPU for the others, which are done when their files are read.
        accumulate: the dtype of the arithmetic, at least that of the inputs: fp32 or fp64.
        bn: combine BatchNorm statistics linearly, or estimate them anew (recompute) from the
            images of `tasks`; of a method that learns nothing, a name there means its train split.
        threads: worker threads; 0 means one per core.
        hashes: write the sha256 of the parents into the model card.
        layout: whose names and shapes a CLIP is written with (hf, open_clip); by default the
            base's, or those of the first member.
        save: where to write what a data-driven method learned, to use it again.
        load: what such a method learned before; it then needs no data.
        as_lora: write a LoRA adapter of this rank over the base, in peft's layout, instead of the
            whole model.
        command: the command line to write into the model card.
    """

    exclude: tuple[str, ...] = ()
    intersect: bool = False
    head: Literal["keep", "drop", "first", "each"] = "keep"
    dtype: str | None = None
    max_shard: str | int = "5GB"
    device: str = "auto"
    accumulate: Accumulate = "fp32"
    bn: Literal["linear", "recompute"] = "linear"
    threads: int = 0
    hashes: bool = True
    layout: Literal["hf", "open_clip"] | None = None
    save: str | None = None
    load: str | None = None
    as_lora: int | None = None
    command: str | None = None

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                choices = ", ".join(str(choice) for choice in allowed if choice)
                raise BadParameterError(
                    f"{name}: expected one of {choices}, got {getattr(self, name)!r}."
                )
        if not isinstance(self.threads, int) or self.threads < 0:
            raise BadParameterError(
                f"threads: expected a whole number of 0 or more, got {self.threads!r}."
            )
        if self.dtype is not None and self.dtype not in DTYPES:
            if self.dtype not in DTYPES.values():
                choices = ", ".join(DTYPES)
                raise BadParameterError(f"dtype: expected one of {choices}, got {self.dtype!r}.")
            short = next(key for key, value in DTYPES.items() if value == self.dtype)
            object.__setattr__(self, "dtype", short)

    def deciding(self) -> dict[str, Any]:
        """The options that decide which weights are made; the others say how and where."""
        found = {name: getattr(self, name) for name in _DECIDING}
        # Named only where they are asked for, so that the records of other fusions stay the same.
        asked = {"as_lora": self.as_lora, "layout": self.layout}
        return found | {name: value for name, value in asked.items() if value is not None}


@dataclass(frozen=True)
class Request:
    """What is to be fused, found but not opened."""

    method: str
    members: Mapping[str, Any]
    base: Any | None
    options: Options
    points: Mapping[str, Mapping[str, Any]]
    """The method's parameters; several sets for a sweep, each with its label."""
    tasks: Any = None
    """Datasets, for data-driven methods: one per member, in order or by name."""
    progress: Callable[[str, int, int], None] | None = None
    """Told what is done, how far it is, and of how much, while a method learns."""

    @property
    def files(self) -> list[Path]:
        """The files that hold the weights, where they lie in files."""
        specs = [self.base, *self.members.values()]
        return [path for spec in specs for path in getattr(spec, "files", ())]


def make_request(
    method: str,
    members: Sequence[Spec] | Mapping[str, Spec],
    base: Spec | None,
    tasks: Tasks | None,
    options: Options,
    points: Mapping[str, Mapping[str, Any]],
    progress: Callable[[str, int, int], None] | None = None,
) -> Request:
    """Find everything that a fusion reads; nothing is opened."""
    if method not in fusers:
        fusers.get(method)  # raises with suggestions, before torch is imported
    # The base has its own place among messages and models, and no member may take its name.
    named = by_name(members, taken=() if base is None else ("base",))
    found = {label: _located(spec) for label, spec in named.items()}
    anchor = None if base is None else _located(base)
    return Request(method, found, anchor, options, points, tasks, progress)


def _located(spec: Spec) -> Any:
    return locate(spec) if isinstance(spec, str | Path) else spec


def split_options(settings: Mapping[str, Any]) -> tuple[Options, dict[str, Any]]:
    """Part keyword arguments into options and the method's parameters."""
    names = {field.name for field in fields(Options)}
    chosen = {key: value for key, value in settings.items() if key in names}
    if isinstance(exclude := chosen.get("exclude", ()), str):
        chosen["exclude"] = (exclude,)
    else:
        chosen["exclude"] = tuple(exclude)
    params = {key: value for key, value in settings.items() if key not in names}
    return replace(Options(), **chosen), params

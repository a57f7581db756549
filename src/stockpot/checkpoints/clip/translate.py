"""A CLIP checkpoint read under the names of another program, tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from stockpot.checkpoints.clip.names import is_no_weight, pair_of_hf, pair_of_open_clip
from stockpot.checkpoints.layouts import CANONICAL, Layout, Program, layout_of
from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.errors import BadCheckpointError


class _Recipe(NamedTuple):
    """How one tensor comes from those of the file."""

    names: tuple[str, ...]
    third: int | None
    turned: bool
    info: TensorInfo


class TranslatedSource:
    """A checkpoint with the canonical names of a program; values are made when they are asked for.

    What has no name in the other program, such as a classification head, keeps its own.
    """

    def __init__(self, source: Source, layout: Layout, program: Program) -> None:
        self.label = source.label
        self.folder: Path | None = source.folder
        self.files = source.files
        self.tied: Mapping[str, str] = {}
        self.program = program
        self._source = source
        self._recipes = _recipes(source.tensors(), layout, program)
        # A walk asks for one tensor stretch by stretch.
        self._made = lru_cache(maxsize=2)(self._make)

    def tensors(self) -> Mapping[str, TensorInfo]:
        return {name: recipe.info for name, recipe in self._recipes.items()}

    def read(self, name: str) -> Tensor:
        recipe = self._recipes[name]
        if len(recipe.names) > 1 or recipe.turned:
            return self._made(name)
        values = self._source.read(recipe.names[0])
        return values if recipe.third is None else values.chunk(3)[recipe.third]

    def _make(self, name: str) -> Tensor:
        recipe = self._recipes[name]
        parts = [self._source.read(own) for own in recipe.names]
        values = parts[0] if len(parts) == 1 else torch.cat(parts)
        return (values.T.contiguous() if recipe.turned else values).to(recipe.info.dtype)

    def stretch(self, name: str, start: int, stop: int) -> Tensor:
        recipe = self._recipes[name]
        if len(recipe.names) > 1 or recipe.turned:
            return self._made(name).reshape(-1)[start:stop]
        before = (recipe.third or 0) * recipe.info.numel
        return self._source.stretch(recipe.names[0], before + start, before + stop)

    def prefetch(self, name: str, start: int, stop: int) -> None:
        recipe = self._recipes[name]
        if len(recipe.names) == 1 and not recipe.turned:
            before = (recipe.third or 0) * recipe.info.numel
            self._source.prefetch(recipe.names[0], before + start, before + stop)


def in_one_layout(
    members: Sequence[Source], base: Source | None, asked: Program | None = None
) -> tuple[list[Source], Source | None]:
    """CLIPs under the names of one program.

    Args:
        members: the checkpoints to bring together.
        base: what they were fine-tuned from; its program is taken, or else the first member's.
        asked: the program to take instead.
    """
    sources = [*members, *([base] if base is not None else [])]
    found = [known_layout(source) for source in sources]
    program = asked or (found[-1] if base is not None else found[0]).program
    brought = [
        translated(source, layout, program) for source, layout in zip(sources, found, strict=True)
    ]
    count = len(members)
    return brought[:count], brought[count] if base is not None else None


def known_layout(source: Source) -> Layout:
    """The layout of a checkpoint that must be a CLIP."""
    layout = layout_of(source.tensors())
    if layout is None:
        raise BadCheckpointError(
            f"{source.label}: expected a CLIP of open_clip or transformers, or its vision tower; "
            "its names are neither's."
        )
    return layout


def translated(source: Source, layout: Layout, program: Program) -> Source:
    """The source itself where it has the names of the program already."""
    if layout == CANONICAL[program]:
        return source
    return TranslatedSource(source, layout, program)


def _recipes(
    infos: Mapping[str, TensorInfo], layout: Layout, program: Program
) -> dict[str, _Recipe]:
    own = {layout.canonical(name): name for name in infos}
    found: dict[str, _Recipe] = {}
    for canonical, name in own.items():
        if is_no_weight(canonical):
            continue
        if layout.program == program:
            found[canonical] = _Recipe((name,), None, False, infos[name])
        elif program == "hf":
            found.update(_to_hf(canonical, name, infos[name]))
        else:  # a key or value matrix says the same as its query matrix
            found.update(_to_open_clip(canonical, own, infos))
    return found


def _to_hf(canonical: str, name: str, info: TensorInfo) -> dict[str, _Recipe]:
    pair = pair_of_open_clip(canonical)
    if pair is None:
        return {name: _Recipe((name,), None, False, info)}
    if len(pair.hf) == 1:
        return {pair.hf[0]: _Recipe((name,), None, pair.turned, _turned(info, pair.turned))}
    part = info._replace(shape=(info.shape[0] // 3, *info.shape[1:]))
    return {theirs: _Recipe((name,), third, False, part) for third, theirs in enumerate(pair.hf)}


def _to_open_clip(
    canonical: str, own: Mapping[str, str], infos: Mapping[str, TensorInfo]
) -> dict[str, _Recipe]:
    name = own[canonical]
    pair = pair_of_hf(canonical)
    if pair is None or any(theirs not in own for theirs in pair.hf):
        return {name: _Recipe((name,), None, False, infos[name])}
    names = tuple(own[theirs] for theirs in pair.hf)
    info = _turned(infos[name], pair.turned)
    if len(names) == 3:
        info = info._replace(shape=(info.shape[0] * 3, *info.shape[1:]))
    return {pair.open_clip: _Recipe(names, None, pair.turned, info)}


def _turned(info: TensorInfo, turned: bool) -> TensorInfo:
    return info._replace(shape=info.shape[::-1]) if turned else info

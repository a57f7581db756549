"""Line several checkpoints up, tensor by tensor, before a value is read.

The output has the names, the order and the dtypes of the template: the first member, or the base
when the base is a whole CLIP model and the members are vision encoders (also of a method that has
no use for a base) or of another program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from stockpot.checkpoints.clip.translate import TranslatedSource, in_one_layout
from stockpot.checkpoints.differences import Differences
from stockpot.checkpoints.layouts import (
    Program,
    beyond_vision,
    by_plain_name,
    is_head,
    is_whole_clip,
    layout_of,
)
from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.checkpoints.stacked import StackedSource
from stockpot.errors import BadCheckpointError, BadParameterError

Head = Literal["keep", "drop", "first", "each"]


class Row(NamedTuple):
    """One tensor that is fused: its name in the output, in the base and in each member."""

    name: str
    info: TensorInfo
    base: str | None
    members: tuple[str, ...]


class Copy(NamedTuple):
    """One tensor that is taken over as it is."""

    name: str
    info: TensorInfo
    source: Source
    source_name: str


@dataclass(frozen=True)
class Alignment:
    """What is fused, what is copied, and what the user should be told."""

    members: tuple[Source, ...]
    base: Source | None
    template: Source
    rows: tuple[Row, ...]
    copies: tuple[Copy, ...]
    tied: Mapping[str, str]
    notes: tuple[str, ...] = ()
    heads: tuple[tuple[Copy, ...], ...] = ()
    """The head of each member, where each keeps its own."""

    def infos(self) -> dict[str, TensorInfo]:
        """Every tensor of the output, in the template's order."""
        found = {row.name: row.info for row in self.rows}
        found.update({copied.name: copied.info for copied in self.copies})
        found.update({alias: found[n] for alias, n in self.tied.items() if n in found})
        return {name: found[name] for name in self.template.tensors() if name in found}


class _Opened:
    """A source with its names in plain form."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.infos = source.tensors()
        self.plain = by_plain_name(self.infos)
        self.whole = is_whole_clip(self.plain)
        self.beyond = beyond_vision(self.plain)

    def info(self, plain: str) -> TensorInfo:
        return self.infos[self.plain[plain]]


@dataclass(frozen=True)
class _Aligner:
    members: Sequence[_Opened]
    base: _Opened | None
    template: _Opened
    exclude: Sequence[str]
    intersect: bool
    head: Head

    @property
    def everyone(self) -> list[_Opened]:
        return [*self.members, *([self.base] if self.base else [])]

    def place(self, plain: str, name: str, differences: Differences) -> Row | Copy | None:
        """What becomes of one tensor of the template; None leaves it out."""
        info = self.template.infos[name]
        # Towers go with whole models, and with towers that carry their projection along.
        partly = not all(
            other.whole if self.template.whole else plain in other.plain for other in self.everyone
        )
        if self.head in ("drop", "each") and is_head(plain):
            return None
        if self._excluded(name, plain):
            return self._copy(plain, name, self.base or self.template)
        if self.head == "first" and is_head(plain):
            return self._copy(plain, name, self.members[0])
        if not info.dtype.is_floating_point or (partly and plain in self.template.beyond):
            return self._copy(plain, name, self.template)
        problems = [
            (other.source.label, *problem)
            for other in self.everyone
            if (problem := _problem(other, plain, info))
        ]
        if not problems:
            in_base = self.base.plain[plain] if self.base else None
            return Row(name, info, in_base, tuple(o.plain[plain] for o in self.members))
        if self.intersect:
            return self._copy(plain, name, self.template)
        for label, kind, text in problems:
            differences.add(label, kind, text)
        return None

    def extra(self, other: _Opened) -> list[str]:
        """Names of floats that another checkpoint has and the template lacks."""
        return [
            plain
            for plain, name in other.plain.items()
            if plain not in self.template.plain
            and name not in other.source.tied
            and other.infos[name].dtype.is_floating_point
            and not self._excluded(name, plain)
            and not (plain in other.beyond and not self.template.whole)
            and not (self.head != "keep" and is_head(plain))
        ]

    def heads(self) -> tuple[tuple[Copy, ...], ...]:
        """The head of every member as it is, under the template's names where it has them."""
        found = tuple(
            tuple(
                Copy(self.template.plain.get(plain, name), each.info(plain), each.source, name)
                for plain, name in each.plain.items()
                if is_head(plain)
            )
            for each in self.members
        )
        for each, head in zip(self.members, found, strict=True):
            if not head:
                raise BadCheckpointError(
                    f"head: {each.source.label} has no classification head to keep.",
                    hint="Leave --head each away.",
                )
        return found

    def tied(self) -> dict[str, str]:
        """Names of the template that every checkpoint ties to another, or lacks."""
        names = {name: plain for plain, name in self.template.plain.items()}
        found = {}
        for alias, name in self.template.source.tied.items():
            others = [o for o in self.everyone if names[alias] in o.plain]
            if all(
                o.source.tied.get(o.plain[names[alias]]) == o.plain.get(names[name]) for o in others
            ):
                found[alias] = name
        return found

    def _excluded(self, name: str, plain: str) -> bool:
        return any(fnmatchcase(name, g) or fnmatchcase(plain, g) for g in self.exclude)

    def _copy(self, plain: str, name: str, wanted: _Opened) -> Copy:
        origin = wanted if plain in wanted.plain else self.template
        return Copy(name, origin.info(plain), origin.source, origin.plain[plain])


def align(
    members: Sequence[Source],
    base: Source | None = None,
    *,
    frame: Source | None = None,
    exclude: Sequence[str] = (),
    intersect: bool = False,
    head: Head = "keep",
    layout: Program | None = None,
) -> Alignment:
    """Check that checkpoints can be fused and pair their tensors.

    Args:
        members: the checkpoints to fuse.
        base: the model they were fine-tuned from, where the method needs it.
        frame: the same where it does not: vision encoders are written into it if it is a whole
            CLIP, and nothing else is read from it.
        exclude: globs of names that are not fused but taken from the base (or the first member).
        intersect: fuse only what all have in one shape; the rest is taken from the first member.
        head: fuse the classification head (keep), leave it out (drop), take the first's, or let
            each member keep its own.
        layout: whose names a CLIP gets, `hf` or `open_clip`; by default the base's, or those of
            the first member.
    """
    if not members:
        raise BadParameterError("members: expected at least one checkpoint, got none.")
    _refuse_same_files(members)
    needed, around = base is not None, base or frame
    layouts = {layout_of(source.tensors()) for source in (*members, *([around] if around else []))}
    if layout or (len(layouts) > 1 and None not in layouts):
        members, around = in_one_layout(members, around, layout)
    opened = [_Opened(source) for source in members]
    opened_around = _Opened(around) if around is not None else None
    opened_base = opened_around if needed else None
    template = opened[0]
    if opened_around and (
        (opened_around.whole and not template.whole)
        # The configuration beside the base is the one that these names need.
        or (
            opened_around.whole == template.whole
            and _only_first_translated(opened[0], opened_around)
        )
    ):
        template = opened_around
    aligner = _Aligner(opened, opened_base, template, exclude, intersect, head)
    differences = Differences(template.source.label)
    tied = aligner.tied()
    placed = [
        aligner.place(plain, name, differences)
        for plain, name in template.plain.items()
        if name not in tied
    ]
    for other in aligner.everyone:
        if other is not template and not intersect:
            for plain in aligner.extra(other):
                differences.add(other.source.label, "extra", plain)
    differences.raise_if_any()
    rows = tuple(item for item in placed if isinstance(item, Row))
    if not rows:
        raise BadCheckpointError(
            "no tensor is left to fuse: all are excluded, of integers, or not common to all."
        )
    copies = tuple(item for item in placed if isinstance(item, Copy))
    notes = _notes(aligner, rows)
    heads = aligner.heads() if head == "each" else ()
    base = around if needed else None
    return Alignment(tuple(members), base, template.source, rows, copies, tied, notes, heads)


def _only_first_translated(first: _Opened, second: _Opened) -> bool:
    return isinstance(first.source, TranslatedSource) > isinstance(second.source, TranslatedSource)


def _refuse_same_files(members: Sequence[Source]) -> None:
    seen: dict[tuple[tuple[int, int], ...], str] = {}
    for source in members:
        # Stacks may take different layers from the same files.
        if not source.files or isinstance(source, StackedSource):
            continue
        stats = [path.stat() for path in source.files]
        identity = tuple((stat.st_dev, stat.st_ino) for stat in stats)
        if identity in seen:
            raise BadCheckpointError(
                f"{seen[identity]} and {source.label} are the same file.",
                hint="Name each member once; to count one more than another, use `weights`.",
            )
        seen[identity] = source.label


def _problem(other: _Opened, plain: str, info: TensorInfo) -> tuple[str, str] | None:
    if plain not in other.plain:
        return "missing", plain
    theirs = other.info(plain)
    if theirs.shape != info.shape:
        mine, wanted = ("x".join(map(str, shape)) for shape in (theirs.shape, info.shape))
        return "head" if is_head(plain) else "shape", f"{plain} ({mine}, not {wanted})"
    if not theirs.dtype.is_floating_point:
        return "dtype", f"{plain} ({theirs})"
    return None


def _notes(aligner: _Aligner, rows: Sequence[Row]) -> tuple[str, ...]:
    notes = []
    template = aligner.template
    dtypes = {row.info.dtype for row in rows}
    for index, member in enumerate(aligner.members):
        dtypes |= {member.infos[row.members[index]].dtype for row in rows}
    if aligner.base:
        dtypes |= {aligner.base.infos[row.base].dtype for row in rows if row.base}
    if len(dtypes) > 1:
        kinds = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in dtypes))
        notes.append(f"dtypes differ ({kinds}); the result has those of {template.source.label}")
    others = ", ".join(o.source.label for o in aligner.everyone if o.whole != template.whole)
    if others and template.whole:
        notes.append(f"{template.source.label} keeps its text tower; {others} have none")
    elif others:
        notes.append(f"{others}: only the vision encoder is fused")
    read = [o.source for o in aligner.everyone if isinstance(o.source, TranslatedSource)]
    if read:
        labels = ", ".join(source.label for source in read)
        notes.append(f"{labels}: read under the names of {read[0].program}")
    return tuple(notes)

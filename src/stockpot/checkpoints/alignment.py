"""Line several checkpoints up, tensor by tensor, and say everything that does not fit at once.

All of it happens on headers, before a value is read. The output has the names, the order and the
dtypes of the template: the first member, or the base when the base is a whole CLIP model and the
members are vision encoders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from stockpot.checkpoints.layouts import by_plain_name, is_beyond_vision, is_head, is_whole_clip
from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.errors import BadCheckpointError, BadParameterError

Head = Literal["keep", "drop", "first"]
_SHOWN = 4


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

    def infos(self) -> dict[str, TensorInfo]:
        """Every tensor of the output, in the template's order."""
        found = {row.name: row.info for row in self.rows}
        found.update({copied.name: copied.info for copied in self.copies})
        found.update({alias: found[name] for alias, name in self.tied.items()})
        return {name: found[name] for name in self.template.tensors() if name in found}


@dataclass
class _Differences:
    lines: list[str] = field(default_factory=list)

    def add(self, label: str, what: str, names: Sequence[str], option: str) -> None:
        if names:
            shown = ", ".join(names[:_SHOWN])
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            self.lines.append(f"{label} {what} {shown}{more} [{option}]")

    def raise_if_any(self) -> None:
        if self.lines:
            listing = "\n  - ".join(self.lines)
            raise BadCheckpointError(
                f"the checkpoints do not line up:\n  - {listing}\n",
                hint="In brackets: the option that resolves it.",
            )


class _Opened(NamedTuple):
    source: Source
    plain: Mapping[str, str]
    infos: Mapping[str, TensorInfo]
    whole: bool


def align(
    members: Sequence[Source],
    base: Source | None = None,
    *,
    exclude: Sequence[str] = (),
    intersect: bool = False,
    head: Head = "keep",
) -> Alignment:
    """Check that checkpoints can be fused and pair their tensors.

    Args:
        members: the checkpoints to fuse.
        base: the model they were fine-tuned from, where the method needs it.
        exclude: globs of names that are not fused but taken from the base (or the first member).
        intersect: fuse only what all have in one shape; the rest is taken from the first member.
        head: fuse the classification head (keep), leave it out (drop), or take the first's.
    """
    if not members:
        raise BadParameterError("members: expected at least one checkpoint, got none.")
    _refuse_same_files(members)
    opened = [_open(source) for source in members]
    opened_base = _open(base) if base is not None else None
    template = opened[0]
    if opened_base and opened_base.whole and not template.whole:
        template = opened_base
    everyone = [*opened, *([opened_base] if opened_base else [])]

    partly = template.whole and not all(other.whole for other in everyone)

    rows: list[Row] = []
    copies: list[Copy] = []
    wrong: dict[str, dict[str, list[str]]] = {}
    dtypes: set[str] = set()
    tied = {
        alias: name
        for alias, name in template.source.tied.items()
        if alias in template.infos and name in template.infos
    }
    for plain, name in template.plain.items():
        info = template.infos[name]
        if name in tied:
            continue
        if head == "drop" and is_head(plain):
            continue
        if _matches(exclude, name, plain):
            copies.append(_copy(name, plain, opened_base or template, template))
        elif head == "first" and is_head(plain):
            copies.append(_copy(name, plain, opened[0], template))
        elif not info.dtype.is_floating_point or (
            template.whole and is_beyond_vision(plain) and not all(o.whole for o in everyone)
        ):
            copies.append(_copy(name, plain, template, template))
        else:
            problems = _problems(plain, info, template, everyone)
            if not problems:
                dtypes |= {str(o.infos[o.plain[plain]].dtype) for o in everyone}
                in_base = opened_base.plain[plain] if opened_base else None
                rows.append(Row(name, info, in_base, tuple(o.plain[plain] for o in opened)))
            elif intersect:
                copies.append(_copy(name, plain, template, template))
            else:
                for label, kind, text in problems:
                    wrong.setdefault(label, {}).setdefault(kind, []).append(text)
    for other in everyone:
        if other is not template and not intersect:
            extra = _extra(other, template, exclude, head)
            if extra:
                wrong.setdefault(other.source.label, {})["extra"] = extra
    _report(wrong, template.source.label)
    if not rows:
        raise BadCheckpointError(
            "no tensor is left to fuse: all are excluded, of integers, or not common to all."
        )
    notes = _notes(template, everyone, dtypes)
    sources = tuple(o.source for o in opened)
    return Alignment(sources, base, template.source, tuple(rows), tuple(copies), tied, notes)


def _open(source: Source) -> _Opened:
    infos = source.tensors()
    plain = by_plain_name(infos)
    return _Opened(source, plain, infos, is_whole_clip(plain))


def _refuse_same_files(members: Sequence[Source]) -> None:
    seen: dict[tuple[tuple[int, int], ...], str] = {}
    for source in members:
        if not source.files:
            continue
        stats = [path.stat() for path in source.files]
        identity = tuple((stat.st_dev, stat.st_ino) for stat in stats)
        if identity in seen:
            raise BadCheckpointError(
                f"{seen[identity]} and {source.label} are the same file.",
                hint="Name each member once; to count one more than another, use `weights`.",
            )
        seen[identity] = source.label


def _matches(globs: Sequence[str], name: str, plain: str) -> bool:
    return any(fnmatchcase(name, glob) or fnmatchcase(plain, glob) for glob in globs)


def _copy(name: str, plain: str, wanted: _Opened, template: _Opened) -> Copy:
    origin = wanted if plain in wanted.plain else template
    source_name = origin.plain[plain]
    return Copy(name, origin.infos[source_name], origin.source, source_name)


def _problems(
    plain: str, info: TensorInfo, template: _Opened, everyone: Sequence[_Opened]
) -> list[tuple[str, str, str]]:
    found = []
    for other in everyone:
        name = other.plain.get(plain)
        if name is None:
            found.append((other.source.label, "missing", plain))
            continue
        theirs = other.infos[name]
        if theirs.shape != info.shape:
            sizes = "x".join(map(str, theirs.shape)), "x".join(map(str, info.shape))
            kind = "head" if is_head(plain) else "shape"
            found.append((other.source.label, kind, f"{plain} ({sizes[0]}, not {sizes[1]})"))
        elif not theirs.dtype.is_floating_point:
            found.append((other.source.label, "dtype", f"{plain} ({theirs.dtype})"))
    return found


def _extra(other: _Opened, template: _Opened, exclude: Sequence[str], head: Head) -> list[str]:
    return [
        plain
        for plain, name in other.plain.items()
        if plain not in template.plain
        and name not in other.source.tied
        and other.infos[name].dtype.is_floating_point
        and not _matches(exclude, name, plain)
        and not (other.whole and not template.whole and is_beyond_vision(plain))
        and not (head != "keep" and is_head(plain))
    ]


def _report(wrong: Mapping[str, Mapping[str, list[str]]], template: str) -> None:
    differences = _Differences()
    for label, kinds in wrong.items():
        differences.add(label, "lacks", kinds.get("missing", []), "--intersect, --exclude")
        differences.add(
            label, f"has, beyond {template},", kinds.get("extra", []), "--intersect, --exclude"
        )
        differences.add(
            label,
            f"has another number of classes than {template}:",
            kinds.get("head", []),
            "--head drop, --head first",
        )
        differences.add(
            label,
            f"has another shape than {template}:",
            kinds.get("shape", []),
            "--exclude, --intersect; another architecture cannot be fused",
        )
        differences.add(
            label, "holds integers where floats are fused:", kinds.get("dtype", []), "--exclude"
        )
    differences.raise_if_any()


def _notes(template: _Opened, everyone: Sequence[_Opened], dtypes: set[str]) -> tuple[str, ...]:
    notes = []
    if len(dtypes) > 1:
        kinds = ", ".join(sorted(kind.removeprefix("torch.") for kind in dtypes))
        notes.append(f"dtypes differ ({kinds}); the result has those of {template.source.label}")
    partly = [o.source.label for o in everyone if o.whole != template.whole]
    if partly:
        which = ", ".join(partly)
        notes.append(
            f"{which}: only the vision encoder is fused"
            if not template.whole
            else f"{template.source.label} keeps its text tower; {which} have none"
        )
    return tuple(notes)

"""The card of a model: what was asked and what came of it, for people; its record beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stockpot.checkpoints.record import MEMBER, RECORD, Record, write_record
from stockpot.checkpoints.seen import Seen, write_seen

_TITLES = {
    "new": "New",
    "fuse": "Fused with",
    "harden": "Hardened with",
    "season": "Seasoned with",
    "tune": "Tuned with",
}
_LONGEST = 120
"""Values beyond so many letters stand in the record alone."""
_MOST = 40


def write_card(
    folder: Path, record: Record, *, summary: str = "", paper: str = "", seen: Seen | None = None
) -> None:
    """Write `README.md` for people, `stockpot.json` for programs, and the hashes of images seen.

    Args:
        folder: the model's.
        record: what is known of it.
        summary: the method in a sentence.
        paper: where the method comes from.
        seen: the images that the model and its parents have seen.
    """
    record = record.model_copy(update={"seen": write_seen(folder, seen or Seen())})
    text = card(record, summary=summary, paper=paper)
    (folder / "README.md").write_text(text, encoding="utf-8")
    write_record(folder, record)


def card(record: Record, *, summary: str = "", paper: str = "") -> str:
    """The text of the card."""
    settings = dict(record.parameters)
    if record.seed is not None:
        settings["seed"] = record.seed
    versions = {key: value for key, value in record.versions.items() if value not in ("", None)}
    details = {k: v for k, v in record.details.items() if k not in ("command", "stages")}
    if stages := record.details.get("stages"):
        each = ", ".join(f"{name} {spent}" for name, spent in stages.items())
        details["seconds"] = f"{details['seconds']} ({each})"
    lines = [
        "---",
        "library_name: transformers",
        "tags:",
        *(["- model-fusion"] if record.verb == "fuse" else []),
        "- stockpot",
        f"- {record.method}",
        "---",
        "",
        f"# {_TITLES[record.verb]} {record.method}",
        "",
        summary + (f" ({paper})" if paper else ""),
        "",
        "## Made by",
        "",
        "```",
        str(record.details.get("command") or python_call(record)),
        "```",
        "",
        f"Parameters: {_listed(settings)}.",
        "",
        f"Versions: {_listed(versions)}. Digest `{record.digest}`.",
        "",
        "## Made from",
        "",
        "| role | name | file | sha256 |",
        "|---|---|---|---|",
        *_inputs(record),
    ]
    if record.seen:
        uses = [f"{count:,} in {use}" for use, count in record.seen.images.items()]
        lines += ["", f"Images seen, by it or its parents: {', '.join(uses) or 'not counted'}."]
    if rows := list(_rows(details, ()))[:_MOST]:
        lines += ["", "## What came of it", "", *rows]
    return "\n".join(lines) + "\n"


def _listed(values: Mapping[str, Any]) -> str:
    long = {key: len(str(value)) > _LONGEST for key, value in values.items()}
    shown = (f"{key}=(in {RECORD})" if long[key] else f"{key}={values[key]}" for key in values)
    return ", ".join(shown) or "none"


def _inputs(record: Record) -> Iterator[str]:
    for one in record.inputs:
        files = one.files or {one.source or "-": one.fingerprint or "not computed"}
        for file, digest in files.items():
            yield f"| {one.role} | `{one.name}` | {file} | `{digest}` |"


def _rows(details: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in details.items():
        place = (*path, str(key))
        if isinstance(value, Mapping):
            yield from _rows(value, place)
        elif key == "notes" and isinstance(value, list):
            yield from (f"- {note}" for note in value)
        elif value not in (None, "", []) and len(str(value)) <= _LONGEST:
            yield f"- {' '.join(place).replace('_', ' ')}: {value}"


def python_call(record: Record) -> str:
    """The call that makes such a model; what lay in memory has no name to call it by."""
    places: dict[str, list[str]] = {}
    for one in record.inputs:
        places.setdefault(one.role, []).append(one.source or one.name)
    settings = dict(record.parameters)
    if record.seed is not None:
        settings["seed"] = record.seed
    rest = "".join(f", {key}={value!r}" for key, value in settings.items())
    named = {"data", "validation", "source", "teacher", "base"}
    given = {role: places[role] for role in places if role in named}
    if record.verb == "new":
        data = places.get("classes", ["..."])[0]
        return f"stockpot.models.new.new_model({record.method!r}, {data!r}, ...{rest})"
    if record.verb == "fuse":
        first, tasks = repr(places.get(MEMBER, [])), given.pop("data", None)
        given |= {"tasks": tasks} if tasks else {}
    elif record.verb == "harden":
        first = ", ".join(repr(places.get(role, ["..."])[0]) for role in ("model", "data"))
        given.pop("data", None)
    else:
        first = f"{places.get(MEMBER, [])!r}, {places.get('data', ['...'])[0]!r}"
        given.pop("data", None)
    others = "".join(
        f", {key}={value if key == 'tasks' else value[0]!r}" for key, value in given.items()
    )
    verb = ".".join(("stockpot", record.verb))
    return f"{verb}({record.method!r}, {first}{others}, out=...{rest})"

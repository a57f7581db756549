"""The model card of a fused model: how it was made, from what, and by which command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Parent:
    """One checkpoint that went into a fused model."""

    role: str
    name: str
    files: Mapping[str, str]
    """File name -> sha256; empty for weights that were in memory."""


@dataclass(frozen=True)
class Origin:
    """Everything needed to make a fused model again."""

    method: str
    summary: str
    paper: str
    params: Mapping[str, Any]
    options: Mapping[str, Any]
    command: str
    parents: Sequence[Parent]
    notes: Sequence[str]
    version: str


def write_card(folder: Path, origin: Origin) -> None:
    """Write `README.md` for people and `fusion.json` for programs."""
    record = json.dumps(asdict(origin), indent=2, default=str)
    (folder / "fusion.json").write_text(record + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_markdown(origin), encoding="utf-8")


def _markdown(origin: Origin) -> str:
    rows = [
        f"| {parent.role} | `{parent.name}` | {file} | `{digest}` |"
        for parent in origin.parents
        for file, digest in (parent.files or {"in memory": "-"}).items()
    ]
    params = ", ".join(f"{key}={value}" for key, value in origin.params.items()) or "none"
    lines = [
        "---",
        "library_name: transformers",
        "tags:",
        "- model-fusion",
        "- stockpot",
        f"- {origin.method}",
        "---",
        "",
        f"# Fused with {origin.method}",
        "",
        origin.summary + (f" ({origin.paper})" if origin.paper else ""),
        "",
        "## Made by",
        "",
        "```",
        origin.command,
        "```",
        "",
        f"Parameters: {params}. Stockpot {origin.version}.",
        "",
        "## Parents",
        "",
        "| role | checkpoint | file | sha256 |",
        "|---|---|---|---|",
        *rows,
    ]
    if origin.notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in origin.notes)]
    return "\n".join(lines) + "\n"

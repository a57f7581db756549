"""docs/recipe-reference.md, made from the schema of a recipe and the signatures of methods.

stockpot validate --reference > docs/recipe-reference.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stockpot.recipe import json_schema

_BLOCKS = {
    "data": "DataEntry",
    "models": "ModelEntry",
    "harden": "HardenEntry",
    "fuse": "FuseEntry",
    "season": "SeasonEntry",
    "tune": "TuneEntry",
    "similarity": "SimilarityBlock",
    "measure": "MeasureBlock",
    "measure.with": "MeasureEntry",
    "report": "ReportBlock",
    "report.scatter": "ScatterBlock",
}
_METHODS = {
    "harden": "hardeners",
    "fuse": "fusers",
    "season": "seasoners",
    "measure.with": "measures",
}
_NAMED = {"data", "models", "harden", "fuse", "season", "tune"}
"""Blocks that hold entries by name."""


def recipe_reference() -> str:
    """The whole page."""
    schema = json_schema()
    lines = [
        "# Recipe reference",
        "",
        "Every key of a recipe, with its type and default, and the keys of every method. Made from",
        "the schema (`stockpot validate --schema` prints it for editors) by",
        "`stockpot validate --reference > docs/recipe-reference.md`; a test keeps it true. "
        "`stockpot show NAME`",
        "explains the parameters of one method, `stockpot init` writes a first recipe.",
        "",
        "## The whole file",
        "",
        *_table(schema),
    ]
    for block, title in _BLOCKS.items():
        definition = schema["$defs"][title]
        holds = " Entries by name." if block in _NAMED else ""
        lines += ["", f"## `{block}`", "", f"{definition.get('description', '')}{holds}", ""]
        lines += _table(definition)
        if block == "harden":
            lines += _training()
        if block in _METHODS:
            lines += _methods(_METHODS[block])
        if block == "fuse":
            lines += _methods("finishers")
    return "\n".join(lines) + "\n"


def _table(definition: Mapping[str, Any]) -> list[str]:
    needed = definition.get("required", [])
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, facts in definition.get("properties", {}).items():
        default = "required" if name in needed else _default(facts)
        rows.append(f"| `{name}` | {_type(facts)} | {default} | {_said(facts)} |")
    return rows


def _default(facts: Mapping[str, Any]) -> str:
    if "default" not in facts:
        return ""
    value = facts["default"]
    return "" if value is None or value == "" else f"`{json.dumps(value)}`"


def _type(facts: Mapping[str, Any]) -> str:
    if "anyOf" in facts:
        kinds = [_type(each) for each in facts["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "const" in facts:
        return f"`{json.dumps(facts['const'])}`"
    if "enum" in facts:
        return ", ".join(f"`{value}`" for value in facts["enum"])
    if "$ref" in facts:
        return _block_of(facts["$ref"].rpartition("/")[2])
    if facts.get("type") == "array":
        return f"list of {_type(facts.get('items', {}))}"
    if facts.get("type") == "object":
        inner = facts.get("additionalProperties")
        return f"entries: {_type(inner)}" if isinstance(inner, dict) and inner else "mapping"
    return str(facts.get("type", "any"))


def _block_of(title: str) -> str:
    names = [name for name, own in _BLOCKS.items() if own == title]
    return f"[`{names[0]}`](#{_anchor(names[0])})" if names else title


def _anchor(block: str) -> str:
    return block.replace(".", "")


def _said(facts: Mapping[str, Any]) -> str:
    return str(facts.get("description", "")).replace("|", "\\|")


def _training() -> list[str]:
    from stockpot.harden.record import training

    keys = ", ".join(_key(each) for each in training.parameters)
    return ["", f"Keys of every training beside those of its method: {keys}."]


def _methods(kind: str) -> list[str]:
    from stockpot.registries import registry

    entries = registry(kind)
    key = {"measures": "measure", "finishers": "then"}.get(kind, "method")
    rows = ["", f"| `{key}` | what | keys and defaults |"]
    rows.append("|---|---|---|")
    own = {row.name for row in entries.listings() if row.origin == "stockpot"}
    for name in sorted(own):
        entry = entries.get(name)
        summary = entry.doc.strip().splitlines()[0].replace("|", "\\|")
        keys = ", ".join(_key(each) for each in entry.parameters)
        rows.append(f"| `{name}` | {summary} | {keys} |")
    return rows


def _key(parameter: Any) -> str:
    if parameter.required:
        return f"`{parameter.name}` (required)"
    default = parameter.default
    if default is None or default == "" or default == ():
        return f"`{parameter.name}`"
    shown = ",".join(map(str, default)) if isinstance(default, tuple | list) else str(default)
    return f"`{parameter.name}={shown}`".replace("|", "\\|")

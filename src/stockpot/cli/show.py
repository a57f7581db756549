"""`stockpot show NAME`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stockpot.cli.options import AsJson, examples

if TYPE_CHECKING:
    from stockpot.registry import Entry

NAME = "show"
EXAMPLES = examples(
    "stockpot show clean",
    "stockpot show ties --json",
)


def command(
    name: Annotated[str, typer.Argument(help="A method, measure, dataset, ... by its name.")],
    as_json: AsJson = False,
) -> None:
    """Describe one method, measure, dataset or zoo model, with its parameters."""
    from stockpot.errors import UnknownNameError
    from stockpot.registries import KINDS, registry

    known: list[str] = []
    found: list[dict[str, Any]] = []
    for kind in KINDS:
        entries = registry(kind)
        known += entries.names()
        if name in entries:
            origin = next(row.origin for row in entries.listings() if row.name == name)
            found.append(_describe(entries.get(name), origin))
    if not found:
        card = _task_set(name, known) or _zoo_card(name, known)
        if card is not None:
            typer.echo(card)
            return
        raise UnknownNameError("method, measure, dataset or zoo model", name, known)
    if as_json:
        typer.echo(json.dumps(found if len(found) > 1 else found[0], indent=1, default=str))
        return
    for description in found:
        _print(description)


def _describe(entry: Entry[Any], origin: str) -> dict[str, Any]:
    description, _, _ = entry.doc.partition("\nArgs:\n")
    rows = [parameter._asdict() for parameter in entry.parameters]
    if entry.kind == "hardeners":
        from stockpot.harden.record import training

        rows += [parameter._asdict() for parameter in training.parameters]
    return {
        "name": entry.name,
        "kind": entry.kind,
        "paper": entry.paper,
        "description": description.strip(),
        "module": entry.function.__module__,
        "origin": origin,
        "parameters": rows,
    }


def _print(description: dict[str, Any]) -> None:
    from stockpot.cli.console import table

    paper = f"  ({description['paper']})" if description["paper"] else ""
    origin = description["origin"]
    plugged = "" if origin == "stockpot" else f", from the plug-in {origin}"
    typer.echo(f"{description['name']}: one of the {description['kind']}{paper}{plugged}\n")
    typer.echo(description["description"] + "\n")
    rows = [
        (row["name"], row["type"], "required" if row["required"] else row["default"], row["doc"])
        for row in description["parameters"]
    ]
    if rows:
        table(["parameter", "type", "default", "meaning"], rows)
    else:
        typer.echo("It takes no parameters.")


def _task_set(name: str, known: list[str]) -> str | None:
    from stockpot.datasets.tasks.sets import TASK_SETS

    known += TASK_SETS
    if name not in TASK_SETS:
        return None
    return f"{name}: a set of {len(TASK_SETS[name])} datasets, {', '.join(TASK_SETS[name])}"


def _zoo_card(name: str, known: list[str]) -> str | None:
    from stockpot.zoo import cards

    for card in cards():
        known.append(card.name)
        if card.name == name:
            return card.text
    return None

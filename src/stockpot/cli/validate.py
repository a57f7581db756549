"""`stockpot validate RECIPE`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from stockpot.cli.options import examples

NAME = "validate"
EXAMPLES = examples(
    "stockpot validate recipes/demo.yaml",
    "stockpot validate --schema > r.json",
)


def command(
    recipe: Annotated[str | None, typer.Argument(help="A recipe file.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="a.b=c", help="Change a value first.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema.")] = False,
    reference: Annotated[
        bool, typer.Option("--reference", help="Print docs/recipe-reference.md.")
    ] = False,
) -> None:
    """Check a recipe without running it: keys, names, methods and their parameters."""
    from stockpot.errors import UserError
    from stockpot.recipe import json_schema
    from stockpot.run.check import check
    from stockpot.run.follow import read

    if schema:
        typer.echo(json.dumps(json_schema(_parameters()), indent=1))
        return
    if reference:
        from stockpot.cli.reference import recipe_reference

        typer.echo(recipe_reference(), nl=False)
        return
    if recipe is None:
        raise UserError("expected a recipe file (or --schema, --reference).")
    file = read(recipe, overrides or ())
    check(file)
    found = file.recipe
    cells = len(found.measure.with_) if found.measure else 0
    typer.echo(
        f"{recipe} is well formed: {len(found.data)} datasets, {len(found.model_names)} models, "
        f"{cells} measures."
    )


def _parameters() -> dict[str, dict[str, Any]]:
    from stockpot.harden.record import training
    from stockpot.registries import registry

    titles = {
        "HardenEntry": "hardeners",
        "FuseEntry": "fusers",
        "SeasonEntry": "seasoners",
        "MeasureEntry": "measures",
    }
    found: dict[str, dict[str, Any]] = {}
    for title, kind in titles.items():
        entries = registry(kind)
        extra = training.schema.model_json_schema()["properties"] if kind == "hardeners" else {}
        found[title] = {
            name: entries.get(name).schema.model_json_schema().get("properties", {}) | extra
            for name in entries.names()
        }
    return found

"""The `similarity` block of a recipe: how alike the changes of several models are."""

from __future__ import annotations

from pathlib import Path

from stockpot.recipe import Recipe


def compare_changes(recipe: Recipe, folder: Path) -> None:
    """Print the cosines of the changes; keep them as CSV and as a picture for the page."""
    if recipe.similarity is None:
        return
    from stockpot.cli.console import table
    from stockpot.cli.make import checkpoint
    from stockpot.files import write_atomic
    from stockpot.fuse.similarity import similarity

    block = recipe.similarity
    members = {name: checkpoint(recipe, name, folder) for name in block.models}
    found = similarity(checkpoint(recipe, block.base, folder), members)
    rows = [
        [name, f"{float(norm):.3f}", *(f"{value:.3f}" for value in cosines)]
        for name, norm, cosines in zip(found.names, found.norms, found.cosine.tolist(), strict=True)
    ]
    table(["model", "length", *found.names], rows, title=f"cosine of the changes from {block.base}")
    write_atomic(folder / "similarity.csv", found.to_csv())
    write_atomic(folder / "figures" / "cosine_of_the_changes.svg", found.to_svg())

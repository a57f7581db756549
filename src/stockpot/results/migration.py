"""How an older result file is read: one step for each version of the schema, applied in turn.

A new version needs a new number in `VERSION` and one function here, from the document of the
version before to its own; files on disk stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VERSION = 2
Document = dict[str, Any]


def migrated(document: Document) -> Document:
    """The document as the present version would have written it; a newer one as it is."""
    version = document.get("schema_version", 1)
    while version in STEPS:
        document = STEPS[version](document)
        version += 1
        document = {**document, "schema_version": version}
    return document


def _sizes_of_outcomes(document: Document) -> Document:
    """Version 2 says how many images an outcome has where it is not about the data itself.

    In version 1 that could be read off the score that belongs to it. The fields of the key that
    say how cells belong together (entry, training seed, sweep) came in between, and may be there.
    """
    sizes = {}
    count = document.get("data", {}).get("n")
    for score in document.get("scores", []):
        name = f"outside:{score.get('condition', {}).get('set')}"
        if score.get("metric") == "outside_accuracy" and name in document.get("outcomes", {}):
            sizes[name] = score["n"]
    kept = {name: size for name, size in sizes.items() if size != count}
    return {**document, "outcome_sizes": kept}


STEPS: dict[int, Callable[[Document], Document]] = {1: _sizes_of_outcomes}

"""The class names, and the sentences around them, that a user gives with a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stockpot.datasets.words.given import lines_of
from stockpot.errors import BadParameterError, shortened


def with_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with class names as texts; one text is no list of them, though it has letters.

    Templates may be a file of them.
    """
    if isinstance(options.get("templates"), str | Path):
        options = {**options, "templates": lines_of(options["templates"], "templates")}
    given = options.get("classes")
    if given is None:
        return dict(options)
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else ()
    if not names or not all(isinstance(name, str | int) for name in names):
        raise BadParameterError(
            f"classes: expected a list of class names, got {shortened(repr(given), 60)}."
        )
    return {**options, "classes": tuple(map(str, names))}

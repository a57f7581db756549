"""What the columns of a dataset say of its pictures: style, version, concept; and rows by them.

Values are compared whole, never by a part of a name or path: `monkey` the concept is not `monkey`
the class, and `books` does not hold out a class of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError, UnknownNameError

STYLE = ("family", "style")
"""Who drew a picture: by design family where one is named, since its styles share outlines."""
CONCEPT = ("concept", "kind")
"""What it shows, more closely than its class."""
VERSION = ("version",)
"""Which edition of its designer's work it is."""
OWNER = ("vendor", "family", "style")
"""Whose editions are versions of one another."""
LOOK_ALIKES = "look_alikes"
"""The column of concepts that nobody could tell apart and that no split may tear apart."""

LISTS: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "families": (STYLE, True),
    "exclude_families": (STYLE, False),
    "concepts": (CONCEPT, True),
    "exclude_concepts": (CONCEPT, False),
}
"""Option -> the column that it goes by, and whether its values are taken or left out."""


def column(data: Dataset, names: Sequence[str], what: str) -> tuple[str, ...]:
    """The first of these columns that the data have."""
    for name in names:
        if name in data.columns:
            return data.columns[name]
    there = ", ".join(data.columns) or "none"
    raise BadDataError(
        f"{data.name}: {what} needs a column {' or '.join(names)}; there are {there}.",
        hint="A folder of pictures gets columns from a file metadata.csv (docs/surface.md).",
    )


def class_names(data: Dataset) -> tuple[str, ...]:
    """The class of each picture."""
    return tuple(data.classes[label] for label in data.labels.tolist())


def listed(given: str | int | Sequence[str | int]) -> tuple[str, ...]:
    """The values of an option that is a list, one value, or several with commas between."""
    if isinstance(given, str):
        return tuple(part.strip() for part in given.split(",") if part.strip())
    return (str(given),) if isinstance(given, int) else tuple(str(value) for value in given)


def check_values(data: Dataset, option: str, values: Sequence[str], there: Sequence[str]) -> None:
    """Raise for a value that no picture has."""
    known = dict.fromkeys(there)
    for value in values:
        if value not in known:
            raise UnknownNameError(f"value of {option} of {data.name}", value, known)


def listed_rows(data: Dataset, given: Mapping[str, Sequence[str] | str]) -> Dataset:
    """The pictures that lists of families and concepts leave."""
    keep = [True] * len(data)
    for option, values in given.items():
        names, taken = LISTS[option]
        own = column(data, names, option)
        wanted = set(listed(values))
        check_values(data, option, sorted(wanted), own)
        keep = [kept and (value in wanted) == taken for kept, value in zip(keep, own, strict=True)]
    rows = [row for row, kept in enumerate(keep) if kept]
    if not rows:
        said = ", ".join(f"{option}={','.join(listed(value))}" for option, value in given.items())
        raise BadDataError(f"{data}: no picture is left by {said}.")
    return data.take(rows)

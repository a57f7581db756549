"""Datasets that a parameter of a measure names, beside the one that is measured on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.kept import kept_dataset
from stockpot.errors import BadDataError, BadParameterError
from stockpot.types import Check, Reference


def read_sets(value: Any) -> dict[str, Any]:
    """Datasets by name, from a text with commas, a list, or a mapping.

    Each is a dataset's name, a folder or file, or its options with `dataset` for the name.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping) and "dataset" not in value:
        return dict(value)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    listed = [value] if isinstance(value, Mapping | Dataset) else list(value)
    found: dict[str, Any] = {}
    for chosen in listed:
        name = _name_of(chosen)
        if name in found:
            raise BadParameterError(
                f"two sets are called {name!r}.", hint="Give a mapping from names to datasets."
            )
        found[name] = chosen
    return found


def _read_one(value: Any) -> Any:
    if isinstance(value, str | Dataset) or (isinstance(value, Mapping) and "dataset" in value):
        return value
    raise BadParameterError(f"expected a dataset, or options with `dataset`, got {value!r}.")


Sets = Annotated[dict[str, Any], Reference("data"), Check(read_sets)]
"""Several datasets: their names with commas between, a list, or a mapping from names."""
Chosen = Annotated[Any, Reference("data"), Check(_read_one)]
"""One dataset: its name, folder or file, or options with `dataset` for the name."""


_FINGERPRINT = "fingerprint"

SPLITS = ("train", "val")
RELATED = (*SPLITS, "content")
"""Not datasets of their own: splits of the measured data, or a part of it by content."""


def load_chosen(chosen: Any, what: str) -> Dataset:
    """A dataset as a parameter names it; the last few are kept.

    Args:
        chosen: a dataset, a name, or options with `dataset` for the name.
        what: how messages call it.
    """
    if isinstance(chosen, Dataset):
        return chosen
    if isinstance(chosen, str):
        return kept_dataset(chosen, {})
    if not isinstance(chosen, Mapping) or "dataset" not in chosen:
        raise BadParameterError(
            f"{what}: expected a dataset's name, or options with `dataset`, got {chosen!r}."
        )
    options = {k: value for k, value in chosen.items() if k not in ("dataset", _FINGERPRINT)}
    data = kept_dataset(str(chosen["dataset"]), options)
    if not data.fingerprint.startswith(chosen.get(_FINGERPRINT, "")):
        raise BadDataError(
            f"{what}: {data} holds other images ({data.fingerprint[:16]}) than those that were "
            f"measured ({chosen[_FINGERPRINT]})."
        )
    return data


def marked(value: Any, what: str) -> Any:
    """A parameter that names datasets, with what they hold in place of where they lie."""
    if isinstance(value, Mapping) and "dataset" not in value:
        return {name: marked(chosen, f"{what}.{name}") for name, chosen in value.items()}
    if value in RELATED:
        return value
    data = load_chosen(value, what)
    return f"{data}@{data.fingerprint[:16]}"


def with_fingerprint(value: Any, what: str) -> dict[str, Any]:
    """A dataset as `load_chosen` takes it, with what it holds, for results that say where it is."""
    data = load_chosen(value, what)
    if isinstance(value, Dataset):
        told: dict[str, Any] = {"dataset": str(data)}
    else:
        told = dict(value) if isinstance(value, Mapping) else {"dataset": value}
    return {**told, _FINGERPRINT: data.fingerprint[:16]}


def _name_of(chosen: Any) -> str:
    if isinstance(chosen, Dataset):
        return chosen.name
    place = str(chosen["dataset"]) if isinstance(chosen, Mapping) else str(chosen)
    return place.rstrip("/").rpartition("/")[2]

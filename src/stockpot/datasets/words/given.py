"""Words that a user gives with any dataset: `classnames=`, `templates=` and `words=`.

`classnames` and `templates` are lists, or files: one entry a line, or a JSON list. `words` names a
convention: that of the data, or `data`, its own names and templates where there is a convention.
What is given wins over the words that lie beside a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.words.conventions import own_words, words_of
from stockpot.datasets.words.words import DATA, GIVEN, Words
from stockpot.errors import BadParameterError
from stockpot.foreign import parse_json, read_text

KEYS = ("classnames", "templates", "words")


def with_words(data: Dataset, given: Mapping[str, Any]) -> Dataset:
    """The dataset with these words in place of its own."""
    found = words_of(data)
    if (named := given.get("words", found.convention)) != found.convention:
        if named != DATA:
            known = " or ".join(dict.fromkeys((found.convention, DATA)))
            raise BadParameterError(
                f"words: expected {known} for {data.name}, got {named!r}.",
                hint="Give words of your own with classnames=FILE and templates=FILE.",
            )
        found = own_words(data)
    if not {"classnames", "templates"} & set(given):
        return replace(data, vocabulary=replace(found, chosen=True))
    names = lines_of(given["classnames"], "classnames") if "classnames" in given else found.names
    if len(names) != len(data.classes):
        raise BadParameterError(
            f"classnames: expected {len(data.classes)}, one for each class of {data.name} in its "
            f"order ({', '.join(data.classes[:3])}, ...), got {len(names)}."
        )
    templates = found.templates
    if "templates" in given:
        templates = lines_of(given["templates"], "templates")
    return replace(data, vocabulary=Words(names, templates, GIVEN, chosen=True))


def lines_of(given: str | Path | Sequence[str], key: str) -> tuple[str, ...]:
    """The entries of a list, or of a file with one a line or with a JSON list."""
    if not isinstance(given, str | Path):
        return _texts(given, key, key)
    path = Path(given).expanduser()
    what = f"{key}: a text file with one entry a line, or a JSON list, at {path}"
    text = read_text(path, BadParameterError, what)
    if text.lstrip()[:1] not in ("[", "{"):
        return _texts([line.strip() for line in text.splitlines() if line.strip()], key, str(path))
    return _texts(parse_json(text, f"{key}: {path}", BadParameterError), key, str(path))


def _texts(found: Any, key: str, where: str) -> tuple[str, ...]:
    listed = isinstance(found, Sequence) and not isinstance(found, str)
    if not listed or not found or not all(isinstance(entry, str) and entry for entry in found):
        raise BadParameterError(f"{key}: expected a list of texts in {where}.")
    return tuple(found)

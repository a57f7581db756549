"""Words: how the classes of a task are called, and the sentences around their names.

A zero-shot head is made of them, so two sets of words are two benchmarks. They carry the name of
their convention and a digest, which stand in results.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Protocol

from stockpot.datasets.natural.classes import worded
from stockpot.errors import BadParameterError

DATA = "data"
"""The convention of data that follows none: its class names in its own templates."""
GIVEN = "given"
"""The convention of words that a user gave."""
MODEL = "model"
"""The convention of words that lie beside a model, which it was trained with."""


@dataclass(frozen=True)
class Words:
    """Names in the order of the classes, and templates with `{}` for a name."""

    names: tuple[str, ...]
    templates: tuple[str, ...]
    convention: str = DATA
    chosen: bool = False
    """Whether a user asked for them: then they win over those that lie beside a model."""

    def __post_init__(self) -> None:
        if not self.templates:
            raise BadParameterError("templates: expected at least one, got none.")
        for template in self.templates:
            if "{}" not in template:
                raise BadParameterError(
                    f"templates: expected a {{}} for the class name, got {template!r}."
                )

    @property
    def prompts(self) -> tuple[tuple[str, ...], ...]:
        """For each class every template with its name."""
        return tuple(
            tuple(template.replace("{}", name) for template in self.templates)
            for name in self.names
        )

    @property
    def digest(self) -> str:
        """The sha256 of names and templates, in their order."""
        text = json.dumps([self.names, self.templates], ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.convention}:{self.digest[:12]}"


class Spoken(Protocol):
    """A dataset, or whatever else has classes and may say how they are called."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def templates(self) -> tuple[str, ...]: ...

    @property
    def vocabulary(self) -> Words | None: ...


def said(
    classes: tuple[str, ...], names: tuple[str, ...] | None, templates: tuple[str, ...]
) -> Words:
    """Names in templates as they are given; without names the classes are called as they are."""
    if names is None:
        return plain_words(classes, templates)
    return Words(tuple(names), tuple(templates))


def plain_words(classes: tuple[str, ...], templates: tuple[str, ...]) -> Words:
    """Class names as they are, but that underscores are read as spaces.

    Folders named by WordNet ids say nothing to a text tower: those of ImageNet get their words.
    """
    return Words(tuple(name.replace("_", " ") for name in worded(classes)), tuple(templates))

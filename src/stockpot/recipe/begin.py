"""A first recipe from four answers: which models, which data, how to fuse, what to measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import yaml

NOTHING = "none"
"""The answer that fuses nothing."""


class Answers(NamedTuple):
    """What a recipe is begun from."""

    models: Mapping[str, str]
    """Name -> source."""
    data: str
    fuse: str
    """A fusion method, or `none`."""
    measures: Sequence[str]


def first_recipe(answers: Answers, *, base: bool = False, limit: int = 200) -> str:
    """The text of the recipe.

    Args:
        answers: to the four questions.
        base: whether the fusion starts from a base; the first model is then taken for it.
        limit: images at the start, so that the first run is short.
    """
    names = list(answers.models)
    lines = [
        "# Check it with `stockpot validate`, follow it with `stockpot run`. Every key is in",
        "# docs/recipe-reference.md; `stockpot show NAME` describes a method or a measure.",
        "version: 1",
        "seed: 0",
        "",
        "data:",
        f"  data: {{dataset: {_text(answers.data)}, limit: {limit}}}"
        "  # without `limit` all images are used",
        "",
        "models:",
        *(f"  {_text(name)}: {{load: {_text(source)}}}" for name, source in answers.models.items()),
    ]
    if answers.fuse != NOTHING:
        members = names[1:] if base else names
        lines += ["", "fuse:", "  fused:", f"    method: {answers.fuse}"]
        lines += [f"    base: {_text(names[0])}  # the first of the models"] if base else []
        lines += [f"    models: [{', '.join(map(_text, members))}]"]
    lines += ["", "measure:", "  with:"]
    lines += [f"    - {{measure: {name}, data: data}}" for name in answers.measures]
    return "\n".join([*lines, "", "report:", "  title: A first look", ""])


def _text(value: str) -> str:
    """A text as YAML takes it inside braces."""
    return yaml.safe_dump([value], default_flow_style=True, width=10**6).strip()[1:-1]

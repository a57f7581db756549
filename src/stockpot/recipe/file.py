"""A recipe file: read, changed by overrides, checked; every complaint names its line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import BaseModel, ValidationError

from stockpot.errors import UserError, did_you_mean, shortened
from stockpot.foreign import YamlError, parse_yaml, read_text, read_value
from stockpot.recipe.blocks import MeasureBlock, Recipe, ReportBlock, SimilarityBlock, references
from stockpot.recipe.variants import write_out

Overrides = Sequence[str] | Mapping[str, Any]
"""Values to change: texts such as `data.test.limit=8`, or values by such a path."""


Place = Callable[[dict[str, Any]], dict[str, Any]]
"""From the values of a recipe to the same with paths that hold from here."""


class RecipeError(UserError):
    """A recipe that cannot be followed; the message starts with file and line."""


class RecipeFile:
    """A recipe with the place of each key, so that a complaint can name its line."""

    def __init__(
        self, text: str, name: str, overrides: Overrides = (), place: Place | None = None
    ) -> None:
        self.name = name
        self._place = place
        self._text = text
        self._overrides = _parsed(overrides)
        try:
            raw, node = parse_yaml(text, unique=True)
        except YamlError as problem:
            raise RecipeError(f"{name}:{problem.line}: not YAML: {problem}.") from problem
        if not isinstance(raw, dict):
            raise RecipeError(f"{name}:1: expected a mapping with version, data, models, ...")
        self._node = node
        raw = place(raw) if place else raw
        for path, value in self._overrides.items():
            _apply(raw, path, value)
        self.raw: dict[str, Any] = raw
        written = write_out(raw)
        self._variants = written.variants
        for twice in written.clashes:
            self.fail(twice, "this name is used twice.")
        try:
            self.recipe = Recipe.model_validate(written.recipe).with_variants(written.variants)
        except ValidationError as problem:
            self._complain(problem)
        self._check_references()

    def __repr__(self) -> str:
        return f"RecipeFile({self.name}: {self.recipe})"

    def changed(self, overrides: Overrides) -> RecipeFile:
        """The same recipe with further values changed."""
        given = self._overrides | _parsed(overrides)
        return RecipeFile(self._text, self.name, given, self._place)

    def fail(self, path: Sequence[str | int], message: str) -> NoReturn:
        """Raise a complaint about the value at a path of keys."""
        where = ".".join(str(part) for part in path)
        raise RecipeError(f"{self.name}:{self.line(path)}: {where}: {message}")

    def line(self, path: Sequence[str | int]) -> int:
        """The line of the key at a path, or of its nearest parent that stands in the file."""
        node, line = self._node, 1
        for part in path:
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value in (str(part), self._entry(str(part))):
                        node, line = value, key.start_mark.line + 1
                        break
                else:
                    return line
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                if part >= len(node.value):
                    return line
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                return line
        return line

    def _entry(self, label: str) -> str:
        """The entry that a label was written out from."""
        return self._variants[label].entry if label in self._variants else label

    def _complain(self, problem: ValidationError) -> NoReturn:
        error = problem.errors()[0]
        path = tuple(part for part in error["loc"] if isinstance(part, str | int))
        if error["type"] == "extra_forbidden":
            known = _fields_at(Recipe, path[:-1])
            near = did_you_mean(str(path[-1]), known)
            self.fail(path, f"unknown key.{near} Known: {', '.join(known)}.")
        message = error["msg"].removeprefix("Value error, ")
        given = (
            f", got {shortened(repr(error['input']), 80)}"
            if error["type"] not in ("missing", "value_error")
            else ""
        )
        self.fail(path, f"{message[0].lower()}{message[1:]}{given}.")

    def _check_references(self) -> None:
        recipe = self.recipe
        seen: set[str] = set()
        for title in ("models", "harden", "fuse", "season", "tune"):
            for name in getattr(recipe, title):
                if name in seen:
                    self.fail((title, name), "this name is used twice.")
                seen.add(name)
                made = title != "models" or recipe.models[name].new is not None
                if made and ("/" in name or name.startswith(".")):
                    self.fail(
                        (title, name),
                        "expected a name that can be that of a folder: no slash, no dot in front.",
                    )
        self._check_members()
        for path, kind, name in references(recipe):
            known = list(recipe.data) if kind == "data" else recipe.model_names
            if name not in known:
                near = did_you_mean(name, known)
                listing = ", ".join(known) or "none"
                self.fail(path, f"no {kind} named {name!r} here.{near} Known: {listing}.")

    def _check_members(self) -> None:
        recipe = self.recipe
        for title in ("fuse", "season", "tune"):
            for name, entry in getattr(recipe, title).items():
                twice = [one for one in entry.models if entry.models.count(one) > 1]
                if twice:
                    self.fail(
                        (title, name, "models"),
                        f"{twice[0]} stands here twice: name each member once; to count one more "
                        "than another, use `weights`.",
                    )


def load_recipe(
    path: str | Path, overrides: Overrides = (), place: Place | None = None
) -> RecipeFile:
    """Read a recipe file and apply overrides: `a.b=c` as text, or values by their path `a.b`.

    Args:
        path: the file.
        overrides: values to change.
        place: brings paths in the file to where they lie, before values are changed.
    """
    file = Path(path)
    try:
        file.stat()
    except FileNotFoundError:
        folder = file.parent if file.parent.is_dir() else Path()
        near = did_you_mean(file.name, [found.name for found in folder.glob("*.yaml")])
        raise RecipeError(f"no recipe at {path}.{near}") from None
    except (OSError, ValueError):
        pass  # such as a name with a zero byte: reading says what is wrong
    return RecipeFile(read_text(file, RecipeError), str(path), overrides, place)


def _parsed(overrides: Overrides) -> dict[str, Any]:
    """Overrides as values by their paths."""
    if isinstance(overrides, Mapping):
        return dict(overrides)
    found: dict[str, Any] = {}
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise RecipeError(f"--set {text}: expected KEY=VALUE, such as seed=1.")
        try:
            found[path] = read_value(value)
        except YamlError as problem:
            raise RecipeError(f"--set {text}: not a value: {problem}.") from problem
    return found


def _apply(raw: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    place: Any = raw
    for key in parents:
        if isinstance(place, list) and key.isdigit() and int(key) < len(place):
            place = place[int(key)]
        elif isinstance(place, dict):
            place = place.setdefault(key, {})
        else:
            raise RecipeError(f"--set {path}: {key!r} is not a place in the recipe.")
    if isinstance(place, list) and last.isdigit() and int(last) < len(place):
        place[int(last)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise RecipeError(f"--set {path}: {last!r} is not a place in the recipe.")


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The keys that may stand at a place of the recipe."""
    inner: dict[str, type[BaseModel]] = {
        "measure": MeasureBlock,
        "report": ReportBlock,
        "similarity": SimilarityBlock,
    }
    if path and path[0] in inner:
        model = inner[str(path[0])]
    return [field.alias or name for name, field in model.model_fields.items()]

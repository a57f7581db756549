"""Files that somebody else wrote: read within limits, and refused in one line.

A reader of a foreign format may break anywhere when a file is cut short, spoilt or hostile. Whoever
reads one does it inside `reading`, so that whatever the reader raises becomes one line about that
file; JSON and YAML come through here, because both can be made to nest without end, and YAML to
stand for far more than it says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from stockpot.errors import BadDataError, UserError, shortened

LONGEST_TEXT = 64 * 2**20
"""Bytes of a text or JSON file that is read whole; none that is meant is longer."""
LONGEST_YAML = 500_000
"""Characters of a YAML file: written by hand, and slow to read."""
_DEEPEST = 60
_MOST_VALUES = 100_000
"""Values that a YAML file may stand for, what its aliases repeat counted each time."""


@contextmanager
def reading(
    what: object, kind: type[UserError] = BadDataError, *, hint: str = ""
) -> Iterator[None]:
    """Turns whatever a reader of a foreign format raises into one line.

    Args:
        what: the file, as messages name it.
        kind: what is raised.
        hint: what to do.
    """
    try:
        yield
    except UserError:
        raise
    # Readers of others raise what they like on spoilt files, a lack of memory included.
    except Exception as problem:
        raise kind(f"{what} cannot be read ({reason(problem)}).", hint=hint) from problem


def reason(problem: BaseException) -> str:
    """The first line of what an error says, shortened; its kind where it says nothing."""
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    if isinstance(problem, MemoryError):
        return "it would need more memory than there is"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    lines = str(problem).strip().splitlines()
    name = type(problem).__name__
    if not lines:
        return name
    # Such errors say no more than a key or a number.
    named = isinstance(problem, KeyError | IndexError | AttributeError | AssertionError)
    return shortened(f"{name}: {lines[0]}" if named else lines[0].rstrip(" .:"), 160)


def read_text(path: Path, kind: type[UserError] = BadDataError, what: object = None) -> str:
    """The text of a file in UTF-8, with or without a mark of its byte order."""
    with reading(what or path, kind):
        with path.open("rb") as file:
            data = file.read(LONGEST_TEXT + 1)
        if len(data) > LONGEST_TEXT:
            raise ValueError(f"it is longer than {LONGEST_TEXT // 2**20} MiB")
        return data.decode("utf-8-sig")


def parse_json(text: str | bytes, what: object, kind: type[UserError] = BadDataError) -> Any:
    """The value of a JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise kind(f"{what} is not JSON ({reason(problem)}).") from problem


def read_json(path: Path, kind: type[UserError] = BadDataError, what: object = None) -> Any:
    """The value in a JSON file."""
    return parse_json(read_text(path, kind, what), what or path, kind)


def read_json_object(path: Path, kind: type[UserError] = BadDataError) -> dict[str, Any]:
    """The object in a JSON file; anything else is refused."""
    found = read_json(path, kind)
    if not isinstance(found, dict):
        raise kind(f"{path}: expected a JSON object, got {shortened(repr(found), 60)}.")
    return found


class Yaml(NamedTuple):
    """A YAML text: its value, and the nodes that say where everything stands."""

    value: Any
    node: yaml.Node | None


class YamlError(UserError):
    """A text that is no YAML, or more than is read; `line` and `column` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line, self.column = line, column


def parse_yaml(text: str, *, unique: bool = False) -> Yaml:
    """The value of a YAML text, as plain data: no tag of it makes anything else.

    Args:
        text: what was written.
        unique: refuse a key that stands twice in one mapping; else the last one counts.

    Raises:
        YamlError: that says where.
    """
    if len(text) > LONGEST_YAML:
        raise YamlError(f"it is longer than {LONGEST_YAML} characters", 1, 1)
    loader: Any = None
    try:
        loader = _Shallow(text)
        node = loader.get_single_node()
        if node is None:
            return Yaml(None, None)
        _check(node, unique, {}, [])
        return Yaml(loader.construct_document(node), node)
    except UserError:
        raise
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise YamlError(problem.problem or "it cannot be read", *place) from problem
    # A date that does not exist, a number that is none, nesting without end, a control character.
    except Exception as problem:
        mark = loader.get_mark() if loader is not None else None
        line = mark.line + 1 if mark is not None and not isinstance(problem, ValueError) else 1
        raise YamlError(reason(problem), line, 1) from problem


class _Shallow(yaml.SafeLoader):
    """Stops at nesting that nobody writes; the time of its parent grows with the square of it."""

    def fetch_flow_collection_start(self, kind: Any) -> None:
        self._deeper(self.flow_level)
        super().fetch_flow_collection_start(kind)

    def add_indent(self, column: int) -> bool:
        self._deeper(len(self.indents))
        return bool(super().add_indent(column))

    def _deeper(self, depth: int) -> None:
        if depth >= _DEEPEST:
            mark = self.get_mark()
            raise YamlError("it is nested too deeply", mark.line + 1, mark.column + 1)


def read_value(text: str) -> Any:
    """The value of a few words of YAML, such as that of an option."""
    return parse_yaml(text).value


def _check(node: yaml.Node, unique: bool, known: dict[int, int], above: list[int]) -> int:
    """How many values a node stands for; refuses what never ends."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    number = id(node)
    mark = node.start_mark
    place = (mark.line + 1, mark.column + 1)
    if number in above:
        raise YamlError("a value that contains itself", *place)
    if number in known:
        return known[number]
    if len(above) > _DEEPEST:
        raise YamlError("it is nested too deeply", *place)
    below = [*above, number]
    if isinstance(node, yaml.MappingNode):
        if unique:
            _check_keys(node.value)
        inner = [part for pair in node.value for part in pair]
    else:
        inner = list(node.value)
    count = 1 + sum(_check(part, unique, known, below) for part in inner)
    if count > _MOST_VALUES:
        raise YamlError(f"it stands for more than {_MOST_VALUES} values", *place)
    known[number] = count
    return count


def _check_keys(pairs: Sequence[tuple[yaml.Node, yaml.Node]]) -> None:
    seen = set()
    for key, _ in pairs:
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in seen and key.value != "<<":
                mark = key.start_mark
                raise YamlError(
                    f"the key {shortened(key.value, 60)!r} stands here twice",
                    mark.line + 1,
                    mark.column + 1,
                )
            seen.add((key.tag, key.value))

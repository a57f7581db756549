"""Registries: a method is a function, and its signature is its schema.

A room's methods register themselves with a decorator whose name is a literal:

    @fusers.register("ties", paper="arXiv:2306.01708")
    def ties(*, density: float = 0.2, scale: float = 0.3) -> TensorFuser:
        '''Trim small changes, elect a sign, merge what agrees.'''

Because the name is a literal, a registry can list a room by reading its source, without importing
it (and so without torch); looking a name up imports only the file that defines it. Third parties
add names through the entry-point group `stockpot.<kind>`, which is loaded only when a name is
unknown here.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from stockpot.errors import BadParameterError, UnknownNameError, UserError, did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


class Parameter(NamedTuple):
    """One user-settable parameter of a registered function."""

    name: str
    type: str
    default: object
    required: bool
    doc: str


class Listing(NamedTuple):
    """What can be said of a name without importing its module."""

    name: str
    summary: str
    module: str
    paper: str


@dataclass(frozen=True)
class Entry(Generic[F]):
    """A registered function with its parameters as a schema."""

    kind: str
    name: str
    function: F
    paper: str = ""
    tags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def doc(self) -> str:
        """The docstring, dedented."""
        return inspect.getdoc(self.function) or ""

    @property
    def summary(self) -> str:
        """The docstring's first line."""
        return self.doc.partition("\n")[0]

    @cached_property
    def _settable(self) -> dict[str, inspect.Parameter]:
        # What the caller supplies (images, a model, tensors) is positional without a default; what
        # a user may set is keyword-only or has a default.
        chosen = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            keyword_only = parameter.kind is parameter.KEYWORD_ONLY
            has_default = parameter.default is not parameter.empty
            if name not in self.tags.get("given", ()) and (keyword_only or has_default):
                chosen[name] = parameter
        return chosen

    @cached_property
    def schema(self) -> type[BaseModel]:
        """A pydantic model of the parameters; unknown keys are errors."""
        hints = get_type_hints(self.function)
        fields: dict[str, Any] = {}
        for name, parameter in self._settable.items():
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (hints.get(name, Any), default)
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
        return create_model(self.name, __config__=config, **fields)

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters as rows for `stockpot show` and the docs."""
        docs = _argument_docs(self.doc)
        hints = get_type_hints(self.function)
        rows = []
        for name, parameter in self._settable.items():
            required = parameter.default is parameter.empty
            default = None if required else parameter.default
            annotation = parameter.annotation
            text = (
                annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
            )
            if get_origin(hints.get(name)) is Literal:  # what may be written, not an alias of it
                text = " | ".join(str(choice) for choice in get_args(hints[name]))
            rows.append(Parameter(name, text, default, required, docs.get(name, "")))
        return rows

    def validate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Check and convert parameters (text from a command line becomes numbers, lists, ...)."""
        try:
            model = self.schema(**params)
        except ValidationError as problem:
            raise _bad_parameter(self, problem) from None
        return {name: getattr(model, name) for name in self._settable}

    def __call__(self, *args: Any, **params: Any) -> Any:
        given = {key: params.pop(key) for key in self.tags.get("given", ()) if key in params}
        return self.function(*args, **given, **self.validate(params))


class Registry(Generic[F]):
    """The named functions of one kind, found in one package."""

    def __init__(self, kind: str, *, noun: str, package: str) -> None:
        self.kind = kind
        self.noun = noun
        self.package = package
        self._entries: dict[str, Entry[F]] = {}

    def register(self, name: str, *, paper: str = "", **tags: Any) -> Callable[[F], F]:
        """Register the decorated function; the name must be a string literal.

        A tag `given=("data",)` names keyword parameters that the program supplies, not the user.
        """

        def add(function: F) -> F:
            if not (function.__doc__ or "").strip():
                raise TypeError(f"{self.noun} {name!r} needs a docstring: its first line is listed")
            known = self._entries.get(name)
            if known and known.function.__module__ != function.__module__:
                raise TypeError(f"two {self.kind} are named {name!r}")
            self._entries[name] = Entry(self.kind, name, function, paper, tags)
            return function

        return add

    def get(self, name: str) -> Entry[F]:
        """The entry of that name; an unknown one raises with suggestions."""
        if name not in self._entries and (listing := self._index.get(name)):
            importlib.import_module(listing.module)
        if name not in self._entries:
            self._load_entry_points()
        if name not in self._entries:
            raise UnknownNameError(self.noun, name, {*self._index, *self._entries})
        return self._entries[name]

    def __contains__(self, name: str) -> bool:
        return name in self._entries or name in self._index

    def names(self) -> list[str]:
        """All names, built in or registered by hand, in alphabetical order."""
        return sorted({*self._index, *self._entries})

    def listings(self) -> list[Listing]:
        """Name, summary and paper of each, read from source without importing it."""
        rows = dict(self._index)
        for name, entry in self._entries.items():
            module = entry.function.__module__
            rows.setdefault(name, Listing(name, entry.summary, module, entry.paper))
        return [rows[name] for name in sorted(rows)]

    @cached_property
    def _index(self) -> dict[str, Listing]:
        spec = importlib.util.find_spec(self.package)
        folders = spec.submodule_search_locations if spec else None
        found: dict[str, Listing] = {}
        for folder in folders or ():
            for path in sorted(Path(folder).rglob("*.py")):
                source = path.read_text(encoding="utf-8")
                if f"@{self.kind}.register(" in source:
                    parts = path.relative_to(folder).with_suffix("").parts
                    module = ".".join([self.package, *(p for p in parts if p != "__init__")])
                    found.update(_registrations(source, self.kind, module))
        return found

    def _load_entry_points(self) -> None:
        for point in entry_points(group=f"stockpot.{self.kind}"):
            try:
                point.load()
            except Exception as problem:
                raise UserError(
                    f"the plug-in {point.name!r} ({point.value}) could not be loaded: {problem}.",
                    hint=f"Repair or uninstall the package that offers it (stockpot.{self.kind}).",
                ) from problem


def _registrations(source: str, kind: str, module: str) -> dict[str, Listing]:
    found = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=owner), attr="register"),
                    args=[ast.Constant(value=str(name))],
                ) if owner == kind:
                    summary = (ast.get_docstring(node) or "").partition("\n")[0]
                    paper = next(
                        (
                            str(keyword.value.value)
                            for keyword in decorator.keywords
                            if keyword.arg == "paper" and isinstance(keyword.value, ast.Constant)
                        ),
                        "",
                    )
                    found[name] = Listing(name, summary, module, paper)
    return found


def _argument_docs(doc: str) -> dict[str, str]:
    """The `Args:` section of a Google-style docstring as name -> text."""
    docs: dict[str, str] = {}
    current = ""
    _, _, section = doc.partition("\nArgs:\n")
    for line in section.splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < 4:
            break
        if indent == 4 and ":" in line:
            current, _, text = line.strip().partition(":")
            docs[current] = text.strip()
        elif current and line.strip():
            docs[current] += f" {line.strip()}"
    return docs


def _bad_parameter(entry: Entry[Any], problem: ValidationError) -> BadParameterError:
    known = list(entry._settable)
    parts = []
    for error in problem.errors():
        name = str(error["loc"][0]) if error["loc"] else "?"
        if error["type"] == "extra_forbidden":
            parts.append(f"unknown parameter {name!r}.{did_you_mean(name, known)}")
        elif error["type"] == "missing":
            parts.append(f"parameter {name!r} is required.")
        else:
            message = error["msg"][0].lower() + error["msg"][1:]
            parts.append(f"{name}: {message}, got {error['input']!r}.")
    takes = ", ".join(known) or "no parameters"
    return BadParameterError(f"{entry.name}: {' '.join(parts)}", hint=f"It takes: {takes}.")

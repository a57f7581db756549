"""Registries: a method is a function, and its signature is its schema.

A room's methods register themselves with a decorator whose name is a literal:

    @fusers.register("ties", paper="arXiv:2306.01708", needs_base=True)
    def ties(*, density: float = 0.2, scale: float = 0.3) -> TensorFuser:
        '''Trim small changes, elect a sign, merge what agrees.'''

Because the name is a literal, a registry can list a room by reading its source, without importing
it (and so without torch); looking a name up imports only the file that defines it. What is said of
a function beside its signature are tags: a frozen value with one class for each kind, so that a
misspelt one is a TypeError at import, and an error to mypy before. Third parties add names through
the entry-point group `stockpot.<kind>`; they are listed like our own.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from stockpot.complaints import bad_parameter, beyond
from stockpot.errors import BadParameterError, UnknownNameError, UserError, shortened
from stockpot.listings import (
    Listing,
    Plugin,
    argument_docs,
    near_listing,
    one_line,
    package_listings,
    plugins,
)
from stockpot.types import ReferenceKind, named_by, spelled


@dataclass(frozen=True, kw_only=True)
class Tags:
    """What is said of a registered function beside its signature; a kind adds its own."""

    paper: str = ""
    given: tuple[str, ...] = ()
    """Keyword parameters that the program supplies, not the user."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    """Published sets of parameters by name: `preset=NAME` takes one for what is not given."""
    edition: int = 1
    """Raised when the same parameters come to give something else: what was made is made anew."""


PRESET = "preset"
_CLOSED = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
_CLOSED["allow_inf_nan"] = False  # no method has a use for NaN or infinity
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=Tags)
P = ParamSpec("P")


class Parameter(NamedTuple):
    """One user-settable parameter of a registered function."""

    name: str
    type: str
    default: object
    required: bool
    doc: str


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered function with its parameters as a schema."""

    kind: str
    name: str
    function: Callable[..., Any]
    tags: T

    def __post_init__(self) -> None:
        taken = inspect.signature(self.function).parameters
        for name in self.tags.given:
            if name not in taken:
                raise TypeError(f"{self.name} takes no parameter {name!r} that could be given")

    @property
    def paper(self) -> str:
        """Where the method was published."""
        return self.tags.paper

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
            if name not in self.tags.given and (keyword_only or has_default):
                chosen[name] = parameter
        return chosen

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    @cached_property
    def references(self) -> dict[str, ReferenceKind]:
        """The parameters that name something else, such as a teacher, and what they name."""
        found = {name: named_by(self._hints.get(name)) for name in self._settable}
        return {name: kind for name, kind in found.items() if kind is not None}

    def referred(self, params: Mapping[str, Any], kind: ReferenceKind) -> dict[str, str]:
        """Those of the given parameters that name something of a kind, and the names."""
        return {
            key: value
            for key, value in params.items()
            if self.references.get(key) == kind and isinstance(value, str) and value
        }

    @cached_property
    def schema(self) -> type[BaseModel]:
        """A pydantic model of the parameters; unknown keys are errors."""
        hints = self._hints
        fields: dict[str, Any] = {}
        for name, parameter in self._settable.items():
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (hints.get(name, Any), default)
        if self.tags.presets:
            fields[PRESET] = (Literal[tuple(self.tags.presets)] | None, None)
        return create_model(self.name, __config__=_CLOSED, **fields)

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters as rows for `stockpot show` and the docs."""
        docs = argument_docs(self.doc)
        rows = []
        for name, parameter in self._settable.items():
            required = parameter.default is parameter.empty
            default = None if required else parameter.default
            text = spelled(self._hints.get(name, Any))
            rows.append(Parameter(name, text, default, required, docs.get(name, "")))
        if presets := self.tags.presets:
            each = (
                f"{name} ({', '.join(f'{key}={value}' for key, value in values.items())})"
                for name, values in presets.items()
            )
            text = f"Whose numbers hold for what is not given: {'; '.join(each)}."
            rows.append(Parameter(PRESET, " | ".join(presets), None, False, text))
        return rows

    def validate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Check and convert parameters (text from a command line becomes numbers, lists, ...)."""
        if values := self.tags.presets.get(str(params.get(PRESET))):
            params = {**values, **params}
        # In Python a place is often a path; records and results have it as a text.
        given = {k: str(v) if isinstance(v, PurePath) else v for k, v in params.items()}
        try:
            model = self.schema(**given)
        except ValidationError as problem:
            raise bad_parameter(self.name, list(self.schema.model_fields), problem) from None
        found = {name: getattr(model, name) for name in self._settable}
        for name in params:
            if name in found and (number := beyond(found[name])) is not None:
                raise BadParameterError(
                    f"{self.name}: {name}: expected a number of at most 2**63, or 1e38 with "
                    f"decimals, got {shortened(repr(number), 60)}.",
                    parameter=name,
                )
        return found

    def __call__(self, *args: Any, **params: Any) -> Any:
        given = {key: params.pop(key) for key in self.tags.given if key in params}
        return self.function(*args, **given, **self.validate(params))


class Registry(Generic[F, T, P]):
    """The named functions of one kind, found in one package and in plug-ins."""

    def __init__(self, kind: str, *, noun: str, package: str, tags: Callable[P, T]) -> None:
        self.kind = kind
        self.noun = noun
        self.package = package
        self._tags = tags
        self._entries: dict[str, Entry[T]] = {}

    def __repr__(self) -> str:
        return f"<the registry of {self.kind}>"

    def register(self, name: str, *args: P.args, **tags: P.kwargs) -> Callable[[F], F]:
        """Register the decorated function; the name must be a string literal."""
        tagged = self._tags(*args, **tags)

        def add(function: F) -> F:
            if not (function.__doc__ or "").strip():
                raise TypeError(f"{self.noun} {name!r} needs a docstring: its first line is listed")
            known = self._entries.get(name)
            # Our own files are not all read for that: what is theirs nobody else may take.
            ours = function.__module__.startswith(f"{self.package}.")
            own = None if ours else self._index.get(name)
            module = known.function.__module__ if known else own.module if own else ""
            if module not in ("", function.__module__):
                raise TypeError(f"two {self.kind} are named {name!r}")
            self._entries[name] = Entry(self.kind, name, function, tagged)
            return function

        return add

    def get(self, name: str) -> Entry[T]:
        """The entry of that name; an unknown one raises with suggestions."""
        if name not in self._entries and (listing := self._own(name)):
            importlib.import_module(listing.module)
        problems = [] if name in self._entries else self._load_plugins(name)
        if name not in self._entries:
            known = {*self._index, *self._entries, *self._offered}
            raise UnknownNameError(self.noun, name, known - {name}, hint=" ".join(problems))
        return self._entries[name]

    def __contains__(self, name: str) -> bool:
        return name in self._entries or self._own(name) is not None or name in self._offered

    def names(self) -> list[str]:
        """All names, built in, plugged in or registered by hand, in alphabetical order."""
        return sorted({*self._index, *self._offered, *self._entries})

    def listings(self) -> list[Listing]:
        """Name, summary, paper and origin of each, read from source without importing it."""
        rows = {**self._offered, **self._index}
        for name, entry in self._entries.items():
            module = entry.function.__module__
            rows.setdefault(name, Listing(name, entry.summary, module, entry.paper, module))
        return [rows[name] for name in sorted(rows)]

    def problems(self) -> list[str]:
        """One line for every installed plug-in that cannot be used."""
        return [plugin.failure() for plugin in self._plugins if plugin.problem]

    def _own(self, name: str) -> Listing | None:
        """Where one of our own is; most lie under their name, and all other files stay closed."""
        known = self.__dict__.get("_index")
        near = near_listing(self.kind, self.package, name) if known is None else None
        return near or self._index.get(name)

    @cached_property
    def _index(self) -> dict[str, Listing]:
        return package_listings(self.kind, self.package)

    @cached_property
    def _plugins(self) -> list[Plugin]:
        found = plugins(self.kind)
        for number, plugin in enumerate(found):
            taken = next((row.name for row in plugin.listings if row.name in self._index), "")
            if taken:
                problem = f"it registers {taken!r}, which is ours"
                found[number] = plugin._replace(listings=(), problem=problem)
            elif not plugin.listings and not plugin.problem:
                found[number] = self._imported(plugin)
        return found

    @property
    def _offered(self) -> dict[str, Listing]:
        return {row.name: row for plugin in self._plugins for row in plugin.listings}

    def _imported(self, plugin: Plugin) -> Plugin:
        """A plug-in whose source does not show its names (it registers them in a loop, say)."""
        before = set(self._entries)
        try:
            plugin.point.load()
        except Exception as broken:
            return plugin._replace(problem=one_line(broken))
        rows = [
            Listing(name, entry.summary, entry.function.__module__, entry.paper, plugin.origin)
            for name, entry in self._entries.items()
            if name not in before
        ]
        problem = "" if rows else f"it registers nothing of the kind {self.kind}"
        return plugin._replace(listings=tuple(rows), problem=problem)

    def _load_plugins(self, name: str) -> list[str]:
        """Import what offers the name; of a name that nothing offers, say what is broken."""
        offering = [p for p in self._plugins if name in {row.name for row in p.listings}]
        for plugin in offering:
            try:
                plugin.point.load()
            except Exception as broken:
                raise UserError(plugin.failure(one_line(broken))) from broken
        return self.problems()


class Kind(Generic[F]):
    """A kind of function, by its type; `tagged` makes its registry."""

    def __init__(self, kind: str, *, noun: str, package: str) -> None:
        self.kind, self.noun, self.package = kind, noun, package

    def tagged(self, tags: Callable[P, T]) -> Registry[F, T, P]:
        """A registry whose decorator takes the fields of `tags`."""
        return Registry(self.kind, noun=self.noun, package=self.package, tags=tags)

"""What can be said of registered functions without importing them: by reading their source.

The name in `@fusers.register("ties", ...)` is a literal, so a file says which names it registers.
Our own rooms and installed plug-ins (the entry-point group `stockpot.<kind>`) are read alike.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NamedTuple

_READERS = 8


class Listing(NamedTuple):
    """What can be said of a name without importing its module."""

    name: str
    summary: str
    module: str
    paper: str
    origin: str = "stockpot"
    """The package it comes with, and for a plug-in its version."""


class Plugin(NamedTuple):
    """An installed entry point and the names that its source registers."""

    point: EntryPoint
    origin: str
    listings: tuple[Listing, ...]
    problem: str
    """Why nothing can be said of it; empty when all is well."""

    def failure(self, problem: object = "") -> str:
        """One line that names the plug-in, what is wrong, and what to do."""
        return (
            f"the plug-in {self.point.name!r} ({self.point.value}) of {self.origin} cannot be "
            f"loaded: {problem or self.problem}. Repair or uninstall {self.origin}."
        )


def package_listings(kind: str, package: str) -> dict[str, Listing]:
    """The names that the files of one of our own packages register."""
    spec = importlib.util.find_spec(package)
    rows = _read(kind, package, spec) if spec else []
    return {row.name: row for row in rows}


def near_listing(kind: str, package: str, name: str) -> Listing | None:
    """The listing of a name whose file or folder is called like it; no other file is opened."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for path in sorted(Path(folder).rglob("*.py")):
            module = _module_of(path, folder, package)
            if name not in module.split("."):
                continue
            found = _registrations(path.read_text(encoding="utf-8"), kind, module)
            if listing := next((each for each in found if each.name == name), None):
                return listing
    return None


def plugins(kind: str) -> list[Plugin]:
    """The installed plug-ins of a kind; one that cannot be read says why instead."""
    found = []
    for point in entry_points(group=f"stockpot.{kind}"):
        origin = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
        rows: tuple[Listing, ...] = ()
        problem = ""
        try:
            module = point.value.partition(":")[0].strip()
            spec = _spec(module)
            if spec is None:
                problem = f"there is no module {module}"
            else:
                rows = tuple(row._replace(origin=origin) for row in _read(kind, module, spec))
        except Exception as broken:  # whatever is wrong with it, others must still be listed
            problem = one_line(broken)
        found.append(Plugin(point, origin, rows, problem))
    return found


def one_line(problem: Exception) -> str:
    """A foreign error, which may have many lines, in one."""
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"


def _spec(module: str) -> ModuleSpec | None:
    """Where a module lies, asked without importing the packages around it."""
    path: list[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.split(".")
    for depth in range(len(parts)):
        name = ".".join(parts[: depth + 1])
        answers = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next((answer for answer in answers if answer is not None), None)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec


def _read(kind: str, module: str, spec: ModuleSpec) -> list[Listing]:
    """What a module, or all modules of a package, register; `spec` says where it lies."""
    files = {}
    if spec.submodule_search_locations is None and spec.origin:
        files[Path(spec.origin)] = module
    for folder in spec.submodule_search_locations or ():
        for path in sorted(Path(folder).rglob("*.py")):
            files[path] = _module_of(path, folder, module)
    # Beside each other: a system that takes long to open a file takes as long for all of them.
    with ThreadPoolExecutor(_READERS) as readers:
        sources = readers.map(lambda path: path.read_text(encoding="utf-8"), files)
        return [
            listing
            for source, name in zip(sources, files.values(), strict=True)
            if f"@{kind}.register(" in source
            for listing in _registrations(source, kind, name)
        ]


def _module_of(path: Path, folder: str, package: str) -> str:
    inside = path.relative_to(folder).with_suffix("")
    parts = (inside.parent if inside.name == "__init__" else inside).parts
    return ".".join([package, *parts])


def _registrations(source: str, kind: str, module: str) -> Iterator[Listing]:
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
                    yield Listing(name, summary, module, paper)


def argument_docs(doc: str) -> dict[str, str]:
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

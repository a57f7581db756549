"""Which module imports which, read from source: plain, lazy, relative and named in a text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

_NAMED = re.compile(r"(stockpot(?:\.\w+)+)(?::\w+)?")


class Import(NamedTuple):
    """One import: the module that is imported, and whether only a text names it."""

    module: str
    by_text: bool


class Source:
    """The modules of a package, by their dotted names."""

    def __init__(self, root: Path, package: str = "stockpot") -> None:
        self.package = package
        self.files: dict[str, Path] = {}
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join([package, *(part for part in parts if part != "__init__")])
            self.files[name] = path

    def room(self, module: str) -> str:
        """The room of a module; the package's own face is `__init__`."""
        return [*module.split("."), "__init__"][1]

    @cache  # noqa: B019
    def imports(self, module: str) -> frozenset[Import]:
        """All that a module imports of the package, at its top or inside a function."""
        tree = ast.parse(self.files[module].read_text(encoding="utf-8"))
        found = {Import(name, False) for name in self._plain(module, tree)}
        found |= {Import(name, True) for name in self._texts(tree)}
        return frozenset(each for each in found if each.module != module)

    def _plain(self, module: str, tree: ast.AST) -> Iterator[str]:
        for node in _running(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._known(alias.name)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(module, node)
                for alias in node.names:
                    # What is imported may be a module itself, or something that a module holds.
                    inner = f"{base}.{alias.name}"
                    yield from self._known(inner if inner in self.files else base)

    def _base(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = self.files[module].name == "__init__.py"
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def _known(self, name: str) -> Iterator[str]:
        if name == self.package or name.startswith(f"{self.package}."):
            while name not in self.files:
                name = name.rpartition(".")[0]
            yield name

    def _texts(self, tree: ast.AST) -> Iterator[str]:
        """Modules named in texts: `stockpot.x.y:z`, or `x.y` where a text `stockpot.{...}` is."""
        nodes = list(ast.walk(tree))
        texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        started = any(
            isinstance(node, ast.JoinedStr)
            and isinstance(node.values[0], ast.Constant)
            and node.values[0].value == f"{self.package}."
            for node in nodes
            if isinstance(node, ast.JoinedStr) and node.values
        )
        for text in texts:
            whole = _NAMED.fullmatch(text)
            if whole and whole[1] in self.files:
                yield whole[1]
            elif started and f"{self.package}.{text}" in self.files:
                yield f"{self.package}.{text}"

    def cycles(self) -> set[frozenset[str]]:
        """Groups of modules that import one another; what a text names is not followed.

        A verb names its function in a text so that the room can be imported without it.
        """
        graph = {
            module: {each.module for each in self.imports(module) if not each.by_text}
            for module in self.files
        }
        reach = {module: _reachable(graph, module) for module in graph}
        groups = (
            frozenset({module} | {other for other in reach[module] if module in reach[other]})
            for module in graph
        )
        return {group for group in groups if len(group) > 1}


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that can run; what stands under TYPE_CHECKING is for type checkers alone."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test).endswith("TYPE_CHECKING"):
        for node in tree.orelse:
            yield from _running(node)
        return
    yield tree
    for child in ast.iter_child_nodes(tree):
        yield from _running(child)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += graph[module]
    return seen

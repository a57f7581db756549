"""Stockpot: many checkpoints in, one robust image classifier out, with the evidence.

The public names are below; each is imported when it is first used, so `import stockpot` is quick
and needs no torch. Verbs such as `stockpot.fuse` are rooms that can be called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stockpot.errors import UserError

if TYPE_CHECKING:
    from stockpot.advise.run import advise
    from stockpot.attack.run import attack
    from stockpot.audit.run import audit
    from stockpot.card.make import card
    from stockpot.corrupt.apply import corrupt
    from stockpot.datasets.load import load_dataset
    from stockpot.explain.run import explain
    from stockpot.fuse.run import fuse
    from stockpot.fuse.similarity import similarity
    from stockpot.gate.check import check
    from stockpot.harden.run import harden
    from stockpot.measure.export_model import export_model
    from stockpot.measure.run import measure
    from stockpot.measure.unlabelled.choose import choose
    from stockpot.models.load import load_model
    from stockpot.registries import names as list
    from stockpot.report.page import report
    from stockpot.results.compare import compare
    from stockpot.run.follow import run
    from stockpot.season.run import season
    from stockpot.tune.run import tune

    __version__: str

_ROOMS = (
    "advise", "attack", "audit", "card", "corrupt", "explain", "fuse", "harden", "measure",
    "report", "run", "season", "tune",
)  # fmt: skip
_FUNCTIONS = {
    "check": "stockpot.gate.check:check",
    "choose": "stockpot.measure.unlabelled.choose:choose",
    "compare": "stockpot.results.compare:compare",
    "export_model": "stockpot.measure.export_model:export_model",
    "list": "stockpot.registries:names",
    "load_dataset": "stockpot.datasets.load:load_dataset",
    "load_model": "stockpot.models.load:load_model",
    "similarity": "stockpot.fuse.similarity:similarity",
}

__all__ = [
    "UserError",
    "__version__",
    "advise",
    "attack",
    "audit",
    "card",
    "check",
    "choose",
    "compare",
    "corrupt",
    "explain",
    "export_model",
    "fuse",
    "harden",
    "list",
    "load_dataset",
    "load_model",
    "measure",
    "report",
    "run",
    "season",
    "similarity",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("stockpot")
        except PackageNotFoundError:
            return "unknown"  # sources on a path that were never installed
    if name in _ROOMS:
        return importlib.import_module(f"stockpot.{name}")
    if name in _FUNCTIONS:
        module, _, attribute = _FUNCTIONS[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module 'stockpot' has no attribute {name!r}")


def __dir__() -> Any:
    return sorted({*globals(), *__all__})

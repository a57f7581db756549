"""The studies are scripts with the same file names; each is imported as if it ran alone."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

STUDIES = Path(__file__).parents[2] / "studies"
Part = Callable[[str, str], ModuleType]


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Iterator[Part]:
    """`part("fmr", "tables")` is studies/fmr/tables.py."""
    names = (
        *("study", "tables", "figures", "tuned", "searched", "untuned"),
        *("answers", "chosen", "claims", "families", "measured", "rules", "stretch", "travel"),
        *("tasks", "foundation", "experts", "merges", "at_once"),
        *("experiments", "attacks", "kept", "defences", "helped", "dynamic", "moved"),
        *("lungs", "pairs", "again"),
        *("searches", "verdicts", "shown", "judges"),
        *("again", "trainings", "people", "pools_again", "gather"),
    )

    def load(study: str, name: str) -> ModuleType:
        for other in names:
            sys.modules.pop(other, None)
        monkeypatch.syspath_prepend(str(STUDIES / study))
        return importlib.import_module(name)

    yield load
    for other in names:
        sys.modules.pop(other, None)

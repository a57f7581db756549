"""Rooms that can be called answer questions as their functions would."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import re
import rlcompleter
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import stockpot

ROOMS = sorted(stockpot._ROOMS)


def function(room: str) -> object:
    module, _, name = getattr(stockpot, room).__verb__.partition(":")
    return getattr(import_module(module), name)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_the_signature_and_the_words_of_its_function(room: str) -> None:
    spoken, own = getattr(stockpot, room), function(room)
    assert inspect.signature(spoken) == inspect.signature(own)  # type: ignore[arg-type]
    page = pydoc.plain(pydoc.render_doc(spoken))
    first, *_ = inspect.getdoc(own).splitlines()  # type: ignore[union-attr]
    assert page.splitlines()[3].strip() == f"stockpot.{room} - {first}"
    flat = re.sub(r"\s+", " ", page)
    assert f"stockpot.{room}(" in flat
    for line in inspect.getdoc(own).splitlines():  # type: ignore[union-attr]
        assert line.strip() in page
    for name in inspect.signature(own).parameters:  # type: ignore[arg-type]
        assert re.search(rf"\b{name}\b", flat)


def test_a_tab_opens_the_bracket() -> None:
    completer = rlcompleter.Completer({"stockpot": stockpot})
    assert completer.complete("stockpot.fus", 0) == "stockpot.fuse("
    assert set(stockpot.__all__) <= set(dir(stockpot))


def test_a_room_is_still_a_module() -> None:
    fuse = stockpot.fuse
    assert inspect.ismodule(fuse)
    assert pickle.loads(pickle.dumps(fuse)) is fuse
    assert copy.deepcopy(fuse) is fuse
    assert "fusers" in dir(fuse)


def test_naming_rooms_needs_no_torch() -> None:
    code = (
        "import sys, stockpot; [getattr(stockpot, name) for name in stockpot._ROOMS]; "
        "dir(stockpot.fuse); callable(stockpot.fuse); repr(stockpot.fuse); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_docs_show_help_as_it_prints() -> None:
    text = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
    block = re.search(r">>> help\(stockpot\.fuse\)\n(.*?)\n\.\.\.\n```", text, flags=re.DOTALL)
    assert block is not None
    page = pydoc.plain(pydoc.render_doc(stockpot.fuse, "Help on %s:"))
    upper = page.partition("\nPACKAGE CONTENTS")[0].rstrip()
    assert block[1].splitlines() == [line.rstrip() for line in upper.splitlines()]

"""Plug-ins, installed as pip would leave them: a folder of metadata with an entry point."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Finished, Running

Run = Callable[..., Finished]

SOURCE = '''"""A plug-in."""
import sys

from stockpot.fuse import fusers

sys.modules["plugged.was_imported"] = sys


@fusers.register("halfway", paper="arXiv:0000.00000", symmetric=True)
def halfway(*, share: float = 0.5):
    """Stop half of the way.

    Args:
        share: how far to go.
    """
'''


def install(site: Path, name: str, point: str) -> None:
    metadata = site / f"{name}-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[stockpot.fusers]\n{point}\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    package = tmp_path / "plugged"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('listing must not import this')\n")
    (package / "soups.py").write_text(SOURCE)
    install(tmp_path, "halfway-soups", "soups = plugged.soups")
    return tmp_path


def command(site: Path, *words: str) -> None:
    from stockpot.cli.main import main

    sys.path.insert(0, str(site))
    sys.argv = ["stockpot", *words]
    main()


@pytest.fixture
def stockpot(site: Path) -> Run:
    """The command line, with the plug-ins in reach; `site` may be added to before it is called."""

    def run(*words: str) -> Finished:
        return Running(command, site, *words).wait()

    return run


def test_a_plugin_is_listed_without_being_imported(stockpot: Run) -> None:
    rows = {row["name"]: row for row in json.loads(stockpot("list", "fusers", "--json").stdout)}
    assert rows["halfway"]["summary"] == "Stop half of the way."
    assert rows["halfway"]["origin"] == "halfway-soups 1.2"
    assert rows["ties"]["origin"] == "stockpot"
    assert "halfway-soups 1.2" in stockpot("list", "fusers").stdout


def test_a_plugin_is_shown_with_its_parameters(site: Path, stockpot: Run) -> None:
    (site / "plugged" / "__init__.py").write_text("")
    shown = stockpot("show", "halfway")
    assert shown.returncode == 0, shown.stderr
    assert "from the plug-in halfway-soups 1.2" in shown.stdout
    assert "how far to go." in shown.stdout


def test_one_that_fails_on_import_is_answered_in_one_line(stockpot: Run) -> None:
    shown = stockpot("show", "halfway")
    assert shown.returncode == 1
    assert len(shown.stderr.strip().splitlines()) == 1
    assert "the plug-in 'soups' (plugged.soups) of halfway-soups 1.2" in shown.stderr
    assert "listing must not import this" in shown.stderr


BROKEN: dict[str, tuple[str | None, str]] = {
    "absent": (None, "there is no module bad_absent"),
    "garbled": ("def (:\n", "SyntaxError"),
    "lacking": ("import nowhere_to_be_found\n", "ModuleNotFoundError"),
    "empty": ("x = 1\n", "registers nothing"),
    "ours": (SOURCE.replace("halfway", "ties"), "'ties', which is ours"),
}


def test_a_broken_plugin_costs_one_line_and_no_other_name(site: Path, stockpot: Run) -> None:
    for name, (source, _) in BROKEN.items():
        install(site, name, f"{name} = bad_{name}")
        if source is not None:
            (site / f"bad_{name}.py").write_text(source)
    listed = stockpot("list", "fusers", "--json")
    assert listed.returncode == 0
    names = [row["name"] for row in json.loads(listed.stdout)]
    assert {"ties", "halfway"} <= set(names)
    lines = listed.stderr.strip().splitlines()
    assert len(lines) == len(BROKEN)
    for name, (_, words) in BROKEN.items():
        (line,) = (line for line in lines if f"plug-in '{name}' (bad_{name}) of {name} 1.2" in line)
        assert words in line
    unknown = stockpot("show", "tise")
    assert unknown.returncode == 1
    assert "Did you mean ties" in unknown.stderr


def test_names_of_a_package_that_registers_elsewhere(site: Path, stockpot: Run) -> None:
    """An entry point may name a package whose modules hold the functions."""
    package = site / "several"
    package.mkdir()
    (package / "__init__.py").write_text("import several.one\n")
    (package / "one.py").write_text(SOURCE.replace("halfway", "two_thirds"))
    install(site, "several", "all = several")
    rows = {row["name"]: row for row in json.loads(stockpot("list", "fusers", "--json").stdout)}
    assert rows["two_thirds"]["origin"] == "several 1.2"
    assert stockpot("show", "two_thirds").returncode == 0

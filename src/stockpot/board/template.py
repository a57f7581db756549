"""A folder to begin a submission with."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from stockpot.errors import UserError
from stockpot.files import write_atomic

_FILES = ("submission.yaml", "recipe.yaml", "README.md")


def write_template(folder: Path) -> list[Path]:
    """Write the form, a recipe and what to do; a folder that holds something is left alone."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not empty.", hint="Give the name of a new folder.")
    source = files("stockpot.board") / "form"
    for name in _FILES:
        text = (source / name).read_text(encoding="utf-8").replace("FOLDER", str(folder))
        write_atomic(folder / name, text)
    return [folder / name for name in _FILES]

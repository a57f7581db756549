"""The models that come with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def zoo_folder() -> Path:
    """Where the embedded models lie."""
    return Path(str(resources.files("stockpot"))) / "zoo" / "models"


def zoo_names() -> list[str]:
    """The names of the embedded models."""
    return sorted(path.parent.name for path in zoo_folder().glob("*/config.json"))


def embedded_folder(source: str) -> Path | None:
    """The folder of an embedded model, named with or without `zoo:`; none where there is none."""
    name = source.removeprefix("zoo:")
    return zoo_folder() / name if name in zoo_names() else None

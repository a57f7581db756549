"""Pictures that a run has drawn (`figures/*.svg`), put into the page itself."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup, escape


class Figure(NamedTuple):
    """A picture and what it is called."""

    title: str
    picture: Markup


def run_figures(folder: str | Path) -> list[Path]:
    """The pictures of a run folder, by name."""
    return sorted((Path(folder) / "figures").glob("*.svg"))


def figure(path: Path) -> Figure:
    """A picture as an image element; as an image, whatever the file holds runs no script."""
    title = path.stem.replace("_", " ").capitalize()
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    picture = f'<img class="figure" alt="{escape(title)}" src="data:image/svg+xml;base64,{data}">'
    return Figure(title, Markup(picture))

"""Values as a notebook shows them: plain HTML without scripts, fonts or addresses.

Every text is escaped: a class name or a model's name may be anything.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """A heading and what is to be said, one line each."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<div><strong>{escape(title)}</strong><table>{lines}</table></div>"


def table_html(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> str:
    """A table; texts to the left."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    caption = f"<strong>{escape(title)}</strong>" if title else ""
    return f"<div>{caption}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def pictures_html(pictures: Iterable[tuple[Image.Image, str]], side: int = 64) -> str:
    """Small pictures in a row, each with a line below."""
    cells = []
    for picture, text in pictures:
        small = picture.copy()
        small.thumbnail((2 * side, 2 * side))
        stream = io.BytesIO()
        small.save(stream, "PNG")
        data = base64.b64encode(stream.getvalue()).decode("ascii")
        cells.append(
            f"<figure style='display:inline-block;margin:2px;width:{side + 16}px'>"
            f"<img alt='{escape(text, quote=True)}' height='{side}' "
            f"src='data:image/png;base64,{data}'>"
            f"<figcaption style='font-size:small'>{escape(text)}</figcaption></figure>"
        )
    return f"<div>{''.join(cells)}</div>"

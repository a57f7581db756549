"""From an icon's vector drawing to pixels on white."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from PIL import Image

from stockpot.errors import BadDataError, MissingDependencyError


def svg_text(icons: Mapping[str, Any], name: str) -> str:
    """The icon as a complete SVG document; monochrome styles draw in black."""
    icon = icons["icons"][name]
    left, top, width, height = (
        icon.get(field, icons.get(field, default))
        for field, default in (("left", 0), ("top", 0), ("width", 16), ("height", 16))
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{left} {top} {width} {height}" width="{width}" height="{height}" '
        f'color="#000">{icon["body"]}</svg>'
    )


def render(svg: str, size: int) -> Image.Image:
    """A square RGB picture: the drawing, as large as fits, centred on white."""
    problems: list[Exception] = []
    for renderer in (_with_resvg, _with_cairo):
        try:
            drawing = renderer(svg, size)
        except Exception as problem:  # whatever one renderer cannot draw, the other may
            problems.append(problem)
            continue
        return _centred(drawing, size)
    if all(isinstance(problem, ImportError) for problem in problems):
        raise MissingDependencyError(
            "building icons needs an SVG renderer, and neither resvg_py nor cairosvg is installed.",
            hint="pip install 'stockpot[icons]'",
        )
    raise BadDataError(f"no renderer could draw the icon: {problems[-1]}.")


def is_blank(picture: Image.Image, *, least_ink: float = 0.05) -> bool:
    """Whether fewer than `least_ink` of the pixels differ visibly from white."""
    histogram = picture.convert("L").histogram()
    return sum(histogram[:236]) < least_ink * picture.width * picture.height


def _with_resvg(svg: str, size: int) -> Image.Image:
    import resvg_py

    width, height = _scaled(svg, size)
    data = resvg_py.svg_to_bytes(svg_string=svg, width=width, height=height, skip_system_fonts=True)
    return Image.open(io.BytesIO(bytes(data))).convert("RGBA")


def _with_cairo(svg: str, size: int) -> Image.Image:
    try:
        import cairosvg
    except OSError as problem:  # the Python package is there, the C library is not
        raise ImportError(str(problem)) from problem
    width, height = _scaled(svg, size)
    data = cairosvg.svg2png(bytestring=svg.encode(), output_width=width, output_height=height)
    return Image.open(io.BytesIO(data)).convert("RGBA")


def _scaled(svg: str, size: int) -> tuple[int, int]:
    _, _, width, height = (float(part) for part in svg.split('viewBox="')[1].split('"')[0].split())
    longest = max(width, height)
    return max(1, round(size * width / longest)), max(1, round(size * height / longest))


def _centred(drawing: Image.Image, size: int) -> Image.Image:
    canvas = Image.new("RGBA", (size, size), "white")
    corner = ((size - drawing.width) // 2, (size - drawing.height) // 2)
    canvas.alpha_composite(drawing, corner)
    return canvas.convert("RGB")

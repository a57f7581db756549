"""Pictures: one small SVG canvas, one palette, and the few charts that the house draws on them.

No plotting library and nothing to load; sharp at every size. A picture of its own follows the
reader's light or dark look; inside a page it follows the page's.
"""

from stockpot.charts.axes import Axes, log_ticks, span, ticks
from stockpot.charts.canvas import Canvas, Place, save
from stockpot.charts.palette import page_colours, series, shade, stylesheet
from stockpot.charts.plots import (
    Mark,
    Pair,
    Share,
    Spot,
    curve,
    heat_map,
    lines,
    scatter,
    triangle,
    whiskers,
)

__all__ = [
    "Axes",
    "Canvas",
    "Mark",
    "Pair",
    "Place",
    "Share",
    "Spot",
    "curve",
    "heat_map",
    "lines",
    "log_ticks",
    "page_colours",
    "save",
    "scatter",
    "series",
    "shade",
    "span",
    "stylesheet",
    "ticks",
    "triangle",
    "whiskers",
]

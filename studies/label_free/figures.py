"""Foretold against true accuracy, one panel for each estimate, from estimates.csv.

python studies/label_free/figures.py
"""

from __future__ import annotations

from pathlib import Path

from tables import ESTIMATES, Rows

from stockpot.charts import save
from stockpot.charts.canvas import Canvas, Place
from stockpot.charts.palette import series
from stockpot.results.tables import read_csv

HERE = Path(__file__).parent
POOLS = ("icons", "cifar10")
SHOWN = ("source", *ESTIMATES[:4], "aline_d")
COLUMNS, SIDE, GAP, LEFT, TOP = 3, 200.0, 46.0, 52.0, 56.0


def draw(rows: Rows) -> Canvas:
    """A dot for every model under every corruption; on the diagonal what was foretold is true."""
    lines = -(-len(SHOWN) // COLUMNS)
    title = f"Foretold and true accuracy (%), {len(rows)} models and targets"
    canvas = Canvas(LEFT + COLUMNS * (SIDE + GAP), TOP + lines * (SIDE + GAP) + 8, title)
    canvas.text((8, 18), title)
    for number, pool in enumerate(POOLS):
        at = (canvas.width - 150 + 70 * number, 18.0)
        canvas.dot((at[0] - 8, at[1] - 4), series(number))
        canvas.text(at, pool, colour=series(number))
    for number, name in enumerate(SHOWN):
        down, right = divmod(number, COLUMNS)
        corner = (LEFT + right * (SIDE + GAP), TOP + down * (SIDE + GAP) + SIDE)
        _panel(canvas, corner, name, rows)
    return canvas


def _panel(canvas: Canvas, corner: Place, name: str, rows: Rows) -> None:
    def at(across: float, up: float) -> Place:
        return corner[0] + SIDE * across, corner[1] - SIDE * up

    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        canvas.path([at(share, 0), at(share, 1)], "line", width=1)
        canvas.path([at(0, share), at(1, share)], "line", width=1)
        x, y = at(share, 0)
        words = f"{100 * share:.0f}"
        canvas.text((x, y + 15), words, anchor="middle", colour="soft", size=11)
        x, y = at(0, share)
        canvas.text((x - 6, y + 4), words, anchor="end", colour="soft", size=11)
    canvas.path([at(0, 0), at(1, 1)], "soft", width=1.2)
    canvas.text((corner[0], corner[1] - SIDE - 8), f"{name} over truth", bold=True)
    for row in rows:
        place = at(row["truth"], min(max(row[name], 0.0), 1.0))
        canvas.dot(place, series(POOLS.index(row["pool"])), 2.4)


if __name__ == "__main__":
    save(draw(read_csv(HERE / "estimates.csv")), HERE / "foretold.svg")

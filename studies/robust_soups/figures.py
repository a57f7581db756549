"""The pictures of the study: trade-offs, triangles, lines, composition and labels needed."""

from __future__ import annotations

from pathlib import Path

from study import SOUPED
from tables import OWN, THREATS, Shifted, on_triangle

from stockpot.files import write_atomic
from stockpot.season.conditions import Conditions
from stockpot.season.plots.composition import composition
from stockpot.season.plots.labels_needed import labels_needed
from stockpot.season.plots.lines import along_line, trade_off
from stockpot.season.plots.triangle import triangle


def figures_of_soups(soups: Conditions, joint: dict[str, Conditions], out: Path) -> None:
    """Trade-off curves, triangles and extrapolation lines; `out` is how file names begin."""
    robust = {name: soups.matrices[name] for name in (*THREATS, "union", "clean")}
    for pair in ((0, 1), (0, 2), (1, 2), (0, 3)):
        a, b = (SOUPED[member] for member in pair)
        rows = soups.line(*pair)
        if len(rows) < 3:
            continue
        text = along_line(
            robust, soups.line(*pair, -0.4, 1.4), pair[1],
            title=f"{a} to {b}", across=f"weight of {b}",
        )  # fmt: skip
        write_atomic(Path(f"{out}-line-{a}-{b}.svg"), text)
        others = {
            name.upper(): tuple(float(model.matrices[OWN[role]].accuracy()[0]) for role in (a, b))
            for name, model in joint.items()
        }
        text = trade_off(
            robust[OWN[a]], robust[OWN[b]], {f"{a} - {b}": rows}, names=(OWN[a], OWN[b]),
            title=f"trade-off between {a} and {b}", others=others if pair == (0, 2) else None,
        )  # fmt: skip
        write_atomic(Path(f"{out}-tradeoff-{a}-{b}.svg"), text)
    rows, n = on_triangle(soups), robust["clean"].correct.shape[1]
    text = triangle(
        {name: robust[name] for name in (*THREATS, "union")}, rows, (0, 1, 2), SOUPED[:3],
        title=f"{len(rows)} convex soups of three members, n = {n}",
    )  # fmt: skip
    write_atomic(Path(f"{out}-triangle.svg"), text)


def figures_of_shift(shifted: Shifted, out: Path) -> None:
    """What the best soups are made of, and how many labels their choice needs."""
    clean = shifted.soups.matrices["clean"]
    text = composition(
        {"clean": clean, **shifted.cells}, SOUPED,
        title=f"the five best of {len(clean.weights)} soups",
    )  # fmt: skip
    write_atomic(Path(f"{out}-composition.svg"), text)
    strongest = {name: m for name, m in shifted.cells.items() if name.endswith(":5")}
    text = labels_needed(
        strongest or shifted.cells, held_out=shifted.n // 2, title="held-out accuracy",
        shots=shifted.numbers_of_labels(),
    )  # fmt: skip
    write_atomic(Path(f"{out}-labels-needed.svg"), text)

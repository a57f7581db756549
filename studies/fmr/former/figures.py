"""The pictures of the FMR study: transfer, candidates until fooled, and ladders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from study import NETS
from tables import HERE, Rows, cells

from stockpot.charts import Spot, heat_map, lines, save, shade


def draw(folder: Path, table: Rows) -> None:
    """All pictures of one dataset, beside this file."""
    if (folder / "transfer.json").is_file():
        transfer(folder)
    fooled: dict[str, list[Spot]] = {}
    for cell in cells(folder / "main-vqgan"):
        found = [score for score in cell.scores if score.metric == "fooled"]
        spots = [Spot(int(str(s.condition["turn"])) + 1, s.value, s.ci_low, s.ci_high)
                 for s in found]  # fmt: skip
        fooled[cell.key.model] = sorted(spots)
    if fooled:
        picture = lines(
            fooled, across="candidates (1 is the reconstruction)", up="validated images fooled",
            marks=[(x, str(x)) for x in (1, 2, 5, 10, 20, 50)], logarithmic=True,
        )  # fmt: skip
        save(picture, HERE / f"iterations-{folder.name}.svg")
    for kind in ("step", "budget"):
        if rungs := table.rungs(folder.name, kind):
            ladder(kind, rungs, folder.name, table)


def transfer(folder: Path) -> None:
    """The matrix as colours, the viewers' SA taken over the validated images.

    Which images are validated depends on generator and oracle alone, so all makers share them.
    """
    table = json.loads((folder / "transfer.json").read_text(encoding="utf-8"))
    ratio = {}
    for cell in cells(folder / "main-vqgan"):
        correct, kept = cell.outcome("correct"), cell.outcome("validated")
        ratio[cell.key.model] = correct.mean() / correct[kept].mean()
    shares = np.array(table["fmr"]) * [ratio[name] for name in table["viewers"]]
    picture = heat_map(
        shares.tolist(), table["makers"], table["viewers"],
        title=f"{folder.name}: matched FMR (%), rows made the images",
        colour=lambda share: shade(share, 0, 1), write=lambda share: f"{100 * share:.0f}",
    )  # fmt: skip
    save(picture, HERE / f"transfer-{folder.name}.svg")


def ladder(kind: str, rungs: list[tuple[float, str]], data: str, table: Rows) -> None:
    """Matched FMR over step sizes or over budgets."""
    drawn = {
        model: [Spot(x, *(row[f"matched_fmr{end}"] for end in ("", "_low", "_high")))
                for x, setting in rungs if (row := table.known.get((data, setting, model)))]
        for model in NETS[data][:2]
    }  # fmt: skip
    marks = [(x, f"{x:g}") for x, _ in rungs]
    picture = lines(drawn, across=kind, up="matched FMR", logarithmic=True, marks=marks)
    save(picture, HERE / f"ladder-{kind}-{data}.svg")

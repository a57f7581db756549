"""The tables and figures of the FMR study, from the results that `study.py` left.

python studies/fmr/figures.py runs/fmr [runs/fmr_full]    # tables.md, rows.csv and pictures here
"""

from __future__ import annotations

import base64
import csv
import json
import sys
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw

mpl.use("Agg")
import matplotlib.pyplot as plt
from settings import GENERATORS, NETS
from tables import (
    agreement_table,
    audit_table,
    cells,
    find,
    ladder_table,
    main_table,
    overview,
    plain_table,
    rungs,
    sparse_table,
    transfer_table,
)

HERE = Path(__file__).parent
DATA = ("mnist", "cifar10", "icons")


def main(folder: Path, full: Path | None) -> None:
    """Write everything; a second folder holds the part with networks of full width."""
    lines: list[str] = []
    rows: list[dict[str, object]] = []
    for data in DATA:
        if (folder / data).is_dir():
            lines += [f"## {data}", ""]
            lines += overview(folder / data)
            lines += main_table(folder / data, data, rows)
            lines += transfer_table(folder / data)
            lines += agreement_table(folder / data)
            lines += ladder_table(folder / data, rows, "step", "Step sizes")
            lines += ladder_table(folder / data, rows, "budget", "Budgets")
            lines += plain_table(folder / data, "search-*", "Other searches", rows)
            lines += plain_table(folder / data, "oracle-*", "Other oracles", rows)
            lines += sparse_table(folder / data)
            lines += plain_table(folder / data, "draw-*", "Other images of the same data", rows)
            lines += plain_table(folder / data, "again-*", "Other seeds of the training", rows)
            lines += plain_table(folder / data, "augment", "Training on generated images", rows)
            lines += audit_table(folder / data)
            transfer_picture(folder / data, data)
            pictures(folder / data, data)
    curves(folder, "main-vqgan", "iterations.png")
    ladders(folder)
    if full is not None:
        for data in sorted(part.name for part in full.iterdir() if part.is_dir()):
            lines += [f"## {data}, full width", ""]
            lines += plain_table(full / data, "oracle-*", "vqgan", rows)
            lines += agreement_table(full / data)
        curves(full, "oracle-classifier", "iterations-full.png")
    (HERE / "tables.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with (HERE / "rows.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def transfer_picture(folder: Path, data: str) -> None:
    """The matrix as colours."""
    file = folder / "transfer.json"
    if not file.is_file():
        return
    table = json.loads(file.read_text())
    fmr = np.array(table["fmr"])
    figure, axis = plt.subplots(figsize=(1.1 * fmr.shape[1] + 1.6, 0.7 * fmr.shape[0] + 1.4))
    axis.imshow(fmr, vmin=0, vmax=1, cmap="viridis")
    for i in range(fmr.shape[0]):
        for j in range(fmr.shape[1]):
            shade = "white" if fmr[i, j] < 0.6 else "black"
            axis.text(j, i, f"{100 * fmr[i, j]:.0f}", ha="center", va="center", color=shade)
    axis.set_xticks(range(fmr.shape[1]), table["viewers"], rotation=30, ha="right", fontsize=8)
    axis.set_yticks(range(fmr.shape[0]), table["makers"], fontsize=8)
    axis.set_title(f"{data}: FMR, rows made the images", fontsize=9)
    figure.tight_layout()
    figure.savefig(HERE / f"transfer-{data}.png", dpi=90)
    plt.close(figure)


def curves(folder: Path, part: str, name: str) -> None:
    """Iterations to fool, by model, for each dataset."""
    known = [data for data in DATA if (folder / data / part).is_dir()]
    figure, grid = plt.subplots(1, len(known), figsize=(3.8 * len(known), 3.2), squeeze=False)
    axes = grid[0]
    for axis, data in zip(axes, known, strict=True):
        for cell in cells(folder / data / part):
            points = sorted((s.condition["turn"], s) for s in cell.scores if s.metric == "fooled")
            turns = [turn + 1 for turn, _ in points]
            axis.plot(
                turns, [100 * s.value for _, s in points], marker="o", ms=3, label=cell.key.model
            )
            axis.fill_between(
                turns,
                [100 * s.ci_low for _, s in points],
                [100 * s.ci_high for _, s in points],
                alpha=0.12,
            )
        axis.set_xscale("log")
        axis.set_title(data, fontsize=10)
        axis.set_xlabel("candidates (1 is the reconstruction)")
        axis.legend(fontsize=7)
    axes[0].set_ylabel("validated images fooled (%)")
    figure.tight_layout()
    figure.savefig(HERE / name, dpi=90)
    plt.close(figure)


def ladders(folder: Path) -> None:
    """Matched FMR over step sizes and over budgets, for each dataset."""
    known = [data for data in DATA if rungs(folder / data, "step")]
    if not known:
        return
    size = (4 * len(known), 6)
    figure, axes = plt.subplots(2, len(known), figsize=size, sharey=True, squeeze=False)
    for line, (kind, label) in enumerate((("step", "step size"), ("budget", "budget"))):
        for axis, data in zip(axes[line], known, strict=True):
            found = rungs(folder / data, kind)
            for name in dict.fromkeys(cell.key.model for _, cell in found):
                points = [(x, find(c, "matched_fmr")) for x, c in found if c.key.model == name]
                seen = [(x, s) for x, s in points if s is not None]
                axis.errorbar(
                    [x for x, _ in seen],
                    [100 * s.value for _, s in seen],
                    yerr=[[100 * (s.value - (s.ci_low or 0)) for _, s in seen],
                          [100 * ((s.ci_high or 0) - s.value) for _, s in seen]],
                    marker="o", ms=4, capsize=3, label=name,
                )  # fmt: skip
            axis.set_xscale("log")
            ticks = sorted({x for x, _ in found})
            axis.set_xticks(ticks, [f"{x:g}" for x in ticks])
            axis.minorticks_off()
            axis.set_xlabel(label)
            axis.set_title(data, fontsize=10)
            if found:
                axis.legend(fontsize=7)
        axes[line][0].set_ylabel("matched FMR (%)")
    figure.tight_layout()
    figure.savefig(HERE / "ladders.png", dpi=90)
    plt.close(figure)


def pictures(folder: Path, data: str) -> None:
    """Originals and what each generator made of them against one model."""
    strips = []
    for generator in GENERATORS:
        plain = NETS[data][0]
        found = sorted(cells(folder / f"main-{generator}"), key=lambda c: c.key.model != plain)
        if not found or not found[0].pictures:
            continue
        images = [Image.open(BytesIO(base64.b64decode(p.png))) for p in found[0].pictures[:6]]
        words = [f"{p.facts['before']} > {p.facts['after']}" for p in found[0].pictures[:6]]
        scale = max(1, 128 // images[0].height)
        tiles = [
            i.resize((i.width * scale, i.height * scale), Image.Resampling.NEAREST) for i in images
        ]
        width, height = tiles[0].size
        sheet = Image.new("RGB", (6 * (width + 10), height + 34), "white")
        draw = ImageDraw.Draw(sheet)
        draw.text((2, 2), f"{generator}, {found[0].key.model}", fill="black")
        for place, (tile, word) in enumerate(zip(tiles, words, strict=True)):
            sheet.paste(tile, (place * (width + 10), 16))
            draw.text((place * (width + 10), height + 19), word[:38], fill="black")
        strips.append(sheet)
    if strips:
        whole = Image.new(
            "RGB", (max(s.width for s in strips), sum(s.height for s in strips)), "white"
        )
        top = 0
        for strip in strips:
            whole.paste(strip, (0, top))
            top += strip.height
        whole.quantize(128).save(HERE / f"pictures-{data}.png", optimize=True)


if __name__ == "__main__":
    main(
        Path(sys.argv[1] if len(sys.argv) > 1 else "runs/fmr"),
        Path(sys.argv[2]) if len(sys.argv) > 2 else None,
    )

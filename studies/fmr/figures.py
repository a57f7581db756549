"""The tables and figures of the FMR study, from the results that `study.py` left.

python studies/fmr/figures.py runs/fmr    # tables.md, rows.csv, README's tables and pictures
"""

from __future__ import annotations

import base64
import csv
import sys
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont

mpl.use("Agg")
import matplotlib.pyplot as plt
from page import fill
from parts import audit_table, augment_table, plain_table, search_table, sparse_table
from reading import DATA, Rows, cells, find, matched_transfer, rungs
from settings import GENERATORS, NETS
from tables import ladder_table, main_table, order_table, overview, transfer_table

HERE = Path(__file__).parent
PAIRS = 4  # pictures in a row


def main(folder: Path) -> None:
    """Write everything."""
    lines: list[str] = []
    rows: Rows = []
    for part in (folder / data for data in DATA if (folder / data).is_dir()):
        lines += [f"## {part.name}", "", *overview(part), *main_table(part, rows)]
        lines += [*transfer_table(part), *order_table(part)]
        lines += ladder_table(part, rows, "step", "Step sizes")
        lines += ladder_table(part, rows, "budget", "Budgets")
        lines += [*search_table(part, rows), *sparse_table(part, rows)]
        lines += [*plain_table(part, "oracle-*", "Other oracles (vqgan)", rows)]
        lines += audit_table(part)
        lines += plain_table(part, "draw-*", "Other images of the same data (vqgan)", rows)
        lines += plain_table(part, "again-*", "Other seeds of the training", rows)
        lines += augment_table(part, rows)
        transfer_picture(part)
        pictures(part)
    curves(folder)
    ladders(folder)
    fill(folder)
    (HERE / "tables.md").write_text("\n".join(lines), encoding="utf-8")
    with (HERE / "rows.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def transfer_picture(folder: Path) -> None:
    """The matrix as colours, with both accuracies on the validated images."""
    found = matched_transfer(folder)
    if found is None:
        return
    makers, viewers, shares = found
    height, width = shares.shape
    figure, axis = plt.subplots(figsize=(0.75 * width + 1.9, 0.75 * height + 1.5))
    axis.imshow(shares, vmin=0, vmax=1, cmap="viridis")
    for i in range(height):
        for j in range(width):
            shade = "white" if shares[i, j] < 0.6 else "black"
            axis.text(j, i, f"{100 * shares[i, j]:.0f}", ha="center", va="center", color=shade)
    axis.set_xticks(range(width), viewers, rotation=35, ha="right", fontsize=9)
    axis.set_yticks(range(height), makers, fontsize=9)
    axis.set_title(f"{folder.name}: matched FMR (%), rows made the images", fontsize=10)
    figure.tight_layout()
    figure.savefig(HERE / f"transfer-{folder.name}.png", dpi=90)
    plt.close(figure)


def curves(folder: Path) -> None:
    """Candidates until fooled, by model, for each dataset, under the VQGAN."""
    known = [data for data in DATA if (folder / data / "main-vqgan").is_dir()]
    size = (3.9 * len(known), 4.4)
    figure, grid = plt.subplots(1, len(known), figsize=size, sharey=True, squeeze=False)
    for axis, data in zip(grid[0], known, strict=True):
        for cell in cells(folder / data / "main-vqgan"):
            found = [s for s in cell.scores if s.metric == "fooled"]
            points = sorted((int(str(s.condition["turn"])), s) for s in found)
            turns = [turn + 1 for turn, _ in points]
            values = [100 * s.value for _, s in points]
            axis.plot(turns, values, marker="o", ms=3, label=cell.key.model)
            ends = [[100 * (end or 0) for end in (s.ci_low, s.ci_high)] for _, s in points]
            axis.fill_between(turns, *np.transpose(ends), alpha=0.12)
        axis.set_xscale("log")
        axis.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
        axis.minorticks_off()
        axis.set_ylim(0, 100)
        axis.set_title(data, fontsize=10)
        axis.set_xlabel("candidates (1 is the reconstruction)")
        axis.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    grid[0][0].set_ylabel("validated images fooled by then (%)")
    figure.tight_layout()
    figure.savefig(HERE / "iterations.png", dpi=90, bbox_inches="tight")
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


def pictures(folder: Path) -> None:
    """Originals and what each generator made of them against the plain model."""
    plain = NETS[folder.name][0]
    font = ImageFont.load_default(size=15)
    strips = []
    for generator in GENERATORS:
        found = [c for c in cells(folder / f"main-{generator}") if c.key.model == plain]
        shown = [p for cell in found for p in cell.pictures][:PAIRS]
        if not shown:
            continue
        images = [Image.open(BytesIO(base64.b64decode(p.png))) for p in shown]
        # A pair stands side by side with a gap; small images are enlarged.
        scale = max(1, round(120 / images[0].height))
        width, height = images[0].width * scale, images[0].height * scale
        sheet = Image.new("RGB", (PAIRS * (width + 28), height + 52), "white")
        draw = ImageDraw.Draw(sheet)
        draw.text((2, 4), f"{generator}, against {plain}", fill="black", font=font)
        for place, (picture, image) in enumerate(zip(shown, images, strict=True)):
            left = place * (width + 28)
            sheet.paste(image.resize((width, height), Image.Resampling.NEAREST), (left, 26))
            words = f"{picture.facts['before']} > {picture.facts['after']}"
            draw.text((left, height + 28), words[:34], fill="black", font=font)
        strips.append(sheet)
    if strips:
        size = (max(s.width for s in strips), sum(s.height for s in strips))
        whole = Image.new("RGB", size, "white")
        top = 0
        for strip in strips:
            whole.paste(strip, (0, top))
            top += strip.height
        whole.quantize(128).save(HERE / f"pictures-{folder.name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/fmr"))

"""The tables and figures of the FMR study, from the results that `study.py` left.

python studies/fmr/figures.py runs/fmr          # writes tables.md, rows.csv and pictures here
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

from stockpot.measure.dynamic.agreement import accuracy_table, fmr_table, rank_agreement
from stockpot.results.schema import CellResult, Score
from stockpot.results.store import load_results

HERE = Path(__file__).parent
DATA = ("mnist", "cifar10", "icons")
GENERATORS = ("vqgan", "style", "warp", "colour", "frequency", "mixture")


def main(folder: Path) -> None:
    """Write everything."""
    lines: list[str] = []
    rows: list[dict[str, object]] = []
    for data in DATA:
        if (folder / data).is_dir():
            lines += [f"## {data}", ""]
            lines += main_table(folder / data, data, rows)
            lines += transfer_table(folder / data, data)
            lines += agreement_table(folder / data)
            lines += step_table(folder / data, rows)
            lines += plain_table(folder / data, "search-*", "Other searches")
            lines += plain_table(folder / data, "oracle-*", "Other oracles")
            lines += sparse_table(folder / data)
            lines += plain_table(folder / data, "augment", "Training on generated images")
            lines += audit_table(folder / data)
            pictures(folder / data, data)
    curves(folder)
    (HERE / "tables.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with (HERE / "rows.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def cells(folder: Path) -> list[CellResult]:
    """The results of one part, or none."""
    return load_results(folder) if (folder / "results").is_dir() else []


def find(cell: CellResult, metric: str) -> Score | None:
    """A score of all images together."""
    for score in cell.scores:
        if score.metric == metric and not {"class", "turn"} & score.condition.keys():
            return score
    return None


def text(cell: CellResult, metric: str, *, interval: bool = True) -> str:
    """A percentage with its interval."""
    score = find(cell, metric)
    if score is None:
        return "-"
    value = f"{100 * score.value:.1f}"
    if interval and score.ci_low is not None and score.ci_high is not None:
        value += f" [{100 * score.ci_low:.1f}, {100 * score.ci_high:.1f}]"
    return value


def main_table(folder: Path, data: str, rows: list[dict[str, object]]) -> list[str]:
    """SA, VR, PA and FMR of every model under every generator."""
    lines = []
    for generator in GENERATORS:
        found = cells(folder / f"main-{generator}")
        if not found:
            continue
        n = found[0].data.n
        lines += [f"**{generator}**, {n} images, {found[0].convention.split(';')[-1].strip()}", ""]
        lines += [
            "| model | SA | coverage | VR | PA | FMR | matched FMR |",
            "|---|---|---|---|---|---|---|",
        ]
        for cell in found:
            shown = [text(cell, m) for m in ("accuracy", "coverage", "validation_rate",
                     "perturbed_accuracy", "fmr", "matched_fmr")]  # fmt: skip
            lines.append(f"| {cell.key.model} | " + " | ".join(shown) + " |")
            rows += [row(data, generator, cell)]
        lines.append("")
    return lines


def row(data: str, setting: str, cell: CellResult) -> dict[str, object]:
    """One line of the CSV."""
    made: dict[str, object] = {"data": data, "setting": setting, "model": cell.key.model}
    for metric in ("accuracy", "coverage", "validation_rate", "perturbed_accuracy", "fmr",
                   "matched_fmr", "steps", "code_flip_rate"):  # fmt: skip
        score = find(cell, metric)
        made[metric] = round(score.value, 4) if score else ""
        made[f"{metric}_low"] = round(score.ci_low, 4) if score and score.ci_low is not None else ""
        made[f"{metric}_high"] = (
            round(score.ci_high, 4) if score and score.ci_high is not None else ""
        )
    made["n"] = cell.data.n
    return made


def transfer_table(folder: Path, data: str) -> list[str]:
    """Rows made the images, columns look at them."""
    file = folder / "transfer.json"
    if not file.is_file():
        return []
    table = json.loads(file.read_text())
    lines = ["**Transfer**: FMR of the column's model on images made against the row's", ""]
    lines += ["| made against | n | " + " | ".join(table["viewers"]) + " |"]
    lines += ["|---|---|" + "---|" * len(table["viewers"])]
    for place, maker in enumerate(table["makers"]):
        shown = [
            f"{100 * v:.1f} [{100 * a:.1f}, {100 * b:.1f}]"
            for v, a, b in zip(*(table[k][place] for k in ("fmr", "low", "high")), strict=True)
        ]
        lines.append(f"| {maker} | {table['n'][place]} | " + " | ".join(shown) + " |")
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
    return [*lines, ""]


def agreement_table(folder: Path) -> list[str]:
    """Do generators, oracles and static corruptions rank the models alike?"""
    settings = {}
    for generator in GENERATORS:
        found = cells(folder / f"main-{generator}")
        if found:
            settings[generator] = {cell.key.model: fmr_table(cell) for cell in found}
    for name in ("second", "both"):
        found = cells(folder / f"oracle-{name}")
        if found:
            settings[f"vqgan, {name} oracle"] = {c.key.model: fmr_table(c) for c in found}
    static = cells(folder / "static")
    if static:
        settings["corruptions"] = {c.key.model: static_table(c) for c in static}
    names = (
        sorted(set.intersection(*(set(found) for found in settings.values()))) if settings else []
    )
    if len(names) < 3 or len(settings) < 2:
        return []
    tables = {key: [found[name] for name in names] for key, found in settings.items()}
    lines = [f"**Rank agreement** of {len(names)} models (Spearman, 95 % over images)", ""]
    lines += ["| setting | setting | correlation | interval |", "|---|---|---|---|"]
    for pair in rank_agreement(tables, resamples=500):
        lines.append(
            f"| {pair.first} | {pair.second} | {pair.correlation:.2f} | "
            f"[{pair.low:.2f}, {pair.high:.2f}] |"
        )
    return [*lines, ""]


def static_table(cell: CellResult) -> np.ndarray:
    """Accuracy over all corrupted copies of each image, relative to nothing."""
    flags = [cell.outcome(name) for name in cell.outcomes if name != "correct"]
    if not flags:
        flags = [cell.outcome("correct")]
    mean = np.mean([flag.astype(float) for flag in flags], axis=0)
    table = accuracy_table(np.ones(len(mean), dtype=bool))
    table[:, 0] = mean
    table[:, 2] = cell.outcome("correct") if "correct" in cell.outcomes else 1.0
    return table


def step_table(folder: Path, rows: list[dict[str, object]]) -> list[str]:
    """VR, FMR and the spread of per-class FMR at several step sizes."""
    parts = sorted(folder.glob("step-*"), key=lambda path: float(path.name.split("-", 1)[1]))
    if not parts:
        return []
    lines = ["**Step sizes** (vqgan)", ""]
    lines += ["| step | model | VR | PA | FMR | spread of class FMR | flips | steps |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for part in parts:
        for cell in cells(part):
            spread = [s.value for s in cell.scores if s.metric == "class_fmr"]
            deviation = f"{100 * float(np.std(spread)):.1f}" if spread else "-"
            steps = find(cell, "steps")
            shown = [text(cell, m) for m in ("validation_rate", "perturbed_accuracy", "fmr")]
            lines.append(
                f"| {part.name[5:]} | {cell.key.model} | {' | '.join(shown)} | {deviation} | "
                f"{text(cell, 'code_flip_rate', interval=False)} % | "
                f"{steps.value if steps else float('nan'):.1f} |"
            )
            rows.append(row(folder.name, part.name, cell))
    return [*lines, ""]


def plain_table(folder: Path, pattern: str, title: str) -> list[str]:
    """Any other part."""
    lines = []
    for part in sorted(folder.glob(pattern)):
        for cell in cells(part):
            shown = [
                text(cell, m) for m in ("accuracy", "validation_rate", "perturbed_accuracy", "fmr")
            ]
            name = part.name.split("-", 1)[-1].replace("_", " ")
            lines.append(f"| {name} | {cell.key.model} | {cell.data.n} | {' | '.join(shown)} |")
    if not lines:
        return []
    head = [f"**{title}** (vqgan)", "", "| setting | model | n | SA | VR | PA | FMR |"]
    return [*head, "|---|---|---|---|---|---|---|", *lines, ""]


def sparse_table(folder: Path) -> list[str]:
    """Full and sparse latents: what is kept, how well the mask tells, and what it costs."""
    lines = []
    names = {cell.key.model for cell in cells(folder / "sparse-settled")}
    full = [cell for cell in cells(folder / "main-vqgan") if cell.key.model in names]
    for name, found in (
        ("full", full),
        *((v, cells(folder / f"sparse-{v}")) for v in ("settled", "paper")),
    ):
        for cell in found:
            lines.append(
                f"| {name} | {cell.key.model} | {cell.data.n} | "
                f"{text(cell, 'mask_sparsity', interval=False)} | "
                f"{text(cell, 'mask_score', interval=False)} | "
                f"{text(cell, 'perturbed_accuracy')} | {text(cell, 'fmr')} | "
                f"{1000 * cell.cost.wall_seconds / cell.data.n:.0f} |"
            )
    if len(lines) < 2:
        return []
    head = [
        "**Sparse masks** (vqgan)",
        "",
        "| latents | model | n | sparsity | test score | PA | FMR | ms per image |",
    ]
    return [*head, "|---|---|---|---|---|---|---|---|", *lines, ""]


def audit_table(folder: Path) -> list[str]:
    """How far the oracles themselves can be trusted."""
    lines = [
        f"| {Path(cell.model.source).name} | {cell.data.n} | {text(cell, 'accuracy')} | "
        f"{text(cell, 'reconstruction_accuracy')} | {text(cell, 'searched_accuracy')} |"
        for cell in cells(folder / "audit")
    ]
    if not lines:
        return []
    head = [
        "**Oracle audit**",
        "",
        "| oracle | n | accuracy | on reconstructions | after a search against itself |",
    ]
    return [*head, "|---|---|---|---|---|", *lines, ""]


def curves(folder: Path) -> None:
    """Iterations to fool, by model, for each dataset."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
    for axis, data in zip(axes, DATA, strict=True):
        for cell in cells(folder / data / "main-vqgan"):
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
    figure.savefig(HERE / "iterations.png", dpi=90)
    plt.close(figure)


def pictures(folder: Path, data: str) -> None:
    """Originals and what each generator made of them against one model."""
    strips = []
    for generator in GENERATORS:
        found = cells(folder / f"main-{generator}")
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
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/fmr"))

"""The other tables of the FMR study: searches, oracles, masks, seeds, training, audits."""

from __future__ import annotations

from pathlib import Path

from reading import Rows, cells, difference, percent, plain, row, text, trained_on
from settings import MASKS, SEARCHES
from tables import table

SCORES = ("accuracy", "validation_rate", "perturbed_accuracy", "fmr", "matched_fmr")
HEAD = "model | n | SA | VR | PA | FMR | matched FMR"


def search_table(folder: Path, rows: Rows) -> list[str]:
    """Other searches, each against the published one on the same images."""
    published = {c.key.model: c for c in cells(folder / "search-as_published")}
    lines = []
    for name in SEARCHES:
        part = f"search-{name.replace(' ', '_').replace(',', '')}"
        for cell in cells(folder / part):
            base = published.get(cell.key.model)
            gain = "-" if base in (None, cell) else percent(*difference(base, cell))
            metrics = ("validation_rate", "perturbed_accuracy", "matched_fmr")
            shown = " | ".join(text(cell, m) for m in metrics)
            lines.append(
                f"| {name} | {cell.key.model} | {cell.data.n} | {shown} | {gain} | "
                f"{plain(cell, 'steps')} |"
            )
            rows.append(row(folder.name, part, cell))
    head = "search | model | n | VR | PA | matched FMR | PA less the published one's | steps"
    return table("Other searches (vqgan)", head, lines)


def plain_table(folder: Path, pattern: str, title: str, rows: Rows) -> list[str]:
    """Any part: one line for every setting and model."""
    lines = []
    for part in sorted(folder.glob(pattern)):
        name = part.name.split("-", 1)[-1]
        for cell in cells(part):
            shown = " | ".join(text(cell, m) for m in SCORES)
            lines.append(f"| {name} | {cell.key.model} | {cell.data.n} | {shown} |")
            rows.append(row(folder.name, part.name, cell))
    return table(title, f"setting | {HEAD}", lines)


def augment_table(folder: Path, rows: Rows) -> list[str]:
    """The plain network, trained on for a little: plainly, and on generated images."""
    lines = []
    for cell in trained_on(folder):
        shown = " | ".join(text(cell, m) for m in SCORES)
        lines.append(f"| {cell.key.model} | {cell.data.n} | {shown} |")
    rows += [row(folder.name, "augment", cell) for cell in cells(folder / "augment")]
    return table("Training on generated images (vqgan)", HEAD, lines)


def sparse_table(folder: Path, rows: Rows) -> list[str]:
    """Full and sparse latents: what is held, how well the mask tells, and what it costs."""
    lines = []
    for part, label in MASKS.items():
        for cell in cells(folder / part):
            shown = [text(cell, m, interval=False) for m in ("mask_sparsity", "mask_score")]
            shown += [text(cell, m) for m in ("perturbed_accuracy", "fmr", "matched_fmr")]
            shown += [text(cell, "code_flip_rate", interval=False), plain(cell, "steps")]
            lines.append(
                f"| {label} | {cell.key.model} | {cell.data.n} | "
                f"{' | '.join(shown)} | {1000 * cell.cost.wall_seconds / cell.data.n:.0f} |"
            )
            rows.append(row(folder.name, part, cell))
    head = (
        "latents | model | n | held (%) | test score (%) | PA | FMR | matched FMR | "
        "codes flipped per step (%) | steps | ms per image"
    )
    return table("Sparse masks (vqgan)", head, lines)


def audit_table(folder: Path) -> list[str]:
    """How far the oracles themselves can be trusted."""
    lines = [
        f"| {cell.key.model}: {Path(cell.model.source).name} | {cell.data.n} | "
        f"{text(cell, 'accuracy')} | "
        f"{text(cell, 'reconstruction_accuracy')} | {text(cell, 'searched_accuracy')} |"
        for cell in cells(folder / "audit")
    ]
    head = "oracle | n | accuracy | on reconstructions | after a search against itself"
    return table("Oracle audit (vqgan)", head, lines)

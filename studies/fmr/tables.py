"""The main tables of the FMR study: models, transfer, order, step sizes and budgets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from ranking import comparisons, settings_of
from reading import (
    Rows,
    cells,
    given_back,
    matched_transfer,
    of_validated,
    percent,
    plain,
    row,
    rungs,
    text,
)
from settings import GENERATORS

from stockpot.results.agreement import self_agreement


def table(title: str, head: str, lines: list[str]) -> list[str]:
    """A titled Markdown table, or nothing where there are no lines."""
    if not lines:
        return []
    return [f"**{title}**", "", f"| {head} |", "|---" * (head.count("|") + 1) + "|", *lines, ""]


def overview(folder: Path) -> list[str]:
    """One line per model: SA, and FMR under every generator."""
    found = {g: {c.key.model: c for c in cells(folder / f"main-{g}")} for g in GENERATORS}
    found = {generator: known for generator, known in found.items() if known}
    if not found:
        return []
    first = next(iter(found.values()))
    lines = []
    for metric, title in (("matched_fmr", "matched FMR"), ("fmr", "FMR")):
        shown = [
            f"| {name} | {text(cell, 'accuracy')} | "
            + " | ".join(text(known[name], metric) for known in found.values() if name in known)
            + " |"
            for name, cell in first.items()
        ]
        n = next(iter(first.values())).data.n
        lines += table(f"{title} (%), {n} images", "model | SA | " + " | ".join(found), shown)
    return lines


def main_table(folder: Path, rows: Rows) -> list[str]:
    """SA, coverage, VR, PA and FMR of every model under every generator."""
    lines = []
    for generator in GENERATORS:
        found = cells(folder / f"main-{generator}")
        shown = []
        for cell in found:
            values = [text(cell, m) for m in ("accuracy", "coverage", "validation_rate")]
            values += [of_validated(cell), given_back(cell)]
            values += [text(cell, m) for m in ("perturbed_accuracy", "fmr", "matched_fmr")]
            values += [text(cell, "budget_spent", interval=False)]
            shown.append(f"| {cell.key.model} | " + " | ".join(values) + " |")
            rows.append(row(folder.name, generator, cell))
        if found:
            how = f"{found[0].data.n} images, {found[0].convention.split(';')[-1].strip()}"
            head = (
                "model | SA | coverage | VR | SA of the validated | on the first candidate | PA | "
            )
            head += "FMR | matched FMR | whole budget spent"
            lines += table(f"{generator}, {how}", head, shown)
    return lines


def transfer_table(folder: Path) -> list[str]:
    """Rows made the images, columns look at them."""
    file = folder / "transfer.json"
    if not file.is_file():
        return []
    found = json.loads(file.read_text())
    lines = []
    for place, maker in enumerate(found["makers"]):
        values = zip(*(found[key][place] for key in ("fmr", "low", "high")), strict=True)
        shown = " | ".join(percent(*value) for value in values)
        lines.append(f"| {maker} | {found['n'][place]} | {shown} |")
    title = "Transfer (vqgan): FMR of the column's model on images made against the row's"
    head = "made against | n | " + " | ".join(found["viewers"])
    shares = matched_transfer(folder)
    matched = [] if shares is None else [
        f"| {maker} | {n} | " + " | ".join(percent(value) for value in values) + " |"
        for maker, n, values in zip(found["makers"], found["n"], shares[2], strict=True)
    ]  # fmt: skip
    return [*table(title, head, lines), *table("Transfer, matched FMR", head, matched)]


def order_table(folder: Path) -> list[str]:
    """Rank correlations with their intervals, and the pairs that stand in opposite orders."""
    lines = [
        f"| {ranks.first} | {ranks.second} | {ranks.models} | {ranks.correlation:.2f} "
        f"[{ranks.low:.2f}, {ranks.high:.2f}] | {ranks.opposite} of {ranks.decided} |"
        for ranks in comparisons(folder)
    ]
    title = "Order of the models (Spearman's correlation of FMR; 95 % over images)"
    head = "setting | setting | models | correlation | opposite, of pairs decided in both"
    known = settings_of(folder).items()
    ceilings = ", ".join(
        f"{name} {self_agreement(list(tables.values())):.2f}" for name, tables in known
    )
    note = [f"With itself, on two halves of its images: {ceilings}.", ""] if ceilings else []
    return [*table(title, head, lines), *note]


def ladder_table(folder: Path, rows: Rows, kind: str, title: str) -> list[str]:
    """VR, FMR and the spread of per-class FMR at several step sizes or budgets."""
    lines = []
    for rung, cell in rungs(folder, kind):
        spread = [s.value for s in cell.scores if s.metric == "class_fmr"]
        deviation = f"{100 * float(np.std(spread)):.1f}" if spread else "-"
        metrics = ("validation_rate", "perturbed_accuracy", "fmr", "matched_fmr")
        shown = [text(cell, m) for m in metrics]
        shown += [deviation, text(cell, "code_flip_rate", interval=False), plain(cell, "steps")]
        shown += [text(cell, "budget_spent", interval=False)]
        lines.append(f"| {rung:g} | {cell.key.model} | {cell.data.n} | {' | '.join(shown)} |")
        rows.append(row(folder.name, f"{kind}-{rung:g}", cell))
    head = f"{kind} | model | n | VR | PA | FMR | matched FMR | spread of class FMR | "
    return table(
        f"{title} (vqgan)", head + "codes flipped per step (%) | steps | budget spent (%)", lines
    )

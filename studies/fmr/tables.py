"""The tables of the FMR study, from the results that `study.py` left."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
from settings import GENERATORS

from stockpot.measure.dynamic.agreement import Agreement, accuracy_table, fmr_table, rank_agreement
from stockpot.results.schema import CellResult, Score
from stockpot.results.store import load_results


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


def overview(folder: Path) -> list[str]:
    """One line per model: SA, and FMR under every generator."""
    lines = []
    for metric, title in (("fmr", "FMR"), ("matched_fmr", "matched FMR")):
        found = {
            generator: {cell.key.model: cell for cell in cells(folder / f"main-{generator}")}
            for generator in GENERATORS
        }
        found = {generator: known for generator, known in found.items() if known}
        if not found:
            return []
        first = next(iter(found.values()))
        n = next(iter(first.values())).data.n
        lines += [f"**{title} (%)**, {n} images", ""]
        lines += ["| model | SA | " + " | ".join(found) + " |", "|---|---|" + "---|" * len(found)]
        for name, cell in first.items():
            shown = [
                text(known[name], metric) if name in known else "-" for known in found.values()
            ]
            lines.append(f"| {name} | {text(cell, 'accuracy')} | " + " | ".join(shown) + " |")
        lines.append("")
    return lines


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


def transfer_table(folder: Path) -> list[str]:
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
    return [*lines, ""]


def agreements(folder: Path) -> list[Agreement]:
    """Do generators, oracles and static corruptions rank the models alike?"""
    settings = {}
    for generator in GENERATORS:
        found = cells(folder / f"main-{generator}")
        if found:
            settings[generator] = {cell.key.model: fmr_table(cell) for cell in found}
    for name in ("generalist", "both", "classifier"):
        found = cells(folder / f"oracle-{name}")
        if found:
            settings[f"vqgan, oracle: {name}"] = {c.key.model: fmr_table(c) for c in found}
    static = cells(folder / "static")
    if static:
        settings["corruptions"] = {c.key.model: static_table(c) for c in static}
    pairs = []
    for first, second in combinations(settings, 2):
        if "oracle" in first + second and not {first, second} & {"vqgan", "corruptions"}:
            continue  # oracles are compared under the same generator only
        names = sorted(settings[first].keys() & settings[second].keys())
        if len(names) >= 4:
            tables = {key: [settings[key][name] for name in names] for key in (first, second)}
            pairs += rank_agreement(tables, resamples=500)
    return pairs


def agreement_table(folder: Path) -> list[str]:
    """Rank correlations with their intervals."""
    lines = [
        f"| {pair.first} | {pair.second} | {pair.models} | {pair.correlation:.2f} | "
        f"[{pair.low:.2f}, {pair.high:.2f}] |"
        for pair in agreements(folder)
    ]
    if not lines:
        return []
    head = ["**Rank agreement** (Spearman's correlation of the models' FMR; 95 % over images)", ""]
    head += ["| setting | setting | models | correlation | interval |", "|---|---|---|---|---|"]
    return [*head, *lines, ""]


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


def rungs(folder: Path, kind: str) -> list[tuple[float, CellResult]]:
    """The cells at several step sizes or budgets, in order."""
    found = [
        (float(part.name.split("-", 1)[1]), cell)
        for part in folder.glob(f"{kind}-*")
        for cell in cells(part)
    ]
    if kind == "budget":
        # The budget of the main table stands among the step sizes: at the generator's own.
        found += [(float(c.key.params["budget"]), c) for c in cells(folder / "step-0.01")]
    return sorted(found, key=lambda pair: (pair[0], pair[1].key.model))


def ladder_table(folder: Path, rows: list[dict[str, object]], kind: str, title: str) -> list[str]:
    """VR, FMR and the spread of per-class FMR at several step sizes or budgets."""
    found = rungs(folder, kind)
    if not found:
        return []
    lines = [f"**{title}** (vqgan)", ""]
    lines += [f"| {kind} | model | n | VR | PA | FMR | spread of class FMR | flips | steps |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for rung, cell in found:
        spread = [s.value for s in cell.scores if s.metric == "class_fmr"]
        deviation = f"{100 * float(np.std(spread)):.1f}" if spread else "-"
        steps = find(cell, "steps")
        shown = [text(cell, m) for m in ("validation_rate", "perturbed_accuracy", "fmr")]
        lines.append(
            f"| {rung:g} | {cell.key.model} | {cell.data.n} | {' | '.join(shown)} | {deviation} | "
            f"{text(cell, 'code_flip_rate', interval=False)} % | "
            f"{steps.value if steps else float('nan'):.1f} |"
        )
        rows.append(row(folder.name, f"{kind}-{rung:g}", cell))
    return [*lines, ""]


def plain_table(folder: Path, pattern: str, title: str, rows: list[dict[str, object]]) -> list[str]:
    """Any other part."""
    lines = []
    for part in sorted(folder.glob(pattern)):
        name = part.name.split("-", 1)[-1].replace("_", " ")
        for cell in cells(part):
            shown = [
                text(cell, m)
                for m in ("accuracy", "validation_rate", "perturbed_accuracy", "fmr", "matched_fmr")
            ]
            lines.append(f"| {name} | {cell.key.model} | {cell.data.n} | {' | '.join(shown)} |")
            rows.append(row(folder.name, part.name, cell))
    if not lines:
        return []
    head = [f"**{title}**", "", "| setting | model | n | SA | VR | PA | FMR | matched FMR |"]
    return [*head, "|---|---|---|---|---|---|---|---|", *lines, ""]


def sparse_table(folder: Path) -> list[str]:
    """Full and sparse latents: what is kept, how well the mask tells, and what it costs."""
    lines = []
    for variant in ("no", "settled", "paper"):
        for cell in cells(folder / f"sparse-{variant}"):
            steps = find(cell, "steps")
            lines.append(
                f"| {'full' if variant == 'no' else variant} | {cell.key.model} | {cell.data.n} | "
                f"{text(cell, 'mask_sparsity', interval=False)} | "
                f"{text(cell, 'mask_score', interval=False)} | "
                f"{text(cell, 'perturbed_accuracy')} | {text(cell, 'fmr')} | "
                f"{steps.value if steps else float('nan'):.1f} | "
                f"{1000 * cell.cost.wall_seconds / cell.data.n:.0f} |"
            )
    if len(lines) < 2:
        return []
    head = [
        "**Sparse masks** (vqgan)",
        "",
        "| latents | model | n | sparsity | test score | PA | FMR | steps | ms per image |",
    ]
    return [*head, "|---|---|---|---|---|---|---|---|---|", *lines, ""]


def audit_table(folder: Path) -> list[str]:
    """How far the oracles themselves can be trusted."""
    lines = [
        f"| {cell.key.model}: {Path(cell.model.source).name} | {cell.data.n} | "
        f"{text(cell, 'accuracy')} | "
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

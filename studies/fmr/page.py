"""The tables of README.md, from the results that `study.py` left: each stands between two marks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from reading import DATA, cells, difference, find, given_back, of_validated, rungs, text, trained_on
from settings import AGAIN, GENERATORS, MASKS, NETS, SEARCHES

from stockpot.results.schema import CellResult
from stockpot.results.tables import fill as fill_page

PAGE = Path(__file__).parent / "README.md"
ORACLES = ("generalist", "both", "classifier")


def fill(folder: Path) -> None:
    """Replace every marked table of the page."""
    found = {f"main-{data}": main(folder / data) for data in DATA}
    found |= {
        "reconstruction": reconstruction(folder / "cifar10"),
        "ladders": ladders(folder),
        "searches": searches(folder),
        "sparse": sparse(folder),
        "oracles": oracles(folder),
        "audit": audit(folder),
        "draws": draws(folder),
        "seeds": seeds(folder),
        "augment": augment(folder / "cifar10"),
    }
    fill_page(PAGE, {name: "\n".join(lines) for name, lines in found.items()})


def table(head: str, rows: Iterable[Iterable[str]]) -> list[str]:
    """Markdown."""
    shown = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {head} |", "|---" * (head.count("|") + 1) + "|", *shown]


def named(folder: Path) -> dict[str, CellResult]:
    """The results of one part, by model."""
    return {cell.key.model: cell for cell in cells(folder)}


def pairs() -> list[tuple[str, str]]:
    """The plain and the robust network of each dataset."""
    return [(data, model) for data in DATA for model in NETS[data][:2]]


def main(folder: Path) -> list[str]:
    """SA, and matched FMR under every generator."""
    found = {generator: named(folder / f"main-{generator}") for generator in GENERATORS}
    rows = [
        [name, text(cell, "accuracy"), *(text(by[name], "matched_fmr") for by in found.values())]
        for name, cell in found[GENERATORS[0]].items()
    ]
    return table(f"model | SA | {' | '.join(GENERATORS)}", rows)


def reconstruction(folder: Path) -> list[str]:
    """What the autoencoder alone costs."""
    rows = [
        [c.key.model, of_validated(c), given_back(c), text(c, "perturbed_accuracy")]
        for c in cells(folder / "main-vqgan")
    ]
    return table("model | SA of the validated | on their reconstruction | PA (vqgan)", rows)


def ladders(folder: Path) -> list[str]:
    """Matched FMR over step sizes and budgets."""
    rows, head = [], ""
    for data, model in pairs():
        names, values = [], []
        for kind in ("step", "budget"):
            found = [(v, c) for v, c in rungs(folder / data, kind) if c.key.model == model]
            first, *others = (f"{value:g}" for value, _ in found)
            names += [f"{kind} {first}", *others]
            values += [text(cell, "matched_fmr", interval=False) for _, cell in found]
        head = f"matched FMR (%) | {' | '.join(names)}"
        rows.append([model, *values])
    return table(head, rows)


def searches(folder: Path) -> list[str]:
    """Matched FMR, and PA less that of the published search; bold where 0 is left out."""
    rows = []
    for name in SEARCHES:
        part = f"search-{name.replace(' ', '_').replace(',', '')}"
        row = [name]
        for data, model in pairs():
            base = named(folder / data / "search-as_published")[model]
            cell = named(folder / data / part)[model]
            if cell.key == base.key:
                row.append(text(cell, "matched_fmr"))
                continue
            gain, low, high = difference(base, cell)
            shown = re.sub(r"^[+-]0\.0$", "0.0", f"{100 * gain:+.1f}")
            shown = f"**{shown}**" if low > 0 or high < 0 else shown
            row.append(f"{text(cell, 'matched_fmr', interval=False)} ({shown})")
        rows.append(row)
    return table(f"search | {' | '.join(model for _, model in pairs())}", rows)


def sparse(folder: Path) -> list[str]:
    """Full and sparse latents."""
    rows = []
    for data in DATA:
        for part, label in MASKS.items():
            for cell in cells(folder / data / part):
                shares = [
                    f"{text(cell, metric, interval=False)} %" if find(cell, metric) else "-"
                    for metric in ("mask_sparsity", "mask_score", "code_flip_rate")
                ]
                cost = f"{1000 * cell.cost.wall_seconds / cell.data.n:.0f}"
                where = [f"{data}, {cell.key.model}", str(cell.data.n), label]
                rows.append([*where, *shares, text(cell, "matched_fmr"), cost])
    return table(
        "data, model | n | latents | held | test score | codes flipped per step | matched FMR | "
        "ms per image",
        rows,
    )


def oracles(folder: Path) -> list[str]:
    """Matched FMR under other oracles, and the share of images each validates."""
    rows = []
    for data in DATA:
        found = [named(folder / data / "main-vqgan")]
        found += [named(folder / data / f"oracle-{oracle}") for oracle in ORACLES]
        rates = [text(next(iter(by.values())), "validation_rate", interval=False) for by in found]
        rows.append([f"*{data}: VR*", *(f"*{rate}*" for rate in rates)])
        for model in NETS[data]:
            rows.append(
                [model, *(text(by[model], "matched_fmr") if model in by else "-" for by in found)]
            )
    return table(f"model | expert | {' | '.join(ORACLES)}", rows)


def audit(folder: Path) -> list[str]:
    """How far each oracle can be trusted."""
    rows = []
    for data in DATA:
        by = named(folder / data / "audit")
        for role in ("expert", "generalist", "classifier"):
            metrics = ("accuracy", "reconstruction_accuracy", "searched_accuracy")
            name = Path(by[role].model.source).name
            rows.append([f"{data}, {role}: {name}", *(text(by[role], m) for m in metrics)])
    return table("oracle | accuracy | on reconstructions | after a search against it", rows)


def draws(folder: Path) -> list[str]:
    """The same networks on other images."""
    parts = ("main-vqgan", "draw-1", "draw-2")
    rows = [
        [model, *(text(named(folder / data / part)[model], "matched_fmr") for part in parts)]
        for data, model in pairs()
    ]
    return table("vqgan | main table | another draw | a third draw", rows)


def seeds(folder: Path) -> list[str]:
    """The same training with other seeds."""
    generators = ("vqgan", "warp", "colour")
    rows = [
        [m, *(text(named(folder / data / f"again-{g}")[m], "matched_fmr") for g in generators)]
        for data, models in AGAIN.items()
        for m in models
    ]
    return table(f"network, seed | {' | '.join(generators)}", rows)


def augment(folder: Path) -> list[str]:
    """A network trained on, plainly and on generated images."""
    metrics = ("accuracy", "validation_rate", "perturbed_accuracy", "fmr", "matched_fmr")
    rows = [[c.key.model, *(text(c, m) for m in metrics)] for c in trained_on(folder)]
    return table("model | SA | VR | PA | FMR | matched FMR", rows)

"""The tables of the FMR study, from the results that `study.py` left.

    python studies/fmr/former/tables.py runs/fmr    # rows.csv, README's tables, pictures, G1 to G6

A row of rows.csv is one model in one setting; README.md's tables are made of these rows alone.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from study import AGAIN, GENERATORS, MASKS, NETS, ORACLES, SEARCHES, part_of

from stockpot.datasets.load import load_dataset
from stockpot.files import write_atomic
from stockpot.results.agreement import cell_agreement, outcome_table, self_agreement
from stockpot.results.contrast import Contrast, paired
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text, fill, markdown, percent, score_row

HERE = Path(__file__).parent
METRICS = (
    "accuracy", "coverage", "validation_rate", "perturbed_accuracy", "fmr", "matched_fmr", "steps",
    "code_flip_rate", "mask_sparsity", "mask_score", "budget_spent", "reconstruction_accuracy",
    "searched_accuracy",
)  # fmt: skip
Row = dict[str, Any]
Place = tuple[str, str, str]
"""Dataset, setting, model."""


def cells(folder: Path) -> list[CellResult]:
    """The results of one part in the order of the settings, or none."""
    found = load_results(folder) if (folder / "results").is_dir() else []
    order = [name for names in (*NETS.values(), *AGAIN.values()) for name in names]
    return sorted(found, key=lambda c: order.index(c.key.model) if c.key.model in order else 99)


def collected(folder: Path) -> Iterator[Row]:
    """Every cell of every dataset as a row, parts in the order of their names."""
    for data in NETS:
        published = {c.key.model: c for c in cells(folder / data / part_of("as published"))}
        for part in sorted((folder / data).glob("*")):
            for cell in cells(part) if part.name != "static" else ():
                found = row(data, part.name.removeprefix("main-"), cell)
                base = published.get(cell.key.model)
                if base is not None and part.name.startswith("search-"):
                    gain = difference(base, cell)
                    found |= {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high}
                yield found
                if part.name == "step-0.01":  # the VQGAN's own step: the budget of the main table
                    yield found | {"setting": f"budget-{cell.key.params['budget']}"}


def row(data: str, setting: str, cell: CellResult) -> Row:
    made: Row = {"data": data, "setting": setting, "model": cell.key.model}
    made |= score_row(cell, METRICS)
    if "validated" in cell.outcomes:
        correct, kept = cell.outcome("correct"), cell.outcome("validated")
        made["validated_accuracy"] = float(correct[kept].mean()) if kept.any() else None
    for score in cell.scores:  # right about the first candidate, the plain reconstruction
        if score.metric == "fooled" and score.condition["turn"] == 0:
            made |= {"first_candidate": 1 - score.value,
                     "first_candidate_low": 1 - (score.ci_high or 0),
                     "first_candidate_high": 1 - (score.ci_low or 0)}  # fmt: skip
    made["source"] = Path(cell.model.source).name
    made["ms_per_image"] = 1000 * cell.cost.wall_seconds / cell.data.n
    return made | {"n": cell.data.n}


def difference(first: CellResult, second: CellResult, what: str = "withstood") -> Contrast:
    """PA of the second less PA of the first over images validated in both, resampled together.

    With `what="correct"` the same of SA, over all images.
    """
    kept = first.outcome("validated") & second.outcome("validated") | (what == "correct")
    return paired(second.outcome(what)[kept], first.outcome(what)[kept])


class Rows:
    """Rows by place, and the tables that they give."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.known: dict[Place, Row] = {(r["data"], r["setting"], r["model"]): r for r in rows}
        self.pairs = [(data, model) for data in NETS for model in NETS[data][:2]]
        """The plain and the robust network of each dataset."""

    def of(self, data: str, setting: str) -> list[Row]:
        return [r for r in self.rows if (r["data"], r["setting"]) == (data, setting)]

    def matched(
        self, data: str, model: str, settings: Sequence[str], ends: bool = True
    ) -> list[str]:
        """A model's name and its matched FMR in several settings."""
        found = [self.known.get((data, setting, model), {}) for setting in settings]
        return [model, *(shown(row, "matched_fmr", ends) for row in found)]

    def main(self, data: str) -> str:
        body = []
        for r in self.of(data, GENERATORS[0]):
            name, *scores = self.matched(data, r["model"], GENERATORS)
            body.append([name, shown(r, "accuracy"), *scores])
        return markdown(["model", "SA", *GENERATORS], body)

    def reconstruction(self) -> str:
        """What the autoencoder alone costs."""
        body = [
            [r["model"], shown(r, "validated_accuracy", False), shown(r, "first_candidate"),
             shown(r, "perturbed_accuracy")]
            for r in self.of("cifar10", "vqgan")
        ]  # fmt: skip
        head = ["model", "SA of the validated", "on their reconstruction", "PA (vqgan)"]
        return markdown(head, body)

    def rungs(self, data: str, kind: str) -> list[tuple[float, str]]:
        """Step sizes or budgets, in order, and the setting of each."""
        settings = {r["setting"] for r in self.rows if r["data"] == data}
        known = [name for name in settings if name.startswith(f"{kind}-")]
        return sorted((float(name.partition("-")[2]), name) for name in known)

    def ladders(self) -> str:
        rungs = {kind: self.rungs("mnist", kind) for kind in ("step", "budget")}
        head = [f"{kind} {x:g}" if place == 0 else f"{x:g}"
                for kind, known in rungs.items() for place, (x, _) in enumerate(known)]  # fmt: skip
        settings = [setting for known in rungs.values() for _, setting in known]
        body = [self.matched(*pair, settings, ends=False) for pair in self.pairs]
        return markdown(["matched FMR (%)", *head], body)

    def searches(self) -> str:
        """Matched FMR, and PA less that of the published search; bold where 0 is left out."""

        def cell(search: str, data: str, model: str) -> str:
            found = self.known[data, part_of(search), model]
            if search == "as published":
                return shown(found, "matched_fmr")
            gain = re.sub(r"^[+-]0\.0$", "0.0", f"{100 * found['gain']:+.1f}")
            apart = found["gain_low"] > 0 or found["gain_high"] < 0
            return f"{shown(found, 'matched_fmr', False)} ({f'**{gain}**' if apart else gain})"

        body = [[name, *(cell(name, *pair) for pair in self.pairs)] for name in SEARCHES]
        return markdown(["search", *(model for _, model in self.pairs)], body)

    def sparse(self) -> str:
        """Full and sparse latents."""
        shares = ("mask_sparsity", "mask_score", "code_flip_rate")
        body = [
            [f"{data}, {r['model']}", f"{r['n']:.0f}", label,
             *(f"{shown(r, m, False)} %".replace("- %", "-") for m in shares),
             shown(r, "matched_fmr"), f"{r['ms_per_image']:.0f}"]
            for data in NETS for part, label in MASKS.items() for r in self.of(data, part)
        ]  # fmt: skip
        head = ["data, model", "n", "latents", "held", "test score", "codes flipped per step",
                "matched FMR", "ms per image"]  # fmt: skip
        return markdown(head, body)

    def oracles(self) -> str:
        """Matched FMR under other oracles, and the share of images each validates."""
        settings = ("vqgan", *(f"oracle-{name}" for name in ORACLES))
        body = []
        for data in NETS:
            rates = [shown(self.of(data, s)[0], "validation_rate", False) for s in settings]
            body.append([f"*{data}: VR*", *(f"*{rate}*" for rate in rates)])
            body += [self.matched(data, model, settings) for model in NETS[data]]
        return markdown(["model", "expert", *ORACLES], body)

    def audit(self) -> str:
        """How far each oracle can be trusted."""
        metrics = ("accuracy", "reconstruction_accuracy", "searched_accuracy")
        body = []
        for data in NETS:
            for role in ("expert", "generalist", "classifier"):
                found = self.known[data, "audit", role]
                name = f"{data}, {role}: {found['source']}"
                body.append([name, *(shown(found, metric) for metric in metrics)])
        head = ["oracle", "accuracy", "on reconstructions", "after a search against it"]
        return markdown(head, body)

    def draws(self) -> str:
        body = [self.matched(*pair, ("vqgan", "draw-1", "draw-2")) for pair in self.pairs]
        return markdown(["vqgan", "main table", "another draw", "a third draw"], body)

    def seeds(self) -> str:
        generators = ("vqgan", "warp", "colour")
        body = [self.matched(data, model, [f"again-{name}" for name in generators])
                for data, models in AGAIN.items() for model in models]  # fmt: skip
        return markdown(["network, seed", *generators], body)

    def augment(self) -> str:
        """A network before and after it was trained on, plainly and on generated images."""
        metrics = ("accuracy", "validation_rate", "perturbed_accuracy", "fmr", "matched_fmr")
        rows = [self.known["cifar10", part_of("as published"), NETS["cifar10"][0]]]
        rows += sorted(self.of("cifar10", "augment"), key=lambda r: str(r["model"]))
        body = [[r["model"], *(shown(r, metric) for metric in metrics)] for r in rows]
        return markdown(["model", "SA", "VR", "PA", "FMR", "matched FMR"], body)


def shown(row: Row, metric: str, ends: bool = True) -> str:
    """A score in percent, or a dash where it is not there."""
    value, low, high = (row.get(f"{metric}{end}") for end in ("", "_low", "_high"))
    return "-" if value is None else percent(value, *((low, high) if ends else ()))


def from_data(rows: Sequence[Row]) -> dict[str, str]:
    """The places of README.md that these rows fill.

    The file of the tree lacks the columns of four tables, which a new run writes too.
    """
    table = Rows(rows)
    found = {f"main-{data}": table.main(data) for data in NETS}
    found |= {"ladders": table.ladders(), "oracles": table.oracles(), "draws": table.draws(),
              "seeds": table.seeds(), "augment": table.augment()}  # fmt: skip
    if any("ms_per_image" in row for row in rows):
        found |= {"reconstruction": table.reconstruction(), "searches": table.searches(),
                  "sparse": table.sparse(), "audit": table.audit()}  # fmt: skip
    return found


def claims(folder: Path, table: Rows) -> None:
    """Print the paper's claims G1 to G6 in numbers, for one dataset."""
    for generator in GENERATORS:
        found = table.of(folder.name, generator)
        below = sum(r["perturbed_accuracy"] < r["accuracy"] for r in found)
        apart = sum(r["perturbed_accuracy_high"] < r["accuracy_low"] for r in found)
        matched = sum(r["matched_fmr_high"] < 1 for r in found)
        print(f"G1 {generator}: PA < SA in {below} of {len(found)}, intervals apart in {apart}; "
              f"matched FMR below 1 with its interval in {matched}")  # fmt: skip
    if (folder / "transfer.json").is_file():
        seen = json.loads((folder / "transfer.json").read_text(encoding="utf-8"))
        for column, name in enumerate(seen["viewers"]):
            shares = {maker: percent(*(seen[key][row][column] for key in ("fmr", "low", "high")))
                      for row, maker in enumerate(seen["makers"])}  # fmt: skip
            print(f"G2, G3 {name}: on its own images {shares.pop(name, '-')}, others' {shares}")
    spreads(folder)
    settings = {name: cells(folder / f"main-{name}") for name in GENERATORS}
    settings |= {f"vqgan, oracle: {name}": cells(folder / f"oracle-{name}") for name in ORACLES}
    settings["corruptions"] = cells(folder / "static")
    for found in cell_agreement(settings, resamples=500):
        print(f"G5, G6 {found.first} / {found.second}: {found.correlation:.2f} [{found.low:.2f}, "
              f"{found.high:.2f}], {found.models} models; of {found.decided} pairs decided in both "
              f"{found.opposite} opposite")  # fmt: skip
    for name, known in settings.items():
        if len(known) > 2:
            alike = self_agreement([outcome_table(cell) for cell in known])
            print(f"{name} with itself, on two halves of its images: {alike:.2f}")
    for part in ("again-vqgan", "again-warp", "again-colour", "augment"):
        trained = sorted(cells(folder / part), key=lambda c: c.key.model.endswith("-dynamic"))
        for cell in trained[1:]:
            gains = [difference(trained[0], cell, what) for what in ("withstood", "correct")]
            pair = f"{cell.key.model} less {trained[0].key.model}"
            print(f"{part} {pair}: PA {gains[0]}, SA {gains[1]}")


def spreads(folder: Path, draws: int = 500) -> None:
    """G4: the spread of the classes' FMR at the smallest step less that at the largest."""
    parts = sorted(folder.glob("step-*"), key=lambda part: float(part.name.partition("-")[2]))
    for first, last in zip(cells(parts[0]), cells(parts[-1]), strict=True) if parts else ():
        labels = load_dataset(folder.name, split="test", limit=first.data.n).labels.numpy()
        drawn = np.random.default_rng(0).integers(0, len(labels), (draws, len(labels)))
        values = [class_spread(first, labels, rows) - class_spread(last, labels, rows)
                  for rows in (np.arange(len(labels)), *drawn)]  # fmt: skip
        ends = np.percentile(values[1:], [2.5, 97.5])
        print(f"G4 {first.key.model}: {Contrast(values[0], *ends)} points")


def class_spread(cell: CellResult, labels: np.ndarray, rows: np.ndarray) -> float:
    """The standard deviation over classes of FMR, on some images."""
    kept, right, correct = (cell.outcome(n)[rows] for n in ("validated", "withstood", "correct"))
    of_class = [labels[rows] == label for label in np.unique(labels)]
    found = [right[own & kept].mean() / correct[own].mean() for own in of_class
             if (own & kept).any() and correct[own].any()]  # fmt: skip
    return float(np.std(found))


def main() -> None:
    from figures import draw

    if len(sys.argv) != 2:
        sys.exit("usage: python studies/fmr/former/tables.py RUNS")
    folder = Path(sys.argv[1])
    rows = list(collected(folder))
    rounded = [{k: round(v, 6) if isinstance(v, float) else v for k, v in r.items()} for r in rows]
    write_atomic(HERE / "rows.csv", csv_text(rounded))
    for data in (data for data in NETS if (folder / data).is_dir()):
        print(f"== {data}")
        claims(folder / data, Rows(rows))
        draw(folder / data, Rows(rows))
    if all((folder / data).is_dir() for data in NETS):
        fill(HERE / "README.md", from_data(rows))


if __name__ == "__main__":
    main()

"""What few labels, or none, choose among soups on corrupted images: the tables of choosing.

    python studies/robust_soups/tables.py runs/study --family quarter
    python studies/robust_soups/tables.py                 # from results/ and claims.json

Writes results/LABEL.json and the figures, and fills README.md; verdicts on findings are those of
claims.py. A soup is chosen on one half of the images and scored on the other: no winner's curse.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import claims
import numpy as np
from study import CRITERIA

from stockpot.files import write_atomic
from stockpot.results.contrast import halves
from stockpot.results.tables import fill, markdown
from stockpot.season.conditions import Conditions
from stockpot.season.methods.racing import race
from stockpot.season.plots.labels_needed import SHOTS, curve

HERE = Path(__file__).parent
WAYS = ("best member", "ensemble", "source", *CRITERIA, "10-shot", "100-shot", "oracle")
Finding = dict[str, Any]


class Shifted:
    """Soups on corrupted images, the members alone, and their output ensemble."""

    def __init__(self, folder: Path) -> None:
        self.soups, self.alone, self.ensemble = (
            Conditions.read(folder / name) for name in ("shift", "alone", "ensemble")
        )
        self.cells = {n: m for n, m in self.soups.matrices.items() if ":" in n}
        self.n = next(iter(self.cells.values())).correct.shape[1]

    def numbers_of_labels(self) -> list[int]:
        """The usual numbers that leave half of the images to score on, and that half itself."""
        return sorted({k for k in SHOTS if k <= self.n // 2} | {self.n // 2})

    def labels(self, draws: int = 50) -> Finding:
        """How well so many labels choose, over draws of them."""
        shots = self.numbers_of_labels()
        found = [curve(matrix, self.n // 2, shots, draws) for matrix in self.cells.values()]
        mean, spread = 100 * np.mean(found, axis=0)
        return {"shots": shots, "mean": dict(zip(shots, mean, strict=True)),
                "sd": dict(zip(shots, spread, strict=True))}  # fmt: skip

    def selection(self, seeds: int = 3) -> list[dict[str, Any]]:
        """Soups chosen without labels, with few and with all, scored on held-out images."""
        free = {(item["cell"], item["seed"], item["criterion"]): item["soup"]
                for item in self.soups.facts["label_free"]}  # fmt: skip
        rows = []
        for name, matrix in self.cells.items():
            found: dict[str, list[float]] = {}
            for seed in range(seeds):
                chosen, judged = halves(self.n, seed)
                order = np.random.default_rng([8, seed]).permutation(chosen)
                soups = {"source": self.soups.matrices["source"].best(),
                         "10-shot": matrix.best(order[:10]), "100-shot": matrix.best(order[:100]),
                         "oracle": matrix.best(judged)}  # fmt: skip
                soups |= {c: free[name, seed, c] for c in CRITERIA if (name, seed, c) in free}
                scores = {way: matrix.correct[soup, judged].mean() for way, soup in soups.items()}
                alone = self.alone.matrices[name]
                member = int(alone.accuracy(chosen).argmax())
                scores["best member"] = alone.correct[member, judged].mean()
                scores["ensemble"] = self.ensemble.matrices[name].accuracy(judged)[0]
                for way, score in scores.items():
                    found.setdefault(way, []).append(100 * float(score))
            rows.append({"cell": name, "held out": len(judged)} | found)
        return rows

    def racing(self, draws: int = 20, first: float = 0.03, keep: float = 0.25) -> Finding:
        """Racing against the whole grid: its share of the cost, and what it loses."""
        gaps, costs = [], []
        for matrix in self.cells.values():

            def judge(alive: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                part = np.ix_(alive, rows)
                return matrix.correct[part].sum(axis=1), matrix.loss[part].sum(axis=1)  # noqa: B023

            for seed in range(draws):
                order = np.random.default_rng(seed).permutation(self.n)
                seen, score = order[: self.n // 2], matrix.accuracy(order[self.n // 2 :])
                result = race(matrix.weights, seen, judge, first=first, keep=keep)
                gaps.append(100 * (score[matrix.best(seen)] - score[result.winner]))
                costs.append(100 * result.images / (len(matrix.weights) * len(seen)))
        return {"draws": len(gaps), "mean gap (points)": np.mean(gaps), "sd": np.std(gaps),
                "share of the grid (%)": np.mean(costs)}  # fmt: skip


def selection_table(rows: list[dict[str, Any]], shown: str = "") -> str:
    """Mean over seeds, standard deviation in brackets, of the cells whose names end so."""
    ways = [way for way in WAYS if way in rows[0]]
    body = [
        [row["cell"], *(f"{np.mean(row[way]):.1f} ({np.std(row[way]):.1f})" for way in ways)]
        for row in rows
        if row["cell"].endswith(shown)
    ]
    means = [f"**{np.mean([np.mean(row[way]) for row in rows]):.1f}**" for way in ways]
    title = "mean" if len(body) == len(rows) else f"mean of all {len(rows)} cells"
    return markdown(["cell", *ways], [*body, [f"**{title}**", *means]])


def labels_table(found: Mapping[str, Finding]) -> str:
    """The mean over cells and draws of what so many labels choose, and its spread."""
    labels = sorted({int(n) for of in found.values() for n in of["labels"]["mean"]})
    body = []
    for name, of in found.items():
        means, spreads = ({int(n): v for n, v in of["labels"][k].items()} for k in ("mean", "sd"))
        cells = [f"{means[n]:.1f} ({spreads[n]:.1f})" if n in means else "" for n in labels]
        body.append([f"`{name}`", *cells])
    return markdown(["soups", *(f"{n} labels" for n in labels)], body)


def racing_table(found: Mapping[str, Finding]) -> str:
    """What racing costs and loses beside the grid that it spares."""
    body = [
        [f"`{name}`", f"{of['racing']['draws']}", f"{of['racing']['share of the grid (%)']:.1f} %",
         f"{of['racing']['mean gap (points)']:.2f} ({of['racing']['sd']:.2f})"]
        for name, of in found.items()
    ]  # fmt: skip
    columns = ["soups", "draws", "of the grid's forward passes", "points below the grid's choice"]
    return markdown(columns, body)


def from_data() -> dict[str, str]:
    """The places of README.md that results/*.json and claims.json fill."""
    files = sorted((HERE / "results").glob("*.json"))
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    choosing = {f"choosing {n}": selection_table(f["selection"], ":5") for n, f in found.items()}
    told = {"labels": labels_table(found), "racing": racing_table(found)}
    return claims.from_data() | choosing | told


def choose_in_family(folder: Path, label: str, out: Path) -> None:
    """Choices, labels and racing in one family, and their figures."""
    from figures import figures_of_shift

    shifted = Shifted(folder)
    found = {"labels": shifted.labels(), "racing": shifted.racing(),
             "selection": shifted.selection()}  # fmt: skip
    figures_of_shift(shifted, out / "figures" / label)
    dumped = json.dumps(found, indent=1, default=lambda value: value.item())
    write_atomic(out / "results" / f"{label}.json", dumped + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, nargs="?", help="what study.py saved")
    parser.add_argument("--family", default="quarter")
    parser.add_argument("--as", dest="label", help="what the written files are called")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    if given.data is not None:
        choose_in_family(given.data / given.family, given.label or given.family, given.out)
    if given.out == HERE:
        fill(HERE / "README.md", from_data())


if __name__ == "__main__":
    main()

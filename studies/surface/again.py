"""The findings over several trainings: which pictures each network had right, kept, and judged.

    python studies/surface/again.py runs/surface-1 runs/surface-2

Writes again.npz beside this file; `tables.py` fills README.md from it.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from study import EQUAL_COMPUTE, ROUNDS

from stockpot.files import write_atomic
from stockpot.results.contrast import Verdict
from stockpot.results.few_seeds import Difference, Drawn, over_draws
from stockpot.results.resamples import resampled_means
from stockpot.results.store import load_results
from stockpot.results.tables import markdown

sys.path.append(str(Path(__file__).parents[1]))
from trainings import several

HERE = Path(__file__).parent
KEPT = HERE / "again.npz"
SHAKEN, PLAIN = "shake", "unshaken"
HELD = tuple(held for turn in ROUNDS for held in turn)
RESAMPLES = 20_000
"""Of 42 intervals together each leaves out one draw in 1,700 on either side."""
COLUMNS = ("finding", "difference in points", "each training", "first run", "trainings", "verdict")
Cell = tuple[str, str]
"""Network and hold-out."""
Training = Mapping[Cell, NDArray[np.bool_]]
"""Which pictures of the hold-out were right."""


class Asked(NamedTuple):
    """A finding: for each name a network on some hold-outs less a network on some others."""

    finding: str
    pairs: dict[str, tuple[tuple[str, list[str]], tuple[str, list[str]]]]


def read(runs: Sequence[str]) -> list[Training]:
    """Of runs that `study.py --trainings` left; all must have tested the same pictures."""
    found, pictures = [], {}
    for run in runs:
        own = {}
        for cell in load_results(run):
            network, data = cell.key.model.removesuffix(f"-{cell.key.data}"), cell.key.data
            if pictures.setdefault(data, cell.data.fingerprint) != cell.data.fingerprint:
                raise SystemExit(f"{run} tested other pictures of {data} than {runs[0]}")
            if EQUAL_COMPUTE not in cell.key.model:
                own[network, data] = cell.outcome("correct")
        found.append(own)
    return found


def common(trainings: Sequence[Training]) -> list[Training]:
    """What all trainings have: networks with the whole first round, and hold-outs of all these."""
    cells = set.intersection(*(set(one) for one in trainings))
    known = {network for network, _ in cells}
    networks = {name for name in known if all((name, held) in cells for held in ROUNDS[0])}
    had = Counter(held for network, held in cells if network in networks)
    kept = sorted(cell for cell in cells if cell[0] in networks and had[cell[1]] == len(networks))
    return [{cell: one[cell] for cell in kept} for one in trainings]


def keep(trainings: Sequence[Training]) -> None:
    """Write what all trainings have, eight answers to a byte."""
    both = common(trainings)
    if not both[0]:
        raise SystemExit("no network has the first round of hold-outs in all of these trainings")
    right = [np.packbits(np.concatenate(list(one.values()))) for one in both]
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        cells=np.array(list(both[0])),
        sizes=np.array([len(answers) for answers in both[0].values()]),
        right=np.array(right),
    )
    write_atomic(KEPT, stream.getvalue())


def kept() -> list[Training]:
    """All trainings, in the order in which they were given."""
    if not KEPT.exists():
        return []
    with np.load(KEPT) as found:
        cells = [(str(network), str(held)) for network, held in found["cells"]]
        ends = np.cumsum(found["sizes"])
        rows = [np.unpackbits(row, count=int(ends[-1])).astype(bool) for row in found["right"]]
    return [dict(zip(cells, np.split(row, ends[:-1]), strict=True)) for row in rows]


class Accuracies:
    """Means over hold-outs, and what they are when pictures are drawn anew."""

    def __init__(self, trainings: Sequence[Training]) -> None:
        self.trainings = trainings
        self.networks = list(dict.fromkeys(network for network, _ in trainings[0]))
        self.held = [held for held in HELD if (self.networks[0], held) in trainings[0]]
        self._at = cache(self._drawn)

    def _drawn(self, held: str) -> list[dict[str, Drawn]]:
        """For each training, by network: all meet the same draws of the hold-out's pictures.

        Every hold-out has a seed of its own: those of equal size would be drawn alike.
        """
        cells = [one[name, held] for one in self.trainings for name in self.networks]
        table = np.column_stack(cells).astype(np.float64)
        draws = resampled_means(table, seed=1 + HELD.index(held), resamples=RESAMPLES)
        drawn = iter(map(Drawn, table.mean(axis=0).tolist(), draws.T))
        return [{name: next(drawn) for name in self.networks} for _ in self.trainings]

    def mean(self, turn: int, network: str, held: Sequence[str]) -> Drawn:
        """Of a training, over hold-outs that count equally."""
        found = [self._at(name)[turn][network] for name in held]
        values, draws = ([getattr(one, part) for one in found] for part in Drawn._fields)
        return Drawn(float(np.mean(values)), np.mean(draws, axis=0))

    def less(
        self, first: tuple[str, list[str]], second: tuple[str, list[str]], of: int
    ) -> Difference:
        """The first less the second; pictures and trainings are drawn anew together."""
        turns = range(len(self.trainings))
        return over_draws([self.mean(t, *first) - self.mean(t, *second) for t in turns], of)


def asked_of(networks: Sequence[str], held: Sequence[str]) -> list[Asked]:
    """Findings 1 to 3, 5 and 6; those for which something lacks have no pairs."""
    kinds = {kind: [name for name in held if name.startswith(kind)] for kind in ("style", "sub")}
    redrawn, cut = (
        [f"version-{name}"] if f"version-{name}" in held else [] for name in ("noto", "fluent")
    )

    def each(first: list[str], second: list[str]) -> dict[str, Any]:
        return {n: ((n, first), (n, second)) for n in networks} if first and second else {}

    def shaking(own: list[str]) -> dict[str, Any]:
        both = {SHAKEN, PLAIN} <= set(networks) and own
        return {"": ((SHAKEN, own), (PLAIN, own))} if both else {}

    return [
        Asked("1 a new edition is easier than a new style", each(redrawn, kinds["style"])),
        Asked("2 a new edition is easier than a new subtype", each(redrawn, kinds["sub"])),
        Asked("3 a cut of known drawings is easier than a redrawn edition", each(cut, redrawn)),
        Asked("5 shaking helps with new styles", shaking(kinds["style"])),
        Asked("6 shaking helps with new subtypes", shaking(kinds["sub"])),
    ]


def judged(asked: Asked, known: Accuracies, first: Mapping[Cell, float]) -> list[str]:
    """A row of the table; the first run stands beside and has no say."""
    pairs, count = asked.pairs, str(len(known.trainings))
    if not pairs:
        return [asked.finding, "-", "-", "-", count, "not run"]
    found = {name: known.less(*ends, of=len(pairs)) for name, ends in pairs.items()}
    said = [one.said(together=True) for one in found.values()]
    verdict: Verdict = "not told apart"
    if all(one == "held" for one in said):
        verdict = "held"
    elif "did not hold" in said:
        verdict = "did not hold"
    before = [_of_first(first, *one) - _of_first(first, *two) for one, two in pairs.values()]
    return [
        asked.finding,
        "; ".join(f"{name} {one.together}".strip() for name, one in found.items()),
        "; ".join(", ".join(f"{100 * v:+.1f}" for v in one.each) for one in found.values()),
        "; ".join("-" if np.isnan(value) else f"{100 * value:+.1f}" for value in before),
        count,
        verdict,
    ]


def _of_first(first: Mapping[Cell, float], network: str, held: Sequence[str]) -> float:
    return float(np.mean([first.get((network, name), np.nan) for name in held]))


def reordered(known: Accuracies) -> list[str]:
    """Finding 4: whether some pair is told apart in both protocols, in opposite order."""
    text, count = "4 networks rank otherwise by style than by subtype", str(len(known.trainings))
    pairs = list(combinations(known.networks, 2))
    kinds = [[name for name in known.held if name.startswith(k)] for k in ("style", "subtype")]
    if not pairs:
        return [text, "-", "-", "-", count, "not run"]
    same, opposite = 0, []
    for one, two in pairs:
        found = [known.less((one, own), (two, own), of=2 * len(pairs)) for own in kinds]
        told = {difference.said(together=True) for difference in found}
        same += len(told) == 1 and "not told apart" not in told
        if told == {"held", "did not hold"}:
            opposite.append(f"{one} and {two}")
    verdict = "did not hold" if same == len(pairs) else "not told apart"
    shown = "; ".join(opposite) or f"{same} of {len(pairs)} pairs in the same order, none opposite"
    return [text, shown, "-", "-", count, "held" if opposite else verdict]


def _cell_of(row: Mapping[str, Any]) -> Cell:
    """Of a row of scores.csv, where a draw of subtypes is read as a number."""
    held = row["held out"]
    return row["network"], f"{row['protocol']}-{held if isinstance(held, str) else round(held)}"


def from_data(first: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The places of README.md that follow from again.npz; of the first run, scores.csv."""
    trainings = kept()
    if len(trainings) < 2:
        return {"over": "nothing yet", "trainings": several(len(trainings), "")}
    known = Accuracies(trainings)
    shares = {_cell_of(row): row["right"] / row["n"] for row in first}
    rows = [judged(asked, known, shares) for asked in asked_of(known.networks, known.held)]
    rows.insert(3, reordered(known))
    kinds = Counter(name.partition("-")[0] for name in known.held)
    count = len(known.networks)
    over = f"{count} network{'s' * (count > 1)}, " + ", ".join(
        f"{n} of {kind}" for kind, n in kinds.items()
    )
    return {"over": over, "trainings": several(len(trainings), markdown(COLUMNS, rows))}


if __name__ == "__main__":
    keep(read(sys.argv[1:]))

"""Tables and verdicts of merging under attack, from the run that `study.py` left.

    python studies/merging_under_attack/tables.py [runs/merging_under_attack]

Writes outcomes.json (which model was right on which image) beside this file, where there is a run,
and fills README.md from it. The verdicts follow plan.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from study import EXPERT_OF, MEMBERS, NORMS, SCALES

from stockpot.files import write_atomic
from stockpot.results.contrast import Claim, Contrast, Pair, paired, some_exceed, verdict
from stockpot.results.packed import pack_bits, unpack_bits
from stockpot.results.resamples import RESAMPLES, resampled_means
from stockpot.results.statistics import share_interval
from stockpot.results.store import load_results
from stockpot.results.tables import fill, markdown, percent

HERE = Path(__file__).parent
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
CLEAN = "correct"
Outcomes = Mapping[str, Any]


class Pool:
    """Who was right on what: images of all parts in one row, or part by part."""

    def __init__(self, outcomes: Outcomes, pool: str) -> None:
        self.found = outcomes[pool]
        self.parts = list(EXPERT_OF if pool == "tasks" else NORMS)
        self.merges = list(SCALES[pool])

    def right(self, viewer: str, maker: str, part: str) -> Flags:
        """Whether a model was right on each image of a part that was made on another."""
        found = self.found[part]
        return unpack_bits(found["right"][maker][viewer], found["n"])

    def all(self, viewer: str, maker: str) -> Flags:
        """The same over parts whose images differ, one after the other."""
        return np.concatenate([self.right(viewer, maker, part) for part in self.parts])

    def union(self, viewer: str, makers: Sequence[str]) -> Flags:
        """Right on the image as it is and on all that was made of it, in every part."""
        found = [self.right(viewer, maker, part)
                 for part in self.parts for maker in (CLEAN, *makers)]  # fmt: skip
        return np.logical_and.reduce(found)

    def lost(self, viewer: str, maker: str, part: str | None = None) -> Floats:
        """Right on the image as it is, and wrong on what was made of it."""
        pick = self.all if part is None else (lambda v, m: self.right(v, m, part))
        return (pick(viewer, CLEAN) & ~pick(viewer, maker)).astype(np.float64)


def packed(run: Path) -> dict[str, Any]:
    """The answers of a run, as small as they can be."""
    found: dict[str, Any] = {}
    for pool, parts in (("tasks", list(EXPERT_OF)), ("norms", list(NORMS))):
        chosen = json.loads((run / pool / "chosen.json").read_text(encoding="utf-8"))
        found[pool] = {"chosen": chosen}
        for part in parts:
            cells = load_results(run / pool / part)
            right: dict[str, dict[str, str]] = {}
            for cell in cells:
                for record in cell.outcomes:
                    maker = record.removeprefix("transfer:")
                    right.setdefault(maker, {})[cell.key.model] = pack_bits(cell.outcome(record))
            found[pool][part] = {"n": cells[0].data.n, "right": right}
    return found


def ratio(top: Floats, bottom: Floats, confidence: float = 0.95) -> Contrast:
    """Sums over sums, columns averaged, with the interval of images drawn anew."""
    columns = top.shape[1]
    drawn = resampled_means(np.hstack([top, bottom]), seed=0, resamples=RESAMPLES)
    value = float((top.mean(axis=0) / bottom.mean(axis=0)).mean())
    means = (drawn[:, :columns] / drawn[:, columns:]).mean(axis=1)
    return _interval(value, means, confidence)


def difference_of_ratios(
    first: Sequence[Floats], second: Sequence[Floats], confidence: float
) -> Contrast:
    """One ratio of means less another."""
    values = np.stack([*first, *second], axis=1)
    drawn = resampled_means(values, seed=0, resamples=RESAMPLES)
    means = values.mean(axis=0)
    return _interval(
        float(means[0] / means[1] - means[2] / means[3]),
        drawn[:, 0] / drawn[:, 1] - drawn[:, 2] / drawn[:, 3],
        confidence,
    )


def correlation(accuracy: Floats, lost: Floats) -> Contrast:
    """Spearman's, over the columns, of mean accuracy and success."""
    columns = accuracy.shape[1]
    drawn = resampled_means(np.hstack([accuracy, lost]), seed=0, resamples=RESAMPLES)
    right, gone = drawn[:, :columns], drawn[:, columns:]
    found = [_spearman(a, b / a) for a, b in zip(right, gone, strict=True)]
    means, losses = accuracy.mean(axis=0), lost.mean(axis=0)
    return _interval(_spearman(means, losses / means), np.array(found), 0.95)


def _spearman(first: Floats, second: Floats) -> float:
    ranks = [_ranks(values) for values in (first, second)]
    if min(np.ptp(ranks[0]), np.ptp(ranks[1])) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Floats) -> Floats:
    """Places in order; equals share theirs."""
    below = (values[:, None] > values).sum(axis=1)
    return below + ((values[:, None] == values).sum(axis=1) - 1) / 2


def _interval(value: float, drawn: Floats, confidence: float) -> Contrast:
    tail = 50 * (1 - confidence)
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return Contrast(value, float(low), float(high))


def claims(outcomes: Outcomes) -> list[tuple[str, str, str]]:
    """Claim, statistic and verdict."""
    tasks, norms = Pool(outcomes, "tasks"), Pool(outcomes, "norms")
    merges = tasks.merges
    by_expert = np.stack([tasks.lost(m, "expert") for m in merges], axis=1)
    direct = np.stack([tasks.lost(m, m) for m in merges], axis=1)
    right = np.stack([tasks.all(m, CLEAN) for m in merges], axis=1).astype(np.float64)
    one = ratio(by_expert, direct)
    two = correlation(right, by_expert)
    three = _easiest(tasks)
    four = paired(tasks.all("ensemble", "expert"), tasks.all("average", "expert"))
    five = _hits(norms)
    six = _best(norms)
    own = norms.union("average", ["average"])
    seven = some_exceed([
        Pair(norms.union(m, [m]).astype(float), own.astype(float))
        for m in norms.merges if m != "average"
    ])  # fmt: skip
    eight = paired(norms.union("average", list(MEMBERS)), own)
    share = f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"
    rho = f"{two.value:+.2f} [{two.low:+.2f}, {two.high:+.2f}]"
    others = [m for m in norms.merges if m != "average"]
    return [
        ("1 images made on the expert are as good as images made on the merge", share,
         verdict(one.low, one.high, 0.95)),
        ("2 stronger merges are easier prey", rho, two.verdict),
        ("3 the average is the easiest prey",
         _parts([m for m in merges if m != "average"], three.parts), three.verdict),
        ("4 an ensemble of outputs withstands them better than the average of weights", str(four),
         four.verdict),
        ("5 images of one member hit the average harder than the other members", str(five),
         five.verdict),
        (f"6 a merge withstands direct attacks better than the best member ({six[0]}, {six[1]})",
         str(six[2]), six[2].verdict),
        ("7 some merger keeps more robustness than the average", _parts(others, seven.parts),
         seven.verdict),
        ("8 images made on the members flatter the merge", str(eight), eight.verdict),
    ]  # fmt: skip


def _parts(names: Sequence[str], parts: Sequence[Contrast]) -> str:
    return "; ".join(f"`{name}` {part}" for name, part in zip(names, parts, strict=True))


def _easiest(tasks: Pool) -> Claim:
    """Success on the average less that on each other merge, as `every_exceed` judges."""

    def of(model: str) -> tuple[Floats, Floats]:
        return tasks.lost(model, "expert"), tasks.all(model, CLEAN).astype(np.float64)

    others = [m for m in tasks.merges if m != "average"]
    wide = [difference_of_ratios(of("average"), of(m), 1 - 0.05 / len(others)) for m in others]
    each = [difference_of_ratios(of("average"), of(m), 0.95) for m in others]
    if any(part.high < 0 for part in wide):
        return Claim("did not hold", tuple(wide))
    held = all(part.low > 0 for part in each)
    return Claim("held" if held else "not told apart", tuple(wide))


def _hits(norms: Pool) -> Contrast:
    """Lost by the average to each member's images, less the mean of the two other members."""
    merged, others = [], []
    for part in norms.parts:
        for maker in MEMBERS:
            merged.append(norms.lost("average", maker, part))
            rest = [norms.lost(other, maker, part) for other in MEMBERS if other != maker]
            others.append(np.mean(rest, axis=0))
    return paired(np.mean(merged, axis=0), np.mean(others, axis=0))


def _best(norms: Pool) -> tuple[str, str, Contrast]:
    """The merge and the member that validation images chose, and their difference."""
    scores = norms.found["chosen"]["scores"]
    merge = max(norms.merges, key=lambda name: scores[name])
    member = max(MEMBERS, key=lambda name: scores[name])
    return merge, member, paired(norms.union(merge, [merge]), norms.union(member, [member]))


def from_data(outcomes: Outcomes) -> dict[str, str]:
    """The places of README.md that follow from outcomes.json."""
    tasks, norms = Pool(outcomes, "tasks"), Pool(outcomes, "norms")
    first = [
        (f"`{m}`", _share(tasks.all(m, CLEAN)), _share(tasks.all(m, "expert")),
         _share(tasks.all(m, m)) if m in tasks.merges or m == "expert" else "-",
         _success(tasks, m))
        for m in ("base", "expert", *tasks.merges, "ensemble")
    ]  # fmt: skip
    second = [
        (f"`{m}`", _share(norms.right(m, CLEAN, norms.parts[0])),
         *(_share(norms.right(m, m, part)) if m != "ensemble" else "-" for part in norms.parts),
         _share(norms.union(m, [m])) if m != "ensemble" else "-",
         _share(norms.union(m, list(MEMBERS))))
        for m in (*MEMBERS, *norms.merges, "ensemble")
    ]  # fmt: skip
    chosen = [
        (pool, ", ".join(f"`{name}` {scale:g}" for name, scale in
                         outcomes[pool]["chosen"]["scales"].items()))
        for pool in ("tasks", "norms")
    ]  # fmt: skip
    return {
        "chosen": markdown(("pool", "scales"), chosen)
        + f"\n\nRadius of `tasks`: {outcomes['tasks']['chosen']['radius']}.",
        "tasks": markdown(("model", "as they are", "made on the expert", "made on itself",
                           "success of the expert's images"), first),
        "norms": markdown(("model", "as they are", *norms.parts, "union, made on itself",
                           "union, made on the members"), second),
        "claims": markdown(("claim", "statistic [95 %]", "verdict"), claims(outcomes)),
    }  # fmt: skip


def _share(flags: Flags) -> str:
    interval = share_interval(flags)
    return percent(float(flags.mean()), interval.low, interval.high)


def _success(pool: Pool, model: str) -> str:
    found = ratio(pool.lost(model, "expert")[:, None], pool.all(model, CLEAN)[:, None] * 1.0)
    return percent(*found)


def main(run: str | None = None) -> None:
    """Write outcomes.json, where there is a run, and fill README.md."""
    if run is not None:
        write_atomic(HERE / "outcomes.json", json.dumps(packed(Path(run)), indent=1) + "\n")
    fill(HERE / "README.md", from_data(json.loads((HERE / "outcomes.json").read_text("utf-8"))))


if __name__ == "__main__":
    main(*sys.argv[1:2])

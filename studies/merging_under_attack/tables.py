"""Tables and verdicts of merging under attack, from the run that `study.py` left.

    python studies/merging_under_attack/tables.py [runs/merging_under_attack]
    python studies/merging_under_attack/tables.py --trainings runs/merging-trainings

Writes outcomes.json (which model was right on which image; trainings.json of further trainings)
beside this file, where there is a run, and fills README.md from both. The verdicts follow plan.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from study import EXPERT_OF, MEMBERS, NORMS, SCALES

from stockpot.files import write_atomic
from stockpot.results.contrast import Claim, Contrast, Pair, paired, some_exceed, verdict
from stockpot.results.few_seeds import drawn_mean, over_draws, several_said
from stockpot.results.packed import pack_bits, unpack_bits
from stockpot.results.resamples import RESAMPLES, resampled_means
from stockpot.results.statistics import share_interval
from stockpot.results.store import load_results
from stockpot.results.tables import fill, markdown, percent
from trainings import COLUMNS, ZOO, in_order, several, told

HERE = Path(__file__).parent
OUTCOMES, FURTHER = HERE / "outcomes.json", HERE / "trainings.json"
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
    parts = {"tasks": list(EXPERT_OF), "norms": list(NORMS)}
    return {pool: packed_pool(run / pool, names) for pool, names in parts.items()}


def packed_pool(folder: Path, parts: Sequence[str]) -> dict[str, Any]:
    """The answers of one pool, and what was chosen for it."""
    found = {"chosen": json.loads((folder / "chosen.json").read_text(encoding="utf-8"))}
    for part in parts:
        cells = load_results(folder / part)
        right: dict[str, dict[str, str]] = {}
        for cell in cells:
            for record in cell.outcomes:
                maker = record.removeprefix("transfer:")
                right.setdefault(maker, {})[cell.key.model] = pack_bits(cell.outcome(record))
        found[part] = {"n": cells[0].data.n, "right": right}
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
    compared = norm_pairs(norms)
    five, six, eight = (paired(*compared[n][0][:2]) for n in (5, 6, 8))
    seven = some_exceed(compared[7])
    share = f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"
    rho = f"{two.value:+.2f} [{two.low:+.2f}, {two.high:+.2f}]"
    return [
        ("1 images made on the expert are as good as images made on the merge", share,
         verdict(one.low, one.high, 0.95)),
        ("2 stronger merges are easier prey", rho, two.verdict),
        ("3 the average is the easiest prey",
         _parts([m for m in merges if m != "average"], three.parts), three.verdict),
        ("4 an ensemble of outputs withstands them better than the average of weights", str(four),
         four.verdict),
        (NORM_CLAIMS[5], str(five), five.verdict),
        (f"{NORM_CLAIMS[6]} ({', '.join(best(norms))})", str(six), six.verdict),
        (NORM_CLAIMS[7], _parts(others(norms), seven.parts), seven.verdict),
        (NORM_CLAIMS[8], str(eight), eight.verdict),
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


NORM_CLAIMS = {
    5: "5 images of one member hit the average harder than the other members",
    6: "6 a merge withstands direct attacks better than the best member",
    7: "7 some merger keeps more robustness than the average",
    8: "8 images made on the members flatter the merge",
}
"""Claims about the pool `norms`, which may be trained several times."""


def norm_pairs(norms: Pool) -> dict[int, list[Pair]]:
    """What each claim about the pool compares, image by image."""
    own = norms.union("average", ["average"])
    merge, member = best(norms)
    flags = {
        6: [(norms.union(merge, [merge]), norms.union(member, [member]))],
        7: [(norms.union(m, [m]), own) for m in others(norms)],
        8: [(norms.union("average", list(MEMBERS)), own)],
    }
    return {5: [_hits(norms)]} | {
        claim: [Pair(a.astype(float), b.astype(float)) for a, b in pairs]
        for claim, pairs in flags.items()
    }


def others(pool: Pool) -> list[str]:
    """Merges but the average."""
    return [name for name in pool.merges if name != "average"]


def _hits(norms: Pool) -> Pair:
    """Lost by the average to each member's images, and the mean of the two other members."""
    merged, rest = [], []
    for part in norms.parts:
        for maker in MEMBERS:
            merged.append(norms.lost("average", maker, part))
            own = [norms.lost(other, maker, part) for other in MEMBERS if other != maker]
            rest.append(np.mean(own, axis=0))
    return Pair(np.mean(merged, axis=0), np.mean(rest, axis=0))


def best(norms: Pool) -> tuple[str, str]:
    """The merge and the member that validation images chose."""
    scores = norms.found["chosen"]["scores"]
    merge = max(norms.merges, key=lambda name: scores[name])
    return merge, max(MEMBERS, key=lambda name: scores[name])


def over_trainings(pools: Sequence[Pool]) -> str:
    """The claims about the pool `norms` over trainings, by the rule that was added to the plan."""
    runs, lines = [norm_pairs(pool) for pool in pools], []
    for claim, text in NORM_CLAIMS.items():
        found = [
            over_draws(
                [drawn_mean(run[claim][k].first - run[claim][k].second) for run in runs],
                of=len(runs[0][claim]),
            )
            for k in range(len(runs[0][claim]))
        ]
        said = several_said(found, every=len(found) == 1)
        names = [f"`{name}` " for name in others(pools[0])] if len(found) > 1 else [""]
        # A claim about several is judged by intervals that are wide enough for all of them.
        wide = [one._replace(alone=one.together) if len(found) > 1 else one for one in found]
        points, single, count, verdict = zip(*(told(one, said) for one in wide), strict=True)
        if claim == 6:
            text += f" ({'; '.join(', '.join(best(pool)) for pool in pools)})"
        lines.append((
            text, "; ".join(f"{name}{shown}" for name, shown in zip(names, points, strict=True)),
            "; ".join(f"{name}{shown}" for name, shown in zip(names, single, strict=True)),
            len(runs[0][claim][0].first), count[0], verdict[0],
        ))  # fmt: skip
    points_column, each_column, *rest = COLUMNS
    table = markdown(("claim", points_column, each_column, "images", *rest), lines)
    return several(len(pools), table)


def from_data(outcomes: Outcomes, trainings: Outcomes | None = None) -> dict[str, str]:
    """The places of README.md that follow from outcomes.json and trainings.json."""
    tasks, norms = Pool(outcomes, "tasks"), Pool(outcomes, "norms")
    further = json.loads(FURTHER.read_text("utf-8")) if trainings is None else trainings
    pools = [norms, *(Pool({"norms": further[number]}, "norms") for number in in_order(further))]
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
        "trainings": over_trainings(pools),
    }  # fmt: skip


def _share(flags: Flags) -> str:
    interval = share_interval(flags)
    return percent(float(flags.mean()), interval.low, interval.high)


def _success(pool: Pool, model: str) -> str:
    found = ratio(pool.lost(model, "expert")[:, None], pool.all(model, CLEAN)[:, None] * 1.0)
    return percent(*found)


def main() -> None:
    """Write what a run answered, where there is one, and fill README.md."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--trainings", action="store_true", help="the run is of further trainings")
    given = parser.parse_args()
    if given.run is not None and given.trainings:
        places = [place for place in given.run.iterdir() if place.name != ZOO]
        # Weights of trainings that are not at hand may be gone: what they said stays.
        found = json.loads(FURTHER.read_text("utf-8"))
        found |= {place.name: packed_pool(place, list(NORMS)) for place in places}
        write_atomic(FURTHER, json.dumps({n: found[n] for n in in_order(found)}, indent=1) + "\n")
    elif given.run is not None:
        write_atomic(OUTCOMES, json.dumps(packed(given.run), indent=1) + "\n")
    fill(HERE / "README.md", from_data(json.loads(OUTCOMES.read_text("utf-8"))))


if __name__ == "__main__":
    main()

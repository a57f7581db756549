"""Gates, accuracies and claims of the pools with headroom, from the answers beside this file.

    python studies/clip_headroom/tables.py [runs/headroom/answers]

judges by the rule of plan.md and fills README.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from answers import Answers, Flags, read
from merges import GENERAL, LEARNING, PLAIN, SCALES, STATISTICS, UNSEEN

from stockpot.results.few_seeds import Difference, over_seeds, several_said
from stockpot.results.tables import fill, markdown, percent

HERE = Path(__file__).parent
POOL = ("base", "probe", "single", "joint", "experts")
GATES = {
    "probe": "linear probe of the base over the experts, at least 0.9",
    "headroom": "experts less zero-shot of the base, at least 25 points",
    "single": "share of its gain that 0.3 of a task vector brings back, at least 0.7",
    "joint": "joint training less experts, at least -5 points",
}
TUNED = tuple(SCALES)
PUBLISHED = (*PLAIN, *STATISTICS, *LEARNING)
LAYER = "adamerging-layer"


class Claim(NamedTuple):
    """Pairs of models, the first less the second, each of which must exceed the margin."""

    name: str
    pairs: Sequence[tuple[str, str]]
    margin: float = 0.0


CLAIMS = (
    Claim("H1 averaging beats the base", [("average", "base")]),
    Claim("H2 task arithmetic beats the average", [("task_arithmetic", "average")]),
    Claim("H3 TIES beats task arithmetic", [("ties", "task_arithmetic")]),
    Claim("H4 RegMean beats TIES", [("regmean", "ties")]),
    Claim("H5 layer-wise AdaMerging beats RegMean", [(LAYER, "regmean")]),
    Claim("H6 WEMoE beats layer-wise AdaMerging", [("wemoe", LAYER)]),
    Claim("H7 WEMoE comes near the experts (3 points)", [("wemoe", "experts")], -0.03),
    Claim("H8 singular vectors beat sums of changes",
          [("tsv_m", "task_arithmetic"), ("iso_c", "task_arithmetic")]),
    Claim("H9 joint training beats merging",
          [("joint", name) for name in ("regmean", LAYER, "tsv_m", "iso_c")]),
    Claim("H2, tuned: task arithmetic beats the average", [("task_arithmetic|tuned", "average")]),
    Claim("H3, tuned: TIES beats task arithmetic", [("ties|tuned", "task_arithmetic|tuned")]),
    Claim("H8, tuned: singular vectors beat sums of changes",
          [("tsv_m|tuned", "task_arithmetic|tuned"), ("iso_c|tuned", "task_arithmetic|tuned")]),
    Claim("H10 merging helps tasks that no expert saw",
          [("task_arithmetic|unseen", "base|unseen")]),
    Claim("H11 under corruption task arithmetic keeps its lead over the base",
          [("task_arithmetic|corrupted", "base|corrupted")]),
    Claim("H12 under corruption layer-wise AdaMerging keeps its lead over task arithmetic",
          [(f"{LAYER}|corrupted", "task_arithmetic|corrupted")]),
)  # fmt: skip


def seeds(folder: Path) -> list[Answers]:
    """All answers of each seed, those on unseen tasks under names of their own."""
    found: dict[int, Answers] = {}
    for file in sorted(folder.glob("*.npz")):
        number = int(file.name.partition("-")[0])
        found.setdefault(number, {}).update(read(file))
    for of in found.values():
        for name in (*GENERAL, "base"):
            if unseen := on_unseen(of, name):
                of[f"{name}|unseen"] = unseen
    return [found[number] for number in sorted(found)]


def on_unseen(of: Answers, name: str) -> dict[str, Flags]:
    """A method's answers to the tasks that no merged expert saw."""
    found: dict[str, Flags] = {}
    for tasks in UNSEEN:
        source = "base" if name == "base" else f"{name}|without {'+'.join(tasks)}"
        if source not in of or f"{GENERAL[0]}|without {'+'.join(tasks)}" not in of:
            return {}
        found |= {task: of[source][task] for task in tasks}
    return found


def judged(claim: Claim, found: Sequence[Answers]) -> tuple[list[Difference], int]:
    """The differences of a claim, and on how many seeds they rest."""
    names = {name for pair in claim.pairs for name in pair}
    whole = [of for of in found if names <= of.keys()]
    if not whole:
        return [], 0
    count = len(claim.pairs)
    return [over_seeds([(of[a], of[b]) for of in whole], count) for a, b in claim.pairs], len(whole)


def claims(found: Sequence[Answers]) -> str:
    body = []
    for claim in CLAIMS:
        parts, count = judged(claim, found)
        shown = [str(part.alone) for part in parts]
        if len(shown) > 1:
            firsts = [named(a) for a, _ in claim.pairs]
            if len(set(firsts)) == 1:
                firsts = [f"over {named(b)}" for _, b in claim.pairs]
            shown = [f"{name} {text}" for name, text in zip(firsts, shown, strict=True)]
        said = several_said(parts, claim.margin, every=True) if parts else "not run yet"
        each = "; ".join(" ".join(f"{100 * v:+.1f}" for v in part.each) for part in parts)
        body.append([claim.name, "; ".join(shown), each, str(count), said])
    return markdown(["claim", "points [95 %]", "each seed", "seeds", "verdict"], body)


def named(model: str) -> str:
    return model.partition("|")[0]


def mean(of: Mapping[str, Flags]) -> float:
    return float(np.mean([flags.mean() for flags in of.values()]))


def over(found: Sequence[Answers], name: str, tasks: Sequence[str] | None = None) -> str:
    """The mean over seeds in percent, and the lowest and highest of them."""
    each = [100 * mean({t: of[name][t] for t in tasks or of[name]}) for of in found if name in of]
    if not each:
        return ""
    ends = f" ({min(each):.1f} to {max(each):.1f})" if tasks is None else ""
    return f"{np.mean(each):.1f}{ends}"


def pool(found: Sequence[Answers]) -> str:
    tasks = list(found[0]["base"])
    head = {"base": "base, zero-shot", "probe": "linear probe of the base",
            "single": "0.3 of a task's own vector", "joint": "joint training",
            "experts": "experts, each on its task"}  # fmt: skip
    body = [
        [head[name], over(found, name), *(over(found, name, [task]) for task in tasks)]
        for name in POOL
    ]
    return markdown(["model", "mean of seven", *tasks], body)


def gate_table(logs: Sequence[Mapping[str, Any]]) -> str:
    body = []
    for key, text in GATES.items():
        values = [log["gates"][key]["value"] for log in logs]
        points = key in ("headroom", "joint")
        shown = [f"{100 * v:+.1f}" if points else f"{v:.2f}" for v in values]
        met = sum(bool(log["gates"][key]["met"]) for log in logs)
        body.append([text, ", ".join(shown), f"{met} of {len(logs)} seeds"])
    return markdown(["gate", "by seed", "met"], body)


def cost(logs: Sequence[Mapping[str, Any]]) -> str:
    """What each part of a run took, as its log tells it."""
    parts = {"base": "base", "expert-": "an expert, mean", "joint": "joint training",
             "published": "merges at published settings, and their answers",
             "tuned": "scales on validation images"}  # fmt: skip
    body = []
    for start, text in parts.items():
        each = [[log[key]["seconds"] for key in log if key.startswith(start)] for log in logs]
        told = [f"{np.mean(seconds):.0f}" if seconds else "-" for seconds in each]
        body.append([text, ", ".join(told)])
    return markdown(["part", "seconds, by seed"], body)


def vectors(logs: Sequence[Mapping[str, Any]]) -> str:
    """How long the task vectors are beside the base's weights, and how nearly orthogonal."""
    found = [log["lengths"] for log in logs if "lengths" in log]
    lengths = [percent(value) for told in found for value in told["of_base"].values()]
    cosine = max(float(told["largest_cosine"]) for told in found)
    ends = sorted(lengths, key=float)
    return f"{ends[0]} to {ends[-1]} % of the base's length, largest cosine {cosine:.2f}"


def merges(found: Sequence[Answers]) -> str:
    tasks = list(found[0]["base"])
    rows = sorted(PUBLISHED, key=lambda name: np.mean([mean(of[name]) for of in found]))
    body = []
    for name in ("base", *rows, "joint", "experts"):
        body.append([name, over(found, name), over(found, f"{name}|tuned"),
                     over(found, f"{name}|corrupted"), over(found, f"{name}|unseen"),
                     *(over(found, name, [task]) for task in tasks)])  # fmt: skip
    head = ["method", "mean of seven", "tuned", "corrupted", "unseen tasks", *tasks]
    return markdown(head, body)


def chosen(found: Sequence[Answers]) -> str:
    """Which scale validation images chose, by seed."""
    body = []
    for name in TUNED:
        best = []
        for of in found:
            tried = [key for key in of if key.startswith(f"{name}|scale=") and key.endswith("|val")]
            if tried:
                top = max(tried, key=lambda key: mean(of[key]))
                best.append(top.split("|")[1].removeprefix("scale="))
        body.append([name, ", ".join(best)])
    return markdown(["method", "scale that was chosen, by seed"], body)


def from_data(folder: Path) -> dict[str, str]:
    """The places of README.md."""
    found = seeds(folder)
    logs = [
        json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*-log.json"))
    ]
    return {
        "gates": gate_table(logs),
        "pool": pool(found),
        "claims": claims(found),
        "merges": merges(found),
        "chosen": chosen(found),
        "cost": cost(logs),
        "vectors": vectors(logs),
    }


if __name__ == "__main__":
    fill(HERE / "README.md", from_data(Path(sys.argv[1]) if sys.argv[1:] else HERE / "answers"))

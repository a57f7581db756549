"""Gates, accuracies and claims of the pools with headroom, from the answers beside this file.

    python studies/clip_headroom/tables.py [runs/headroom/answers]

judges by the rule of plan.md and fills README.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from answers import Answers, Flags, read
from claims import ELSEWHERE, THERE, claims
from merges import (
    ADAPTED,
    CORRUPTED,
    CORRUPTED_TASKS,
    GENERAL,
    LAYER,
    LEARNING,
    PLAIN,
    SCALES,
    SECOND,
    STATISTICS,
    UNSEEN,
    adapted_to,
)

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


def seeds(folder: Path) -> list[Answers]:
    """All answers of each seed; those on unseen tasks, and on the images that are asked about
    corrupted too as they are, under names of their own."""
    found: dict[int, Answers] = {}
    for file in sorted(folder.glob("*.npz")):
        number = int(file.name.partition("-")[0])
        found.setdefault(number, {}).update(read(file))
    for of in found.values():
        for name in (*GENERAL, "base"):
            if unseen := on_unseen(of, name):
                of[f"{name}|unseen"] = unseen
        for name in [name for name in of if f"{name}|corrupted" in of]:
            of[f"{name}|clean"] = {task: of[name][task][:CORRUPTED] for task in CORRUPTED_TASKS}
        if all(adapted_to(kind) in of for kind in ADAPTED):
            of[THERE] = {
                key: flags for kind in ADAPTED for key, flags in of[adapted_to(kind)].items()
            }
            of[ELSEWHERE] = {key: of[f"{LAYER}|corrupted"][key] for key in of[THERE]}
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


def mean(of: Mapping[str, Flags]) -> float:
    return float(np.mean([flags.mean() for flags in of.values()]))


def over(found: Sequence[Answers], name: str, tasks: Sequence[str] | None = None) -> str:
    """The mean over seeds in percent, and the lowest and highest of them."""
    each = [100 * mean({t: of[name][t] for t in tasks or of[name]}) for of in found if name in of]
    if not each:
        return ""
    several = tasks is None and len(each) > 1
    ends = f" ({min(each):.1f} to {max(each):.1f})" if several else ""
    return f"{np.mean(each):.1f}{ends}"


def pool(found: Sequence[Answers]) -> str:
    tasks = list(found[0]["base"])
    head = {"base": "base, zero-shot", "probe": "linear probe of the base",
            "single": "0.3 of a task's own vector", "joint": "joint training",
            "experts": "experts, each on its task"}  # fmt: skip
    body = [
        [head[name], over(found, name), *(over(found, name, [task]) for task in tasks)]
        for name in POOL
        if any(name in of for of in found)
    ]
    return markdown(["model", "mean of seven", *tasks], body)


def gate_table(logs: Sequence[Mapping[str, Any]]) -> str:
    body = []
    for key, text in GATES.items():
        told = [log["gates"][key] for log in logs if key in log.get("gates", {})]
        if not told:
            continue
        values = [each["value"] for each in told]
        points = key in ("headroom", "joint")
        shown = [f"{100 * v:+.1f}" if points else f"{v:.2f}" for v in values]
        met = sum(bool(each["met"]) for each in told)
        body.append([text, ", ".join(shown), f"{met} of {len(told)} seeds"])
    return markdown(["gate", "by seed", "met"], body)


def cost(runs: Sequence[Mapping[str, Any]]) -> str:
    """What each part of a run took, as its log tells it."""
    parts = {"base": "base", "expert-": "an expert, mean", "joint": "joint training",
             "published": "merges at published settings, and their answers",
             "tuned": "scales on validation images"}  # fmt: skip
    body = []
    for start, text in parts.items():
        each = [[log[key]["seconds"] for key in log if key.startswith(start)] for log in runs]
        if start == "published":  # the slowest came last in a later run, as a part of their own
            each = [of and [sum(of) + log.get("rest", {}).get("seconds", 0)]
                    for of, log in zip(each, runs, strict=True)]  # fmt: skip
        told = [f"{np.mean(seconds):.0f}" if seconds else "-" for seconds in each]
        body.append([text, ", ".join(told)])
    return markdown(["part", "seconds, by seed"], body)


def vectors(runs: Sequence[Mapping[str, Any]]) -> str:
    """How long the task vectors are beside the base's weights, and how nearly orthogonal."""
    found = [log["lengths"] for log in runs if "lengths" in log]
    lengths = [percent(value) for told in found for value in told["of_base"].values()]
    cosine = max(float(told["largest_cosine"]) for told in found)
    ends = sorted(lengths, key=float)
    return f"{ends[0]} to {ends[-1]} % of the base's length, largest cosine {cosine:.2f}"


def merges(found: Sequence[Answers]) -> str:
    tasks = list(found[0]["base"])
    rows = ordered(PUBLISHED, found)
    body = []
    for name in ("base", *rows, "joint", "experts"):
        body.append([name, over(found, name), over(found, f"{name}|tuned"),
                     over(found, f"{name}|corrupted"), over(found, f"{name}|clean"),
                     over(found, f"{name}|unseen"),
                     *(over(found, name, [task]) for task in tasks)])  # fmt: skip
    head = ["method", "mean of seven", "tuned", "corrupted", "the same, clean", "unseen tasks",
            *tasks]  # fmt: skip
    return markdown(head, body)


def ordered(names: Sequence[str], found: Sequence[Answers]) -> list[str]:
    """Models by their mean over the seeds that have them; those that none has are left out."""
    each = {name: [mean(of[name]) for of in found if name in of] for name in names}
    return sorted((name for name in names if each[name]), key=lambda name: np.mean(each[name]))


def adapted(found: Sequence[Answers]) -> str:
    """Layer-wise AdaMerging on corrupted images: adapted to them, and on clean images."""
    whole = [of for of in found if THERE in of]
    names = ("base|corrupted", "task_arithmetic|corrupted", ELSEWHERE, THERE)
    head = ["base", "task_arithmetic", "adapted on clean images", "adapted on these images"]
    body = []
    for kind in ADAPTED:
        keys = [key for key in whole[0][THERE] if key.endswith(f"|{kind}")]
        body.append([kind, *(over(whole, name, keys) for name in names)])
    keys = list(whole[0][THERE])
    body.append(["mean", *(over(whole, name, keys) for name in names)])
    return markdown(["corruption", *head], body)


def second_size(found: Sequence[Answers]) -> str:
    """Base, merges and experts of the second size."""
    tasks = list(found[0]["base"])
    rows = ordered([name for name in SECOND if "|" not in name], found)
    body = [
        [name, over(found, name), over(found, f"{name}|corrupted"),
         *(over(found, name, [task]) for task in tasks)]
        for name in ("base", "probe", "single", *rows, "experts")
    ]  # fmt: skip
    return markdown(["model", "mean of seven", "corrupted", *tasks], body)


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
    """The places of README.md; those of what was not measured yet are none."""
    found, second = seeds(folder), seeds(folder / "second")
    places = {
        "gates": gate_table(logs(folder)),
        "pool": pool(found),
        "claims": claims(found, second),
        "merges": merges(found),
        "chosen": chosen(found),
        "cost": cost(logs(folder)),
        "vectors": vectors(logs(folder)),
    }
    if any(THERE in of for of in found):
        places["adapted"] = adapted(found)
    if any("base" in of for of in second):
        places["second"] = second_size(second)
        places["second gates"] = gate_table(logs(folder / "second"))
    return places


def logs(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*-log.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


if __name__ == "__main__":
    fill(HERE / "README.md", from_data(Path(sys.argv[1]) if sys.argv[1:] else HERE / "answers"))

"""Every method that can merge the five experts, tuned on one budget: see plan.md.

    python studies/clip_fusion/tuned.py                 # into runs/; stopped, it goes on
    python studies/clip_fusion/tuned.py --small         # few images and trials
    python studies/clip_fusion/tables.py runs tuned

Run again with methods that are new in the registry, it adds theirs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from study import EXPERT_OF, SWITCHED, VALIDATION

import stockpot
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.errors import UserError
from stockpot.fuse import fusers
from stockpot.fuse.parameters import check_members
from stockpot.measure.measurement import Context
from stockpot.results.contrast import mean_contrast, paired
from stockpot.results.store import load_results
from stockpot.results.tuning import (
    TunedObjective,
    TunedTrial,
    TuneResult,
    read_tuning,
    write_tuning,
)
from stockpot.tune.examine import scores_on_test
from stockpot.tune.merges import Merges
from stockpot.tune.objectives import judge, read_objectives
from stockpot.tune.space import derived

MEMBERS = {name: name for name in EXPERT_OF.values()}
PER_TASK = ("bitdelta", "randes", *SWITCHED)
LARGER = ("dawe", "ensemble", "mass", "rank_one_moe", "smile", "surgery", "twin", "wemoe")
LABELLED = ("fw_hard", "fw_soft", "joint")
APART = (*PER_TASK, *LARGER, *LABELLED)
"""Methods that make more than one network of the size of the base, or learn from labels."""
TUNED, TRIALS, TESTED, LEARNED = "clip_tuned", 12, 1000, 256
HELD: dict[str, dict[str, Any]] = {
    "fisher": {"expectation": "joint"}, "adamerging": {"steps": 300}, "dawe": {"steps": 300},
    "joint": {"steps": 300}, "rank_one_moe": {"steps": 300}, "wemoe": {"steps": 300},
    "concrete": {"steps": 300, "adapt_steps": 300},
    "surgery": {"steps": 300, "surgery_steps": 300}, "fw_soft": {"adapt_steps": 30},
}  # fmt: skip
"""What is not searched: by the plan, so that a processor can do it."""


def images(split: str, limit: int | None) -> list[Dataset]:
    """Of every task; icons call their training images `train`."""
    return [
        load_dataset(task, split="train" if (task, split) == ("icons", "fit") else split)
        .limited(limit) for task in EXPERT_OF
    ]  # fmt: skip


def merging(learning: bool) -> list[str]:
    """The methods that merge all five, the quick ones first."""
    found = []
    for name in fusers.names():
        entry = fusers.get(name)
        steps = entry.tags.needs_data and "steps" in {row.name for row in entry.parameters}
        try:
            check_members(entry, len(EXPERT_OF), with_base=True)
        except UserError:
            continue
        if entry.tags.each and not entry.tags.stacks and (learning or not steps):
            found.append(name)
    return sorted(found, key=lambda name: (fusers.get(name).tags.heavy, name))


def tuned(given: argparse.Namespace) -> None:
    """Every method, then the best of all beside the best default."""
    seen = images("val", 16 if given.small else VALIDATION)
    test = images("test", 16 if given.small else TESTED)
    learned = images("fit", 8 if given.small else LEARNED)
    for method in merging(given.learning):
        folder = given.runs / TUNED / method
        known = read_tuning(folder)
        if known is not None and known.finished:
            continue
        print(method, flush=True)
        try:
            if derived(fusers.get(method)):
                trials = 3 if given.small else TRIALS
                stockpot.tune(
                    method, MEMBERS, seen, base="clip-base", test=test, trials=trials,
                    prune="racing", tasks=learned, out=folder, device=given.device,
                    **HELD.get(method, {}),
                )  # fmt: skip
            else:
                alone(method, seen, test, folder, Context(torch.device("cpu"), batch_size=256))
        except UserError as problem:  # said in the log; the other methods go on
            print(f"{method}: {problem}", flush=True)
    best(given)


def alone(
    method: str, seen: Sequence[Dataset], test: Sequence[Dataset], folder: Path, context: Context
) -> None:
    """A method with nothing to search, as a search of one trial."""
    begun, marks, wanted = time.perf_counter(), [False] * len(seen), read_objectives("clean")
    merges = Merges(MEMBERS, "clip-base", seen, device=context.device)
    with merges.merged(method, {}) as models:
        found = judge(wanted, models, seen, marks, context)["clean"]
    trial = TunedTrial(
        number=0, state="complete", method=method, values={"clean": found.value},
        tasks={"clean": list(found.tasks)}, seconds=round(time.perf_counter() - begun, 3),
    )  # fmt: skip
    result = TuneResult(
        methods=[method], members=MEMBERS, base="clip-base", data=[str(one) for one in seen],
        test_data=[str(one) for one in test], images=sum(map(len, seen)),
        objectives=[TunedObjective(name="clean")], sampler="", prune="", seed=0, wanted=1,
        trials=[trial], front=[0], chosen=0, default=0, finished=True, test_looks=1,
    )  # fmt: skip
    exam = Merges(MEMBERS, "clip-base", test, device=context.device)
    scores = scores_on_test(result, exam, wanted, marks, context)
    folder.mkdir(parents=True, exist_ok=True)
    write_tuning(folder, result.model_copy(update={"test": scores}))


def searches(runs: Path) -> dict[str, TuneResult]:
    """The searches that have ended, by method."""
    found = {path.parent.name: read_tuning(path.parent)
             for path in sorted((runs / TUNED).glob("*/tune.json"))}  # fmt: skip
    return {name: one for name, one in found.items() if one is not None and one.finished}


def leaders(runs: Path) -> dict[str, TunedTrial]:
    """On validation images the best trial of all, and the best default."""
    found = {name: one for name, one in searches(runs).items() if name not in APART}
    both = {
        "tuned": [one.trial(one.chosen) for one in found.values() if one.chosen is not None],
        "default": [one.trial(one.default) for one in found.values() if one.default is not None],
    }
    return {key: max(some, key=lambda t: t.values["clean"]) for key, some in both.items() if some}


def best(given: argparse.Namespace) -> None:
    """The two leaders on all test images."""
    out = given.runs / f"{TUNED}_best"
    for key, trial in leaders(given.runs).items():
        settings = dict(trial.params)
        if fusers.get(trial.method).tags.learns:
            settings |= {"tasks": images("fit", 8 if given.small else LEARNED)}
        name = f"{key}-{trial.method}-{trial.number}"
        if not (out / "models" / name).is_dir():
            stockpot.fuse(
                trial.method, MEMBERS, base="clip-base", out=out / "models" / name, **settings
            )
        for task in EXPERT_OF:
            stockpot.measure(
                {name: out / "models" / name}, {"clean": {"per_class": False}}, data=task,
                data_options={"limit": 16 if given.small else None}, out=out, device=given.device,
            )  # fmt: skip


def tuned_rows(runs: Path) -> list[dict[str, Any]]:
    """What each search found."""
    rows = []
    for name, one in searches(runs).items():
        if one.chosen is None or "clean" not in one.test:
            continue
        best, score = one.trial(one.chosen), one.test["clean"]
        worth = one.selection.get("clean")
        states = [trial.state for trial in one.trials]
        rows.append({
            "method": name, "trials": len(states), "given up": states.count("pruned"),
            "failed": states.count("failed"), "validation": best.values["clean"],
            "choice": worth and worth.value, "choice_low": worth and worth.low,
            "choice_high": worth and worth.high,
            "test": score.value, "test_low": score.low, "test_high": score.high, "n": score.n,
            "default": score.default, "gain": score.gain, "gain_low": score.gain_low,
            "gain_high": score.gain_high, "looks": one.test_looks,
            "parameters": ", ".join(f"{k}={_said(v)}" for k, v in best.params.items()),
        })  # fmt: skip
    return list(map(rounded, rows))


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Four decimals, as files here have them."""
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def leader_rows(runs: Path) -> list[dict[str, Any]]:
    """The margin of tuning, on all test images that both leaders met."""
    out = runs / f"{TUNED}_best"
    if not (out / "results").is_dir():
        return []
    cells = {(cell.key.model, cell.key.data): cell for cell in load_results(out)}
    names = {key: f"{key}-{one.method}-{one.number}" for key, one in leaders(runs).items()}
    places = [[(names[key], task) for key in ("tuned", "default")] for task in EXPERT_OF]
    if not all(place in cells for pair in places for place in pair):
        return []
    answers = [[cells[place].outcome("correct") for place in pair] for pair in places]
    found = mean_contrast([paired(*pair) for pair in answers])
    first, second = (
        sum(float(pair[at].mean()) for pair in answers) / len(answers) for at in (0, 1)
    )
    return [rounded({
        "tuned": leaders(runs)["tuned"].method, "default": leaders(runs)["default"].method,
        "images": sum(len(pair[0]) for pair in answers),
        "first": first, "second": second,
        "margin": found.value, "margin_low": found.low, "margin_high": found.high,
    })]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--small", action="store_true", help="few images and trials")
    parser.add_argument("--learning", action="store_true", help="also methods that take steps")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    torch.set_num_threads(1)
    tuned(given)


if __name__ == "__main__":
    main()

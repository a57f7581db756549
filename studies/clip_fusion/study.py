"""The CLIP fusion study: candidates for the pool, fusions, tuned fusions, what routing could reach.

    python studies/clip_fusion/study.py pools               # candidates on validation images
    python studies/clip_fusion/study.py fusions             # three recipes, EMR and TALL masks
    python studies/clip_fusion/study.py fusions --small     # at a size for two CPU cores
    python studies/clip_fusion/study.py routing
    python studies/clip_fusion/study.py tuned               # every method tuned, as in plan.md
    python studies/clip_fusion/tables.py runs               # or: tables.py runs tuned

What is finished lies in runs/; stopped and started again, a part goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

import stockpot
from stockpot.checkpoints.resolve import zoo_folder
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.errors import UserError
from stockpot.fuse import fusers
from stockpot.fuse.parameters import check_members
from stockpot.harden.selection import accuracy
from stockpot.measure.measurement import Context
from stockpot.models.load import load_for
from stockpot.recipe import load_recipe
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

EXPERT_OF = {
    "cifar10": "clip-cifar10",
    "mnist": "clip-mnist",
    "fashion_mnist": "clip-fashion",
    "quickdraw": "clip-quickdraw",
    "icons": "clip-icons",
}
BASES: dict[str, dict[str, float]] = {
    "kinds": {"icons": 0.15, "concepts": 0.5, "cifar10": 0.02, "quickdraw": 0.15, "mnist": 0.002,
              "fashion_mnist": 0.002, "kinds": 0.1},
    "few": {"icons": 0.25, "cifar10": 0.02, "quickdraw": 0.1, "mnist": 0.002,
            "fashion_mnist": 0.002},
    "some": {"icons": 0.5, "cifar10": 0.05, "quickdraw": 0.15, "mnist": 0.005,
             "fashion_mnist": 0.005},
}  # fmt: skip
"""Name of a base -> the shares of the captions that it sees."""
RATES = {"near": 1e-4, "far": 2.5e-4}
"""Name -> the learning rate of the experts."""
MEMBERS = {name: name for name in EXPERT_OF.values()}
STEPS, BATCH, VALIDATION = 3200, 768, 400
SIMPLE: dict[str, dict[str, Any]] = {
    "average": {"method": "average"},
    "ties": {"method": "ties"},
} | {f"task_arithmetic@{s}": {"method": "task_arithmetic", "scale": s}
     for s in (0.1, 0.2, 0.3, 0.5)}  # fmt: skip
SWITCHED = ("emr", "tall_mask")
APART = ("smile", *SWITCHED)
"""Methods that make more than one network of the size of the base."""
TUNED, TRIALS, TESTED, LEARNED = "clip_tuned", 12, 1000, 256
HELD = {"fisher": {"expectation": "joint"}}
FUSIONS = ("clip_fusion", "clip_generalisation", "clip_robustness")


def candidate(base: str, small: bool) -> dict[str, Any]:
    """recipes/zoo_clip.yaml with another base, experts at both rates, and their simple fusions.

    Test images are not touched: everything is measured on `val`, which no training saw.
    """
    raw = load_recipe("recipes/zoo_clip.yaml").raw
    data, trained = raw["data"], raw["harden"]
    data["captions"] = {"dataset": "captions", "split": "train", **BASES[base]}
    start = trained["clip-base"] | {"batch_size": 16 if small else BATCH}
    if small:
        data["captions"]["limit"] = 32
        for name in data:
            if name.endswith("-fit"):
                data[name]["limit"] = 64
    options = {key: value for key, value in data["captions"].items() if key != "dataset"}
    steps = len(load_dataset("captions", **options)) // start["batch_size"]
    start["epochs"] = 1 if small else round(STEPS / steps)
    experts = {name: trained[name] | ({"epochs": 1} if small else {})
               for name in EXPERT_OF.values()}  # fmt: skip
    raw["harden"], raw["fuse"] = {"clip-base": start}, {}
    for rate, lr in RATES.items():
        members = {f"{name}@{rate}": entry | {"lr": lr} for name, entry in experts.items()}
        raw["harden"] |= members
        raw["fuse"] |= {
            f"{name}@{rate}": method | {"models": list(members), "base": "clip-base"}
            for name, method in SIMPLE.items()
        }
    for task in EXPERT_OF:
        data[f"{task}-val"]["limit"] = 16 if small else VALIDATION
    measured = [{"measure": "clean", "data": f"{task}-val", "per_class": False}
                for task in EXPERT_OF]  # fmt: skip
    return raw | {"measure": {"with": measured}, "report": {"title": f"Candidates of {base}"}}


def pools(given: argparse.Namespace) -> None:
    """Make and measure all candidates; `tables.py` ranks them."""
    for base in given.only:
        recipe = candidate(base, given.small) | {"device": given.device}
        stockpot.run(recipe, out=given.runs / "clip_pools" / base, engine=given.engine, say=print)


def fusions(given: argparse.Namespace) -> None:
    """The three recipes, and the methods that give a model per member, each on its own task."""
    for name in given.recipes:
        path = Path("recipes") / f"{name}.yaml"
        changes = smaller(load_recipe(path).raw) if given.small else {}
        out = given.runs / name
        stockpot.run(path, out=out, engine=given.engine, say=print, device=given.device, **changes)
    out, base = given.runs / "clip_switched", str(zoo_folder("clip-base"))
    members = {name: str(zoo_folder(name)) for name in EXPERT_OF.values()}
    for method in SWITCHED:
        if not (out / method).is_dir():
            stockpot.fuse(method, members, base=base, out=out / method)
        for task, member in EXPERT_OF.items():
            stockpot.measure(
                {f"{method}-{member}": out / method / member}, {"clean": {"per_class": False}},
                data=task, data_options={"limit": 100 if given.small else None}, out=out,
                device=given.device,
            )  # fmt: skip


def smaller(raw: dict[str, Any]) -> dict[str, Any]:
    """Fewer images, and few, larger steps for the methods that adapt."""
    tested = {entry["data"]: 20 if entry["measure"] == "corruption" else 100
              for entry in raw["measure"]["with"]}  # fmt: skip
    changes: dict[str, Any] = {f"data.{name}.limit": limit for name, limit in tested.items()}
    rates = {"adamerging": 0.01, "concrete": 0.05, "surgery": 0.01, "wemoe": 0.003}
    for name, entry in raw["fuse"].items():
        method = entry["method"]
        if method in rates:
            lr = 5 * rates[method] if name.endswith("-fast") else rates[method]
            steps = 15 if method == "concrete" else 50
            changes |= {f"fuse.{name}.steps": steps, f"fuse.{name}.lr": lr,
                        f"fuse.{name}.batch_size": 4}  # fmt: skip
        if method == "concrete" and entry.get("merge"):
            changes |= {f"fuse.{name}.adapt_steps": 15, f"fuse.{name}.adapt_lr": 0.01}
        if method in ("fisher", "surgery"):
            changes[f"fuse.{name}.examples"] = 64
    return changes


def routing(given: argparse.Namespace) -> None:
    """What perfect routing of the MLPs could reach: how much of WEMoE's distance is its router's.

    For each task: base + 0.3 x all changes outside the MLPs, as WEMoE leaves them, and inside the
    MLPs the changes of the task's own expert alone, which is what a router that knew the task would
    choose (`told`); beside it the same with all experts mixed at 0.3, where the routers start.
    """
    base = tower("clip-base")
    changes = {
        task: {k: v - base[k] for k, v in tower(name).items()} for task, name in EXPERT_OF.items()
    }
    for task, expert in EXPERT_OF.items():
        data = load_dataset(task, split="val").limited(16 if given.small else VALIDATION)
        model = load_for("clip-base", data)
        shown = [f"{task:14} n={len(data)}  base {100 * accuracy(model, data):.1f}"]
        for label in ("start", "told"):
            mixed = {
                name: value + changes[task][name]
                if label == "told" and ".mlp." in name
                else value + 0.3 * sum(change[name] for change in changes.values())
                for name, value in base.items()
            }
            model.network.vision_tower.load_state_dict(mixed, strict=False)
            shown.append(f"{label} {100 * accuracy(model, data):.1f}")
        shown.append(f"expert {100 * accuracy(load_for(expert, data), data):.1f}")
        print("  ".join(shown), flush=True)


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
        if entry.tags.each and (learning or not steps):
            found.append(name)
    return sorted(found, key=lambda name: (fusers.get(name).tags.heavy, name))


def tuned(given: argparse.Namespace) -> None:
    """Every method on one budget, then the best of all beside the best default; see plan.md."""
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


def tower(name: str) -> dict[str, Tensor]:
    """The weights of a vision tower, by their names in it."""
    tensors = load_file(Path(str(zoo_folder(name))) / "model.safetensors")
    found = {k.removeprefix("vision_model."): v.float() for k, v in tensors.items()}
    return {k: v for k, v in found.items() if not k.startswith(("text_", "visual_", "logit_"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=["pools", "fusions", "routing", "tuned"])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--small", action="store_true", help="few images and steps")
    parser.add_argument("--engine", default="serial", help="serial or processes")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--only", nargs="*", choices=BASES, default=list(BASES), help="pools: bases"
    )
    parser.add_argument(
        "--learning", action="store_true", help="tuned: also methods that take steps"
    )
    parser.add_argument("--recipes", nargs="*", choices=FUSIONS, default=FUSIONS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    parts = {"pools": pools, "fusions": fusions, "routing": routing, "tuned": tuned}
    parts[given.part](given)


if __name__ == "__main__":
    main()

"""The CLIP fusion study: candidates for the pool, its fusions, and what routing could reach.

    python studies/clip_fusion/study.py pools               # candidates on validation images
    python studies/clip_fusion/study.py fusions             # three recipes, EMR and TALL masks
    python studies/clip_fusion/study.py fusions --small     # at a size for two CPU cores
    python studies/clip_fusion/study.py routing
    python studies/clip_fusion/tables.py runs

Every method tuned: `tuned.py`.
What is finished lies in runs/; stopped and started again, a part goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

import stockpot
from stockpot.checkpoints.resolve import zoo_folder
from stockpot.datasets.load import load_dataset
from stockpot.harden.selection import accuracy
from stockpot.models.load import load_for
from stockpot.recipe import load_recipe

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
STEPS, BATCH, VALIDATION = 3200, 768, 400
SIMPLE: dict[str, dict[str, Any]] = {
    "average": {"method": "average"},
    "ties": {"method": "ties"},
} | {f"task_arithmetic@{s}": {"method": "task_arithmetic", "scale": s}
     for s in (0.1, 0.2, 0.3, 0.5)}  # fmt: skip
SWITCHED = ("emr", "tall_mask")
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


def tower(name: str) -> dict[str, Tensor]:
    """The weights of a vision tower, by their names in it."""
    tensors = load_file(Path(str(zoo_folder(name))) / "model.safetensors")
    found = {k.removeprefix("vision_model."): v.float() for k, v in tensors.items()}
    return {k: v for k, v in found.items() if not k.startswith(("text_", "visual_", "logit_"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=["pools", "fusions", "routing"])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--small", action="store_true", help="few images and steps")
    parser.add_argument("--engine", default="serial", help="serial or processes")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--only", nargs="*", choices=BASES, default=list(BASES), help="pools: bases"
    )
    parser.add_argument("--recipes", nargs="*", choices=FUSIONS, default=FUSIONS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    {"pools": pools, "fusions": fusions, "routing": routing}[given.part](given)


if __name__ == "__main__":
    main()

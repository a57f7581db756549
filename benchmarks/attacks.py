"""`stockpot.attack` against its bare passes, and beside published implementations.

    python benchmarks/attacks.py                                    # two small CNNs, one thread
    STOCKPOT_PEER_PYTHON=PYTHON python benchmarks/attacks.py        # and the peers
    python benchmarks/attacks.py --quick                            # without AutoAttack
    python benchmarks/attacks.py --device cuda --peers FOLDER       # a ResNet-18 on a GPU

The floor is as many bare passes as the attack asked for (its result counts them), all images in one
batch, taken in the same run: forward, and backward for the share of them that a count on a few
images finds. It can be beaten where the search runs on a folded copy or in bfloat16. Models and
images are those of `tests/oracles`: 200 CIFAR-10 test images, l_inf with eps 8/255, one thread,
seconds of the processor.

A peer runs where PYTHON is an interpreter that can import torch and the peers (`pip install
--no-deps torchattacks==3.5.1 pyautoattack==0.2.0`). Else what was recorded of it is told: its cost
in forward and backward passes over all images, beside ours in the same unit.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import stockpot  # noqa: E402
from oracles.attack_reference import load_images, load_model  # noqa: E402
from parts.passes_of_an_attack import (  # noqa: E402
    Bare,
    bare_passes,
    share_with_gradient,
)
from parts.stages import print_each  # noqa: E402
from stockpot.engine import keep_freed_memory  # noqa: E402
from stockpot.stages import timed  # noqa: E402

EPS = 8 / 255
SEEDS = 5  # a random start moves the count by an image or two: counts are means over seeds
# Cost in bare passes over all images, and robust images, of each peer (torch 2.13, one core).
RECORDED = {
    "torchattacks apgd robust": (27.4, 60.6),
    "torchattacks apgd nominal": (29.2, 0),
    "autoattack apgd robust": (32.5, 60.6),
    "autoattack apgd nominal": (32.4, 0),
    "autoattack standard robust": (1940, 31),
    "autoattack standard nominal": (97.5, 0),
}
LIMITS = {"apgd robust": 0.7, "apgd nominal": 0.4, "standard robust": 0.5, "standard nominal": 0.5}
PLAIN, FAST = {"forward": "plain"}, {"precision": "bf16"}
STANDARD: dict[str, Any] = {"method": "autoattack", "patience": 20}
ON_GPU = {"images": 1000, "cifar": None, "weights": None, "peers": Path()}


class Case(NamedTuple):
    """One model, one kind of attack."""

    method: str
    model: str
    images: int
    seeds: int
    options: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.method} {self.model}"


class Found(NamedTuple):
    robust: float
    """Images that stand, the mean over seeds."""
    seconds: float
    passes: int
    """Of the run that took the least time, as are the stages."""
    stages: dict[str, float]


def main() -> None:
    """What each attack takes, and beneath it what its peers take."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="leave AutoAttack out")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help="cuda: a ResNet-18 on that device")
    parser.add_argument("--images", type=int, help="with a GPU, how many (1000)")
    parser.add_argument("--cifar", type=Path, help="with a GPU, an npz of CIFAR-10")
    parser.add_argument("--weights", type=Path, help="with a GPU, where the network is kept")
    parser.add_argument("--peers", type=Path, help="with a GPU, the peers' folder")
    given = parser.parse_args()
    if given.device != "cpu":
        from parts import attacks_on_gpu

        for name, usual in ON_GPU.items():
            if getattr(given, name) is None:
                setattr(given, name, usual)
        attacks_on_gpu.main(given)
        return
    unused = [f"--{name}" for name in ON_GPU if getattr(given, name) is not None]
    if unused:
        parser.error(f"{', '.join(unused)}: only with --device cuda")
    torch.set_num_threads(1)
    keep_freed_memory()  # as the command does; the peers run under the same setting
    if given.peer:
        print(json.dumps(run_peer(given.peer)))
        return
    print(f"one thread, torch {torch.__version__}, CPU seconds", flush=True)
    ways: dict[str, dict[str, Any]] = {"": {}}
    for model in ("robust", "nominal"):
        case = Case("apgd", model, 200, SEEDS, {"method": "apgd", "steps": 40})
        compare(case, "APGD-CE of 40 steps", ways, ("torchattacks", "autoattack"))
    if given.quick:
        return
    ways = {", plain": PLAIN, "": {}, ", searched in bf16": FAST}
    for model in ("robust", "nominal"):
        case = Case("standard", model, 100, 1, STANDARD)
        compare(case, "AutoAttack standard", ways, ("autoattack",))
        ways = {"": {}}


def compare(
    case: Case, label: str, ways: dict[str, dict[str, Any]], peers: tuple[str, ...]
) -> None:
    """A line for every way of the attack, and under it one for every peer."""
    images, labels = load_images(case.images)
    network = load_model(case.model)
    whole = case.options | {"eps": "8/255"}
    sloped = share_with_gradient(network, images, labels, **whole)
    bare = bare_passes(network, images)
    theirs = {peer: measured_peer(f"{peer} {case.name}") for peer in peers}
    for way, more in ways.items():
        ours = over_seeds(case, network, whole | more)
        again = bare_passes(network, images)
        bare = Bare(*map(min, bare, again))
        floor = bare.seconds(ours.passes, sloped)
        print(
            f"stockpot.attack, {label}{way}, {case.model} network: {ours.robust:.1f} of "
            f"{case.images} robust, {ours.seconds:.2f} s; {ours.passes:,} passes, "
            f"{sloped:.0%} with a gradient, take {floor:.2f} s bare: "
            f"{ours.seconds / floor:.2f} of the floor",
            flush=True,
        )
        print_each(ours.stages, floor, "floor")
        for peer, found in theirs.items():
            print(f"  {beside(peer, case, ours, found, bare)}", flush=True)


def beside(peer: str, case: Case, ours: Found, theirs: dict[str, float] | None, bare: Bare) -> str:
    """What a peer takes, measured in this run or as it is on record."""
    if theirs is not None:
        ratio = ours.seconds / theirs["seconds"]
        return (
            f"{peer}: {theirs['robust']:.1f} robust, {theirs['seconds']:.2f} s in this run; ours "
            f"takes {ratio:.2f} of it (wanted: at most {LIMITS[case.name]})"
        )
    passes, robust = RECORDED[f"{peer} {case.name}"]
    own = ours.seconds / (bare.both * case.images)
    return (
        f"{peer} as recorded elsewhere: {robust:.1f} robust, the time of {passes:.0f} passes over "
        f"all images; ours takes that of {own:.1f}"
    )


def measured_peer(case: str) -> dict[str, float] | None:
    """What the peer needs, run here; None without an interpreter that has it."""
    python = os.environ.get("STOCKPOT_PEER_PYTHON", "").strip()
    if not python:
        return None
    command = [python, __file__, "--peer", case]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        print(f"  {case} failed in {python}: {last}", flush=True)
        return None
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def over_seeds(case: Case, network: nn.Module, options: dict[str, Any]) -> Found:
    """The least CPU time of a run, and the mean of what runs find."""
    images, labels = load_images(case.images)
    runs = []
    for seed in range(case.seeds):
        begin = time.process_time()
        with timed() as clock:
            found = stockpot.attack(network, images, labels, seed=1000 * seed, **options)
            stages = clock.taken()
        taken = time.process_time() - begin
        runs.append(Found(int(found.robust.sum()), taken, int(found.queries.sum()), stages))
    least = min(runs, key=lambda run: run.seconds)
    return least._replace(robust=sum(run.robust for run in runs) / case.seeds)


def run_peer(case: str) -> dict[str, float]:
    """In the peer's environment: its best time, and the mean of what stands."""
    peer, method, model = case.split()
    images, labels = load_images(100 if method == "standard" else 200)
    network = load_model(model)
    times, standing = [], []
    for seed in range(1 if method == "standard" else SEEDS):
        begin = time.process_time()
        worst = peer_attack(peer, method, network, seed)(images, labels)
        with torch.no_grad():
            standing.append(int((network(worst).argmax(dim=1) == labels).sum()))
        times.append(time.process_time() - begin)
    return {"seconds": min(times), "robust": sum(standing) / len(standing)}


def peer_attack(
    peer: str, method: str, network: nn.Module, seed: int
) -> Callable[[Tensor, Tensor], Tensor]:
    """The peer's attack as a function of images and labels."""
    if peer == "torchattacks":
        import torchattacks

        return torchattacks.APGD(network, norm="Linf", eps=EPS, steps=40, seed=seed)
    if method == "apgd":
        from pyautoattack.autopgd_base import APGDAttack

        options = {"norm": "Linf", "eps": EPS, "n_restarts": 1, "loss": "ce", "device": "cpu"}
        return APGDAttack(network, n_iter=40, seed=seed, **options).perturb
    from pyautoattack import AutoAttack

    whole = AutoAttack(network, norm="Linf", eps=EPS, version="standard", device="cpu")

    def run(images: Tensor, labels: Tensor) -> Tensor:
        found = whole.run_standard_evaluation(images, labels, batch_size=len(images))
        return found[0] if isinstance(found, tuple) else found

    return run


if __name__ == "__main__":
    main()

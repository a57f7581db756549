"""CPU time and robust accuracy of the attacks, beside published implementations.

    python benchmarks/attacks.py                                    # against recorded peers
    STOCKPOT_PEER_PYTHON=PYTHON python benchmarks/attacks.py        # peers run on this machine
    python benchmarks/attacks.py --quick                            # without AutoAttack
    python benchmarks/attacks.py --device cuda --peers FOLDER       # a ResNet-18 on a GPU

PYTHON is an interpreter that can import torch and the peers (`pip install --no-deps
torchattacks==3.5.1 pyautoattack==0.2.0`). Models and images are those of `tests/oracles`: two small
CNNs and 200 CIFAR-10 test images, l_inf with eps 8/255, one thread. Where no peer is at hand its
recorded cost is used, which was counted in bare passes: one forward and backward pass over the
images at hand, timed on the same machine at the same time.
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
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from oracles.attack_reference import load_images, load_model  # noqa: E402
from stockpot.engine import keep_freed_memory  # noqa: E402

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


def main() -> None:
    """Print one line per comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave AutoAttack out")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="", help="cuda: a ResNet-18 on that device")
    parser.add_argument("--images", type=int, default=1000, help="with --device, how many")
    parser.add_argument("--cifar", type=Path, help="with --device, an npz of CIFAR-10")
    parser.add_argument("--weights", type=Path, help="with --device, where the network is kept")
    parser.add_argument("--peers", type=Path, default=Path(), help="with --device, their folder")
    arguments = parser.parse_args()
    if arguments.device:
        import attacks_on_gpu

        attacks_on_gpu.main(arguments)
        return
    torch.set_num_threads(1)
    keep_freed_memory()  # as the command does; the peers run under the same setting
    if arguments.peer:
        print(json.dumps(run_peer(arguments.peer)))
        return
    print("attack on model: robust images, CPU seconds; the same of the peer; ratio of CPU times")
    for model in ("robust", "nominal"):
        ours = our_attack(model, 200, SEEDS, method="apgd", steps=40)
        for peer in ("torchattacks", "autoattack"):
            show(f"apgd {model}", "APGD-CE 40 steps", ours, peer)
    if not arguments.quick:
        for label, options in ((", plain", PLAIN), ("", {}), (", searched in bf16", FAST)):
            ours = our_attack("robust", 100, 2, method="autoattack", patience=20, **options)
            show("standard robust", f"AutoAttack standard{label}", ours, "autoattack")
        ours = our_attack("nominal", 100, 2, method="autoattack", patience=20)
        show("standard nominal", "AutoAttack standard", ours, "autoattack")


def show(case: str, label: str, ours: dict[str, float], peer: str) -> None:
    """One line: ours, the peer's, and the ratio of CPU times."""
    theirs, how = peer_cost(f"{peer} {case}")
    ratio = ours["seconds"] / theirs["seconds"]
    print(
        f"{label} on {case.split()[-1]}: {ours['robust']:.1f}/{ours['n']:.0f}, "
        f"{ours['seconds']:.2f} s; {peer} {theirs['robust']:.1f}, {theirs['seconds']:.2f} s; "
        f"{ratio:.2f} (wanted: at most {LIMITS[case]}; peer {how})",
        flush=True,
    )


@cache
def peer_cost(case: str) -> tuple[dict[str, float], str]:
    """What the peer needs, run here or from the record."""
    python = os.environ.get("STOCKPOT_PEER_PYTHON", "").strip()
    if python:
        command = [python, __file__, "--peer", case]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return found, f"measured, {found['passes']:.1f} bare passes"
    passes, robust = RECORDED[case]
    seconds = passes * bare_pass(case.split()[-1], 100 if "standard" in case else 200)
    return {"seconds": seconds, "robust": robust}, "recorded"


def our_attack(model: str, count: int, seeds: int, **options: Any) -> dict[str, float]:
    """An attack of this library on the first images."""
    import stockpot

    images, labels = load_images(count)
    network = load_model(model)

    def run(seed: int) -> int:
        found = stockpot.attack(network, images, labels, eps="8/255", seed=1000 * seed, **options)
        return int(found.robust.sum())

    return over_seeds(run, count, seeds)


def run_peer(case: str) -> dict[str, float]:
    """In the peer's environment: its best time, robust images, and cost in bare passes."""
    peer, method, model = case.split()
    count = 100 if method == "standard" else 200
    images, labels = load_images(count)
    network = load_model(model)

    def standing(seed: int) -> int:
        worst = peer_attack(peer, method, network, seed)(images, labels)
        with torch.no_grad():
            return int((network(worst).argmax(dim=1) == labels).sum())

    bare = bare_pass(model, count)
    result = over_seeds(standing, count, 2 if method == "standard" else SEEDS)
    bare = min(bare, bare_pass(model, count))
    return result | {"passes": result["seconds"] / bare}


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


def bare_pass(model: str, count: int) -> float:
    """CPU seconds of one forward and backward pass over the images, as plain as can be."""
    network, (images, _) = load_model(model), load_images(count)

    def once() -> float:
        pixels = images.clone().requires_grad_()
        start = time.process_time()
        torch.autograd.grad(network(pixels).sum(), pixels)
        return time.process_time() - start

    return min(once() for _ in range(20))


def over_seeds(run: Callable[[int], int], count: int, seeds: int) -> dict[str, float]:
    """The least CPU time of a run, and the mean of what runs find."""
    times, found = [], []
    for seed in range(seeds):
        start = time.process_time()
        found.append(run(seed))
        times.append(time.process_time() - start)
    return {"seconds": min(times), "robust": sum(found) / seeds, "n": count}


if __name__ == "__main__":
    main()

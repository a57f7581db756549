"""AutoAttack and APGD on a GPU beside their authors' program: `attacks.py --device cuda`.

FOLDER of `--peers` holds the package `autoattack` (github.com/fra31/auto-attack) and, for APGD,
`torchattacks`; they run in this process, on the same network and images, with TF32 convolutions
like ours. The network is a ResNet-18 (11.2 M weights), trained here against two-step attacks for
about half a minute where `--weights FILE` does not exist yet. `--cifar cifar10.npz` has uint8
`train_images` (10,000 or more), `test_images` and their labels; without it
`load_dataset("cifar10")` is asked. Times are of the clock, captures of graphs included; libraries
were made ready by a pass before.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import stockpot
from parts.passes_of_an_attack import Bare, bare_passes, share_with_gradient
from parts.stages import print_each
from parts.watched import now
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.engine import device_name
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.stages import timed
from stockpot.types import ImageSize

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
EPS = 8 / 255
WANTED = 0.4
FAST = {"precision": "bf16"}
WAYS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "searched in bf16": FAST,
    "bf16, patience 20": FAST | {"patience": 20},
}


def main(options: argparse.Namespace) -> None:
    """One line per comparison, each printed as soon as it is known."""
    device = torch.device(options.device)
    print(f"{device_name(device)}, torch {torch.__version__}", flush=True)
    data = pictures(options.cifar)
    network = resnet18(data, options.weights, options.device)
    images = (data["test_images"][: options.images].to(device).float() / 255).contiguous()
    labels = data["test_labels"][: options.images].to(device)
    pixels = images.clone().requires_grad_()
    logits = network(pixels)
    torch.autograd.grad(logits.sum(), pixels)
    clean = float((logits.argmax(dim=1) == labels).float().mean())
    print(f"ResNet-18, {len(images)} images of CIFAR-10, clean accuracy {clean:.1%}", flush=True)
    sys.path.insert(0, str(options.peers))
    bare = bare_passes(network, images)
    apgd(network, images, labels, bare)
    if not options.quick:
        autoattack(network, images, labels, bare)


def apgd(network: nn.Module, images: Tensor, labels: Tensor, bare: Bare) -> None:
    """APGD-CE of 100 steps."""
    whole: dict[str, Any] = {"eps": "8/255", "steps": 100, "check": False}
    ways = {"as it comes": {}, "folded, bf16": FAST | {"forward": "folded"}}
    against("APGD-CE, 100 steps", network, images, labels, bare, whole, ways, peer_apgd(network))


def autoattack(network: nn.Module, images: Tensor, labels: Tensor, bare: Bare) -> None:
    """AutoAttack's standard version: ours in several ways, then the authors'."""
    whole: dict[str, Any] = {"eps": "8/255", "method": "autoattack"}
    peers = peer_autoattack(network)
    against("AutoAttack standard", network, images, labels, bare, whole, WAYS, peers)


def against(
    label: str,
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    bare: Bare,
    whole: dict[str, Any],
    ways: dict[str, dict[str, Any]],
    peers: dict[str, Callable[[Tensor, Tensor], Tensor]],
) -> None:
    """Every way of ours to its floor, and then to every peer that is at hand."""
    sloped = share_with_gradient(
        network, images, labels, **{k: v for k, v in whole.items() if k != "check"}
    )
    found = {}
    for way, more in ways.items():
        begin = now(images.device.type)
        with timed() as clock:
            result = stockpot.attack(network, images, labels, **whole, **more)
            stages = clock.taken()
        seconds = now(images.device.type) - begin
        passes = int(result.queries.sum())
        floor = bare.seconds(passes, sloped)
        found[way] = result.robust, seconds
        show(f"stockpot.attack, {label}, {way}", result.robust, seconds)
        print(f"  {passes:,} passes, {sloped:.0%} with a gradient, take {floor:.2f} s bare: "
              f"{seconds / floor:.2f} of the floor", flush=True)  # fmt: skip
        print_each(stages, floor, "floor")
        if result.stages:
            stages = {name: int(mask.sum()) for name, mask in result.stages.items()}
            print(f"  standing after each: {stages}, disputed {result.flags.disputed}", flush=True)
    for name, run in peers.items():
        robust, seconds = took(run, images, labels)
        show(f"{label}, {name}", robust, seconds)
        for way, (mask, own) in found.items():
            print(f"  ours {way}: {compared(mask, own, robust, seconds)}", flush=True)


def peer_apgd(network: nn.Module) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """APGD-CE of the authors and of torchattacks, as far as they are at hand."""
    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
    with missing_is_told():
        from autoattack.autopgd_base import APGDAttack

        theirs = APGDAttack(
            network,
            n_iter=100,
            norm="Linf",
            eps=EPS,
            n_restarts=1,
            loss="ce",
            device=device_of(network),
            seed=0,
        )
        found["the authors'"] = lambda x, y: standing(network, theirs.perturb(x, y), y)
    with missing_is_told():
        import torchattacks

        others = torchattacks.APGD(network, norm="Linf", eps=EPS, steps=100, seed=0)
        found["torchattacks"] = lambda x, y: standing(network, others(x, y), y)
    return found


def peer_autoattack(network: nn.Module) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The authors' program, all images in one batch, which is the fastest for it."""
    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
    with missing_is_told():
        from autoattack import AutoAttack

        found["its authors'"] = lambda x, y: run(x, y)

    def run(images: Tensor, labels: Tensor) -> Tensor:
        whole = AutoAttack(
            network,
            norm="Linf",
            eps=EPS,
            version="standard",
            device=device_of(network),
            verbose=True,
            seed=0,
        )
        worst = whole.run_standard_evaluation(images, labels, bs=len(images))
        return standing(network, worst, labels)

    return found


@contextlib.contextmanager
def missing_is_told() -> Iterator[None]:
    """A peer that is not at hand costs a line and no more."""
    try:
        yield
    except ImportError as error:
        print(f"no peer: {error}; --peers FOLDER says where it is", flush=True)


def device_of(network: nn.Module) -> str:
    """Where a network is, as the peers want to be told."""
    return next(network.parameters()).device.type


@torch.no_grad()
def standing(network: nn.Module, worst: Tensor, labels: Tensor) -> Tensor:
    """Who is still classified rightly."""
    return network(worst).argmax(dim=1) == labels


def took(
    run: Callable[[Tensor, Tensor], Tensor], images: Tensor, labels: Tensor
) -> tuple[Tensor, float]:
    """Who stands, and the seconds that it took."""
    device = images.device.type
    with contextlib.redirect_stdout(io.StringIO()):
        begin = now(device)
        robust = run(images, labels)
        return robust, now(device) - begin


def show(label: str, robust: Tensor, seconds: float) -> None:
    """One line."""
    print(f"{label}: {int(robust.sum())} of {len(robust)} robust, {seconds:.2f} s", flush=True)


def compared(ours: Tensor, seconds: float, theirs: Tensor, other: float) -> str:
    """The ratio of times, and how the images differ."""
    gap = int(ours.sum()) - int(theirs.sum())
    return (
        f"{seconds / other:.2f} of its time (wanted: at most {WANTED}); robust images {gap:+d} "
        f"(wanted: within one), {int((ours != theirs).sum())} differ"
    )


def pictures(file: Path | None) -> dict[str, Tensor]:
    """CIFAR-10 from a file, or as `load_dataset` knows it."""
    if file is not None:
        with np.load(file) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    found = {}
    for split in ("train", "test"):
        data = stockpot.load_dataset("cifar10", split=split)
        found[f"{split}_images"] = next(data.batches(len(data))).images
        found[f"{split}_labels"] = data.labels
    return found


def resnet18(data: dict[str, Tensor], weights: Path | None, device: str) -> nn.Module:
    """A robust ResNet-18: read where it was saved, else trained and saved."""
    square = ImageSize(32, 32)
    model = new_huggingface(
        "small_resnet", classes=CLASSES, preprocess=Preprocess(square, square), seed=0,
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2] * 4, layer_type="basic",
    )  # fmt: skip
    if weights is not None and weights.exists():
        state = torch.load(weights, weights_only=True)
        model.load_state_dict({key: value.float() if value.is_floating_point() else value
                               for key, value in state.items()})  # fmt: skip
        return model.to(device).eval()
    start = time.perf_counter()
    training = Dataset(
        name="cifar10", split="train", images=TensorImages(data["train_images"]),
        labels=data["train_labels"].long(), classes=CLASSES, fingerprint="as given",
    )  # fmt: skip
    stockpot.harden(
        "adversarial", model, training, device=device, steps=2, epochs=12, batch_size=250, lr=0.002,
        precision="bf16",
    )  # fmt: skip
    print(f"trained for {time.perf_counter() - start:.0f} s", flush=True)
    model = model.to(device).eval()
    if weights is not None:
        state = {key: value.half() if value.is_floating_point() else value
                 for key, value in model.state_dict().items()}  # fmt: skip
        torch.save(state, weights)
        model.load_state_dict(state)  # as it was saved
    return model

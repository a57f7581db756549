"""Images per second of the dynamic search, and where the time goes.

    python benchmarks/dynamic.py                             # two cores: small sizes
    python benchmarks/dynamic.py --device cuda --full        # 10,000 CIFAR-10 images, budget 50

The model under test is a ResNet-18 (11 M parameters), the generator the zoo's small VQGAN, the
oracle the zoo's dual encoder. Weights of the ResNet do not matter for its speed, so it is a new one
unless `--model` names another. Two questions: how long a whole test set takes, with the shares of
generator, model, oracle and gradient, and how much a batch gains over one image at a time (wanted:
at least 20 times).
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor

from stockpot.datasets.load import load_dataset
from stockpot.dynamic.generators import generators
from stockpot.dynamic.oracle import Oracle, Setting
from stockpot.dynamic.oracles import oracles
from stockpot.dynamic.search import search
from stockpot.dynamic.stopwatch import Stopwatch
from stockpot.dynamic.task import Rules, Task
from stockpot.errors import UserError
from stockpot.models.classifier import Classifier
from stockpot.models.device import device_name, pick_device
from stockpot.models.huggingface import new_huggingface
from stockpot.models.load import load_model
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def main() -> None:
    """Print one line per question."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--full", action="store_true", help="10,000 images, budget 50")
    parser.add_argument("--model", default="", help="a CIFAR-10 model; a new ResNet-18 otherwise")
    parser.add_argument("--autoencoder", default="small-vqgan")
    parser.add_argument("--oracle", default="clip-base", help="a dual encoder, or none")
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--precision", default="bf16")
    options = parser.parse_args()
    device = pick_device(options.device)
    on_gpu = device.type == "cuda"
    torch.set_num_threads(torch.get_num_threads() if on_gpu else 1)
    print(f"{device_name(device)}, torch {torch.__version__}")
    whole(options, device, 10_000 if options.full else 16, 50 if options.full else 4)
    batched(options, device)


def whole(options: argparse.Namespace, device: torch.device, count: int, budget: int) -> None:
    """A test set from end to end, and the shares of its parts."""
    pixels, labels = pictures(count, 32)
    precision = options.precision if device.type == "cuda" else "fp32"
    model = network(options.model, 32, (64, 128, 256, 512)).to(device).eval().requires_grad_(False)
    task = Task(
        model,
        generators.get("vqgan")(autoencoder=options.autoencoder).to(device),
        judge(options.oracle, device),
        Rules(budget=budget, step=0.01, precision=precision),
    )
    size = min(options.batch, count)
    run(task, pixels[:size], labels[:size], device, size, budget=2)  # warm up
    start = time.perf_counter()
    validated, accepted = run(task, pixels, labels, device, size)
    seconds = time.perf_counter() - start
    print(
        f"{count} images of 32 px, budget {budget}, {precision}, batches of {size}: "
        f"{seconds:.1f} s, {count / seconds:.1f} images/s; {validated} validated, "
        f"{accepted} candidates accepted (wanted on an H200: 10,000 in under 180 s)"
    )
    # The oracle may refuse early and spare work: without one, every image uses its whole budget.
    trusting = Task(task.model, task.generator, None, task.rules)
    part = min(count, size)
    start = time.perf_counter()
    run(trusting, pixels[:part], labels[:part], device, size)
    seconds = time.perf_counter() - start
    print(f"  no oracle, nothing spared: {part} images in {seconds:.1f} s, {part / seconds:.1f}/s")
    task.watch = Stopwatch(device)
    run(task, pixels[:part], labels[:part], device, size)
    total = sum(task.watch.seconds.values())
    shares = ", ".join(f"{k} {v / total:.0%}" for k, v in sorted(task.watch.seconds.items()))
    print(f"  shares of the time: {shares}")


def batched(options: argparse.Namespace, device: torch.device) -> None:
    """The same images in one batch and one at a time, nothing refused."""
    on_gpu = device.type == "cuda"
    cases: list[tuple[str, int, int, int, Task]] = []
    budget = 10
    rules = Rules(budget=budget)
    if on_gpu:
        model = network(options.model, 32, (64, 128, 256, 512)).to(device).eval()
        maker = generators.get("vqgan")(autoencoder=options.autoencoder).to(device)
        task = Task(model.requires_grad_(False), maker, None, rules)
        cases.append(("ResNet-18 and small VQGAN, 32 px", 2000, 8, 32, task))
    # On a CPU a batch spares the cost of each call, not arithmetic: the gain falls with the size.
    for side in (8, 16):
        small = network("", side, (4, 8)).to(device).eval().requires_grad_(False)
        for name in ("colour", "frequency", "warp"):
            task = Task(small, generators.get(name)().to(device), None, rules)
            cases.append((f"a small ResNet and {name}, {side} px", 256, 16, side, task))
    for label, many, few, side, task in cases:
        pixels, labels = pictures(many, side)
        run(task, pixels, labels, device, many, budget=2)
        together = min(timed(task, pixels, labels, device, many) for _ in range(3)) / many
        alone = min(timed(task, pixels[:few], labels[:few], device, 1) for _ in range(2)) / few
        print(
            f"{label}: {1000 * together:.3f} ms/image in a batch of {many}, "
            f"{1000 * alone:.2f} ms one at a time: {alone / together:.0f} times (wanted: 20)"
        )


def timed(task: Task, pixels: Tensor, labels: Tensor, device: torch.device, size: int) -> float:
    """Seconds of one pass: of the processor on a CPU, which others may share; else of the wall."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    start = clock()
    run(task, pixels, labels, device, size)
    return clock() - start


def run(
    task: Task,
    pixels: Tensor,
    labels: Tensor,
    device: torch.device,
    size: int,
    budget: int | None = None,
) -> tuple[int, int]:
    """Search all images in batches; how many were validated, and candidates accepted."""
    if budget is not None:
        task = Task(
            task.model,
            task.generator,
            task.oracle,
            Rules(budget=budget, precision=task.rules.precision),
        )
    validated = accepted = 0
    for start in range(0, len(pixels), size):
        part = pixels[start : start + size].to(device).float() / 255
        target = labels[start : start + size].to(device)
        seeds = torch.arange(start, start + len(part), device=device)
        found = search(task, part, target, target, seeds=seeds)
        validated += int(found.validated.sum())
        accepted += int(found.accepted.sum())
    if device.type == "cuda":
        torch.cuda.synchronize()
    return validated, accepted


def pictures(count: int, side: int) -> tuple[Tensor, Tensor]:
    """CIFAR-10 test images where they are at hand, else noise."""
    if side == 32:
        try:
            data = load_dataset("cifar10", split="test", limit=count)
            return next(data.batches(count)).images, data.labels
        except UserError as problem:
            print(f"CIFAR-10 is not here ({problem}); noise instead")
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 3, side, side), generator=generator).to(torch.uint8)
    return pixels, torch.arange(count) % 10


def network(source: str, side: int, widths: tuple[int, ...]) -> Classifier:
    """The named model, or a new residual network."""
    if source:
        return load_model(source)
    square = ImageSize(side, side)
    return new_huggingface(
        "small_resnet",
        classes=CLASSES,
        preprocess=Preprocess(square, square),
        seed=0,
        embedding_size=widths[0],
        hidden_sizes=list(widths),
        depths=[2] * len(widths) if side == 32 else [1] * len(widths),
        layer_type="basic",
    )


def judge(model: str, device: torch.device) -> Oracle | None:
    """The zero-shot oracle, where its model is at hand."""
    if model == "none":
        return None
    return oracles.get("zero_shot")(Setting(CLASSES, device=device), model=model)


if __name__ == "__main__":
    main()

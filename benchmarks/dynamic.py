"""Images per second of the dynamic search, and where the time goes.

    python benchmarks/dynamic.py                             # two cores: small sizes
    python benchmarks/dynamic.py --device cuda --full        # 10,000 CIFAR-10 images, budget 50

The model under test is a ResNet-18 (11 M parameters), the generator the zoo's small VQGAN, the
oracle the zoo's expert for CIFAR-10. Weights of the ResNet do not matter for its speed, so it is a
new one unless `--model` names another; against a new one every image is searched as long as the
oracle allows. Two questions: how long a whole test set takes, with the shares of generator, model
and oracle (forward and backward), and how much a batch gains over one image at a time (wanted: at
least 20 times). Both sides of the second question are the same function; one image at a time runs
with as many threads as suit it best. Beside it stands the floor: what the networks' own arithmetic
costs per image in a batch, which no search can go below.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import torch
from torch import Tensor

from stockpot.datasets.load import load_dataset
from stockpot.dynamic.generators import generators
from stockpot.dynamic.oracle import Oracle, Setting
from stockpot.dynamic.oracles import oracles
from stockpot.dynamic.search import search
from stockpot.dynamic.stopwatch import Stopwatch
from stockpot.dynamic.task import Model, Rules, Task
from stockpot.engine import device_name, pick_device
from stockpot.errors import UserError
from stockpot.models.classifier import Classifier
from stockpot.models.forward.folding import folded
from stockpot.models.huggingface import new_huggingface
from stockpot.models.load import load_model
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


RESNET_18 = (64, 128, 256, 512)
ROUNDS = 5


def main() -> None:
    """Print one line per question."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--full", action="store_true", help="10,000 images, budget 50")
    parser.add_argument("--count", type=int, default=0, help="another number of images")
    parser.add_argument("--model", default="", help="a CIFAR-10 model; a new ResNet-18 otherwise")
    parser.add_argument("--autoencoder", default="small-vqgan")
    parser.add_argument("--oracle", default="clip-cifar10", help="a dual encoder, or none")
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--precision", default="bf16", help="on a GPU; a CPU searches in fp32")
    parser.add_argument("--threads", type=int, default=0, help="of a CPU; all when left out")
    parser.add_argument("--limit", type=float, default=180, help="seconds for the whole test set")
    parser.add_argument("--parts", default="whole,batched")
    options = parser.parse_args()
    device = pick_device(options.device)
    torch.set_num_threads(options.threads or torch.get_num_threads())
    print(f"{device_name(device)}, torch {torch.__version__}", flush=True)
    count = options.count or (10_000 if options.full else 16)
    if "whole" in options.parts:
        whole(options, device, count, 50 if options.full else 4)
    if "batched" in options.parts:
        batched(options, device)


def whole(options: argparse.Namespace, device: torch.device, count: int, budget: int) -> None:
    """A test set from end to end, and the shares of its parts."""
    pixels, labels = pictures(count, 32)
    precision = options.precision if device.type == "cuda" else "fp32"
    task = Task(
        prepared(network(options.model, 32, RESNET_18), 32, device),
        generators.get("vqgan")(autoencoder=options.autoencoder).to(device),
        judge(options.oracle, device),
        Rules(budget=budget, step=0.01, precision=precision),
    )
    size = min(options.batch, count)
    run(brief(task), pixels[:size], labels[:size], device, size)  # warm up
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    validated = accepted = done = 0
    while done < count and time.perf_counter() - start < options.limit:
        part = slice(done, done + size)
        found = run(task, pixels[part], labels[part], device, size)
        validated, accepted = validated + found[0], accepted + found[1]
        done = min(done + size, count)
    seconds = time.perf_counter() - start
    print(
        f"{done} images of 32 px, budget {budget}, {precision}, batches of {size}: "
        f"{seconds:.1f} s, {done / seconds:.1f} images/s, {accepted / seconds:.0f} accepted "
        f"candidates/s; {validated} validated, {accepted} candidates accepted "
        "(wanted on an H200: 10,000 in under 180 s)",
        flush=True,
    )
    if done < count:
        print(f"  stopped at the limit; {count} images would take {seconds * count / done:.0f} s")
    if device.type == "cuda":
        print(f"  peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)
    # The oracle may refuse early and spare work: without one, every image uses its whole budget.
    part = slice(0, size)
    trusting = replace(task, oracle=None)
    start = time.perf_counter()
    run(trusting, pixels[part], labels[part], device, size)
    seconds = time.perf_counter() - start
    print(
        f"  no oracle, nothing spared: {size} images in {seconds:.1f} s, {size / seconds:.1f}/s",
        flush=True,
    )
    watched = replace(task, watch=Stopwatch(device))
    start = time.perf_counter()
    run(watched, pixels[part], labels[part], device, size)
    seconds = time.perf_counter() - start
    spent = watched.watch.seconds
    spent["the search itself"] = seconds - sum(spent.values())
    shares = ", ".join(f"{name} {value / seconds:.0%}" for name, value in spent.items())
    print(f"  shares of the time of {size} images: {shares}", flush=True)


def batched(options: argparse.Namespace, device: torch.device) -> None:
    """The same images in one batch and one at a time, nothing refused."""
    cases: list[tuple[str, int, int, Task]] = []
    rules = Rules(budget=10)
    if device.type == "cuda":
        model = prepared(network(options.model, 32, RESNET_18), 32, device)
        maker = generators.get("vqgan")(autoencoder=options.autoencoder).to(device)
        half = replace(rules, precision=options.precision)
        cases.append(("ResNet-18 and small VQGAN, 32 px", options.batch, 32,
                      Task(model, maker, None, half)))  # fmt: skip
    for side in (8, 16):
        small = prepared(network("", side, (4, 8)), side, device)
        for name in ("colour", "frequency", "warp"):
            task = Task(small, generators.get(name)().to(device), None, rules)
            cases.append((f"a small ResNet and {name}, {side} px", 256, side, task))
    for label, many, side, task in cases:
        pixels, labels = pictures(many, side)
        few, all_threads = 8, torch.get_num_threads()
        run(brief(task), pixels, labels, device, many)
        together, alone = [], []
        for _ in range(ROUNDS):  # by turns, so that both meet the same other work
            together.append(timed(task, pixels, labels, device, many) / many)
            alone.append(timed(task, pixels[:few], labels[:few], device, 1) / few)
            if device.type == "cpu" and all_threads > 1:
                torch.set_num_threads(1)
                alone.append(timed(task, pixels[:few], labels[:few], device, 1) / few)
                torch.set_num_threads(all_threads)
        least = floor(task, pixels, device) / many
        print(
            f"{label}: {1000 * min(together):.3f} ms/image in a batch of {many}, "
            f"{1000 * min(alone):.2f} ms one at a time: {min(alone) / min(together):.0f} times "
            f"(wanted: 20); the networks alone {1000 * least:.3f} ms/image, so at most "
            f"{min(alone) / least:.0f} times",
            flush=True,
        )


def floor(task: Task, pixels: Tensor, device: torch.device) -> float:
    """Seconds of the bare arithmetic of a search: decode, look, and the gradient, of a batch."""
    images = pixels.to(device).float() / 255
    targets = torch.zeros(len(images), dtype=torch.long, device=device)
    with torch.no_grad():
        encoded = task.generator.encode(images, targets)
    start, best = 0.0, float("inf")
    for _ in range(ROUNDS):
        start = now(device)
        latents = encoded.latents.float().requires_grad_(True)
        made = task.decode(latents, encoded.context)
        task.gradient(task.losses(made, targets)[0], made, latents)
        best = min(best, now(device) - start)
    return best * (task.rules.budget - 1)


def timed(task: Task, pixels: Tensor, labels: Tensor, device: torch.device, size: int) -> float:
    """Seconds of one pass."""
    start = now(device)
    run(task, pixels, labels, device, size)
    return now(device) - start


def now(device: torch.device) -> float:
    """The time when the device has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def brief(task: Task) -> Task:
    """The same with a budget of two."""
    return replace(task, rules=replace(task.rules, budget=2))


def run(
    task: Task, pixels: Tensor, labels: Tensor, device: torch.device, size: int
) -> tuple[int, int]:
    """Search all images in batches; how many were validated, and candidates accepted."""
    validated = accepted = 0
    for start in range(0, len(pixels), size):
        part = pixels[start : start + size].to(device).float() / 255
        target = labels[start : start + size].to(device)
        seeds = torch.arange(start, start + len(part), device=device)
        found = search(task, part, target, target, seeds=seeds)
        validated += int(found.validated.sum())
        accepted += int(found.accepted.sum())
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


def prepared(model: Classifier, side: int, device: torch.device) -> Model:
    """As the measure has it: no weight gradients, norms folded, NHWC."""
    model = model.to(device).eval().requires_grad_(False)
    return folded(model, torch.rand(8, 3, side, side, device=device))


def judge(model: str, device: torch.device) -> Oracle | None:
    """The zero-shot oracle, where its model is at hand."""
    if model == "none":
        return None
    return oracles.get("zero_shot")(Setting(CLASSES, device=device), model=model)


if __name__ == "__main__":
    main()

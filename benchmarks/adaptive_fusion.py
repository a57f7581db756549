"""A step of layer-wise AdaMerging against a forward and backward pass of one model.

    python benchmarks/adaptive_fusion.py                      # a small tower, for any machine
    python benchmarks/adaptive_fusion.py --family vit-b32 --device cuda
    python benchmarks/adaptive_fusion.py --family vit-b32 --batch 1 --quick   # on a CPU

Eight towers, sixteen images of each task per step. One model is timed on the same images, in the
same batches of sixteen and in one batch of all; both are taken in turns with ours, so that they
meet the same machine. Ours also draws the images, forms the mix, gathers the gradient of the
coefficients and steps; the one model only runs forward and backward, its images on the device.
Weights are random: time and memory do not depend on them. The last two rows say what a step with a
mask (concrete) and one of weight ensembling cost. On a CPU the time is that of the processor, one
thread, whatever else the machine does. Memory is what is held beside the members' files: base,
changes, weights and gradient, and what a step needs on top at its peak.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.checkpoints.alignment import align
from stockpot.checkpoints.state_dict import StateDictSource
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.fuse.adaptive.descent import spread, start
from stockpot.fuse.adaptive.entropy import Adaptation, entropy
from stockpot.fuse.adaptive.mask import Mask
from stockpot.fuse.learning.task_pool import Task, TaskPool
from stockpot.fuse.modules.blocks import mlp_blocks
from stockpot.fuse.stream import Stream
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.modules.weight_ensemble import Router, mix_block
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

FAMILIES: dict[str, dict[str, int]] = {
    "small": {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 8,
              "num_attention_heads": 4, "image_size": 64, "patch_size": 8, "projection_dim": 128},
    "vit-b32": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
                "num_attention_heads": 12, "image_size": 224, "patch_size": 32,
                "projection_dim": 512},
}  # fmt: skip
CLASSES = tuple(f"class {index}" for index in range(50))


class Tower(nn.Module):
    """A CLIP vision tower with its projection, and a head of unit vectors."""

    def __init__(self, settings: dict[str, int]) -> None:
        super().__init__()
        from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = CLIPVisionModelWithProjection(CLIPVisionConfig(**settings))
        self.head: Tensor
        self.register_buffer("head", new_head(settings["projection_dim"], 0))

    def forward(self, pixels: Tensor) -> Tensor:
        found = self.model(pixel_values=pixels).image_embeds
        return 100 * F.normalize(found, dim=-1) @ self.head.T


def new_head(width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(len(CLASSES), width, generator=generator), dim=-1)


def make_pool(settings: dict[str, int], count: int, images: int, device: str) -> TaskPool:
    side = ImageSize(settings["image_size"], settings["image_size"])
    plain = Preprocess(side, side, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    model = Classifier(Tower(settings), plain, CLASSES, Origin("tower", "Tower", "0" * 64))
    state = {
        name: value.clone()
        for name, value in model.network.model.state_dict().items()
        if value.is_floating_point() and "visual_projection" not in name
    }
    members = []
    for index in range(count):
        # Any change will do, and this is quicker to make than noise.
        changed = {name: value + 0.1 * (value * 40 + index).sin() for name, value in state.items()}
        members.append(StateDictSource(changed, label=f"m{index}"))
    aligned = align(members, StateDictSource(state, label="base"))
    tasks = []
    for index in range(count):
        generator = torch.Generator().manual_seed(100 + index)
        shape = (images, 3, *side)
        pixels = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        data = Dataset(f"t{index}", "test", TensorImages(pixels),
                       torch.zeros(images, dtype=torch.long), CLASSES, "0" * 64)  # fmt: skip
        own = {"network.head": new_head(settings["projection_dim"], index).to(device)}
        tasks.append(Task(f"t{index}", data, CLASSES, own))
    names = [row.name for row in aligned.rows]
    places = [f"network.model.{name}" for name in names]
    return TaskPool(Stream(aligned, device), model, places, tasks, [m.label for m in members])


def milliseconds(work: Callable[[], Any], device: str, repeats: int) -> float:
    found = []
    clock = time.process_time if device == "cpu" else time.perf_counter
    for _ in range(repeats):
        _wait(device)
        begin = clock()
        work()
        _wait(device)
        found.append(1000 * (clock() - begin))
    return statistics.median(found)


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def peak(work: Callable[[], Any], device: str, held: float) -> float | None:
    """Gigabytes at most while it works: what is held, and what comes on top."""
    if device == "cpu":
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier work freed
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        except OSError:
            return None
        before = _resident("VmRSS")
        work()
        return held + (_resident("VmHWM") - before)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() / 1e9
    work()
    return held + torch.cuda.max_memory_allocated() / 1e9 - before


def _resident(key: str) -> float:
    """VmRSS or VmHWM of this process, in gigabytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1e6
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=FAMILIES, default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=600, help="no new round after these")
    parser.add_argument("--quick", action="store_true", help="one model and adamerging only")
    parser.add_argument("--json", help="also write the figures there")
    given = parser.parse_args()
    if given.device == "cpu":
        torch.set_num_threads(1)
    settings, device, count = FAMILIES[given.family], given.device, given.members
    pool = make_pool(settings, count, 64, device)
    pool.deltas  # noqa: B018
    size = 4 * len(pool.flat) / 1e9
    held = size * (count + 3)
    # What both sides run: the working model, with gradients for its fused weights.
    batches = [next(task.draws(given.batch, 0, pool.model.preprocess.fit)) for task in pool.tasks]
    batches = [pool.seen(batch) for batch in batches]
    whole = torch.cat(batches)
    pool.adopt(pool.tasks[0])
    network = pool.model.network

    def one_model() -> None:
        for batch in batches:
            entropy(network(batch)).backward()  # type: ignore[no-untyped-call]

    def one_model_at_once() -> None:
        entropy(network(whole)).backward()  # type: ignore[no-untyped-call]

    def stepper(together: int) -> Callable[[], None]:
        free = start(pool, "layer", 0.3).requires_grad_(True)
        adam = torch.optim.Adam([free], lr=1e-3)
        adaptation = Adaptation(pool, pool.tasks, given.batch, 0, together)

        def step() -> None:
            pool.form(spread(pool, free.detach()))
            pool.zero_gradient()
            adaptation.backward()
            free.grad = pool.pull()
            adam.step()

        return step

    mask = Mask(pool, 0.5, 0)
    mask.mix(spread(pool, start(pool, "task", 0.3)))
    outer = torch.optim.Adam([mask.logits], lr=1e-3)
    masked = Adaptation(pool, pool.tasks, given.batch, 0, count)

    def mask_step() -> None:
        mask.draw()
        mask.form()
        pool.zero_gradient()
        masked.backward()
        mask.logits.grad = mask.gradient()
        outer.step()

    works: dict[str, Callable[[], None]] = {
        f"one model, {count} x {given.batch}": one_model,
        f"one model, {count * given.batch} at once": one_model_at_once,
        "adamerging, together=1": stepper(1),
        f"adamerging, together={count}": stepper(count),
        f"concrete, together={count}": mask_step,
    }
    if given.quick:
        works = dict(list(works.items())[:3:2])
    for work in works.values():
        work()  # warm
    rounds: dict[str, list[float]] = {name: [] for name in works}
    begin = time.perf_counter()
    for _ in range(given.repeats):
        if time.perf_counter() - begin > given.seconds:
            break
        for name, work in works.items():
            rounds[name].append(milliseconds(work, device, 1))
    times = {name: statistics.median(values) for name, values in rounds.items()}
    peaks = {name: peak(work, device, held) for name, work in works.items()}
    if not given.quick:
        times["wemoe, together=1"] = wemoe_time(pool, given.batch, device, given.repeats)
    report(given, pool, times, peaks, size, held)


def wemoe_time(pool: TaskPool, batch: int, device: str, repeats: int) -> float:
    for weight in pool.model.parameters():
        weight.requires_grad_(False)
    routers = []
    for block in mlp_blocks(pool):
        router = Router(block.width, len(pool), depth=2, init=0.3, seed=0).to(pool.device)
        mix_block(pool.model.network, block.path, block.changes(pool), router, "image")
        routers.append(router)
    adam = torch.optim.Adam([w for router in routers for w in router.parameters()], lr=1e-4)
    adaptation = Adaptation(pool, pool.tasks, batch, 0)

    def step() -> None:
        adam.zero_grad()
        adaptation.backward()
        adam.step()

    step()
    return milliseconds(step, device, repeats)


def report(
    given: argparse.Namespace, pool: TaskPool, times: dict[str, float],
    peaks: dict[str, float | None], size: float, held: float,
) -> None:  # fmt: skip
    parts = next(iter(times.values()))
    at_once = float("nan") if given.quick else list(times.values())[1]
    print(
        f"{given.family}, {given.members} members, {len(pool.flat) / 1e6:.1f} M weights each, "
        f"{given.members} x {given.batch} images, {given.device}, torch {torch.__version__}"
    )
    print(f"held: base, changes, weights, gradient = {given.members + 3} x {size:.2f} GB = "
          f"{held:.2f} GB")  # fmt: skip
    print(f"{'':28} {'ms':>8} {'x same batches':>15} {'x at once':>10} {'peak GB':>8}")
    for name, value in times.items():
        top = peaks.get(name)
        shown = f"{top:8.2f}" if top is not None else "       -"
        print(f"{name:28} {value:8.1f} {value / parts:15.2f} {value / at_once:10.2f} {shown}")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as stream:
            json.dump({"times_ms": times, "peaks_gb": peaks, "held_gb": held,
                       "settings": vars(given)}, stream, indent=1)  # fmt: skip


if __name__ == "__main__":
    main()

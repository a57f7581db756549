"""A counterfactual step against a vanilla step on the same model and batch, with its parts.

    python benchmarks/counterfactual.py                               # the zoo's size, 64 px
    python benchmarks/counterfactual.py --family b16 --device cuda --precision bf16

A step is all of it: forward, backward, clipping and AdamW. Steps of all methods are taken in turns,
so that they meet the same machine; the figure is the median of the ratios of neighbours (on a CPU
of CPU time). The target is a ratio of at most 3.2. An untrained model of the right size is timed:
time does not depend on the weights, but the share of masked patches may, which only matters for
fill=none.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from stockpot.explain.relevance import explain_forward
from stockpot.harden import hardeners
from stockpot.harden.counterfactual.distil import frozen, outputs, taught
from stockpot.harden.counterfactual.masks import filled, object_cells
from stockpot.harden.counterfactual.partners import batch_partners
from stockpot.harden.objective import Step
from stockpot.harden.optimise import make_optimiser
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.fine_tuned import FineTunedNetwork
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

FAMILIES = {
    "small": ({"hidden_size": 160, "intermediate_size": 480, "num_hidden_layers": 6,
               "num_attention_heads": 5, "patch_size": 8, "projection_dim": 128}, 64, 10),
    "b16": ({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
             "num_attention_heads": 12, "patch_size": 16, "projection_dim": 512}, 224, 1000),
}  # fmt: skip
METHODS = {
    "no mask": {"mask": "none"},
    **{
        f"{mask} + {fill}": {"mask": mask, "fill": fill}
        for mask in ("random", "context", "object")
        for fill in ("none", "single", "multi")
    },
    "object + multi, other class": {"mask": "object", "fill": "multi", "source": "other_class"},
}


def classifier(family: str) -> Classifier:
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    settings, size, classes = FAMILIES[family]
    config = CLIPVisionConfig(image_size=size, **settings)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tower = CLIPVisionModelWithProjection(config)
        head = nn.Linear(settings["projection_dim"], classes)
    side = ImageSize(size, size)
    preprocess = Preprocess(side, side)
    names = tuple(str(number) for number in range(classes))
    network = FineTunedNetwork(tower, head, preprocess, names)
    return Classifier(network, preprocess, names, Origin(family, "CLIPVision", "0" * 64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--family", choices=list(FAMILIES), default="small")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    model = classifier(chosen.family).to(device).train()
    generator = torch.Generator().manual_seed(0)
    size = model.preprocess.size.height
    pixels = torch.rand(chosen.batch, 3, size, size, generator=generator).to(device)
    labels = torch.randint(0, len(model.classes), (chosen.batch,), generator=generator).to(device)
    optimiser = make_optimiser(model.parameters(), "adamw", 1e-6, 0.1, 0.9)

    def autocast() -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=chosen.precision == "bf16")

    def step_with(objective: Callable[[Step], torch.Tensor]) -> Callable[[], None]:
        def work() -> None:
            with autocast():
                loss = objective(Step(model, pixels, labels, torch.Generator().manual_seed(1), 0))
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()

        return work

    def seconds(work: Callable[[], object]) -> float:
        if device.type != "cuda":
            start = time.process_time()  # what else the machine does is not ours to pay
            work()
            return time.process_time() - start
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        work()
        torch.cuda.synchronize(device)
        return time.perf_counter() - start

    vanilla = step_with(hardeners.get("vanilla")())
    sys.stdout.reconfigure(line_buffering=True)  # a run that is cut short has said what it knew
    print(
        f"{chosen.family}, {size} px, {sum(p.numel() for p in model.parameters()):,} parameters, "
        f"batch {chosen.batch}, {chosen.precision}, {device}"
    )
    print(f"{'step':30} {'ms':>8} {'x vanilla':>10}")
    first = True
    for name, params in METHODS.items():
        work = step_with(hardeners.get("counterfactual")(**params))
        vanilla()
        work()
        pairs = [(seconds(vanilla), seconds(work)) for _ in range(chosen.repeats)]
        if first:
            plain = statistics.median(a for a, _ in pairs)
            print(f"{'vanilla':30} {1000 * plain:8.1f} {1:10.2f}")
            first = False
        ours = statistics.median(b for _, b in pairs)
        ratio = statistics.median(b / a for a, b in pairs)
        print(f"{name:30} {1000 * ours:8.1f} {ratio:10.2f}")

    print("\nparts of object + single")
    teacher = frozen(model)
    seen = pixels
    with autocast():
        cells = object_cells(explain_forward(model, pixels, labels).relevance, 0.3)
    partners = batch_partners(
        chosen.batch, 1, "single", torch.Generator().manual_seed(0), derange=False
    ).to(device)
    parts = {
        "clean forward": lambda: model(pixels),
        "clean forward with relevance": lambda: explain_forward(model, pixels, labels),
        "mask and fill": lambda: filled(pixels, pixels, cells, partners),
        "student on counterfactuals": lambda: outputs(model, seen),
        "teacher on counterfactuals": lambda: taught(teacher, seen),
    }
    for name, part in parts.items():
        with autocast():
            part()
            spent = statistics.median(seconds(part) for _ in range(chosen.repeats))
        print(f"{name:30} {1000 * spent:8.1f} {spent / plain:10.2f}")
    print("the rest of a step is the backward pass through both forward passes, and AdamW")


if __name__ == "__main__":
    main()

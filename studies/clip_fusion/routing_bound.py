"""What perfect routing of the MLPs could reach: how much of WEMoE's distance is its router's.

    python studies/clip_fusion/routing_bound.py

For each task: base + 0.3 x all changes outside the MLPs, as WEMoE leaves them, and inside the MLPs
the changes of the task's own expert alone, which is what a router that knew the task would choose
(`told`); beside it the same with all experts mixed at 0.3, where the routers start (`start`).
Validation images, 400 of each task.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

import stockpot
from stockpot.datasets.load import load_dataset
from stockpot.harden.selection import accuracy
from stockpot.models.load import load_for

ZOO = Path(stockpot.__file__).parent / "zoo" / "models"
EXPERTS = {
    "cifar10": "clip-cifar10",
    "mnist": "clip-mnist",
    "fashion_mnist": "clip-fashion",
    "quickdraw": "clip-quickdraw",
    "icons": "clip-icons",
}
SCALE = 0.3


def tower(name: str) -> dict[str, Tensor]:
    """The weights of a vision tower, by their names in it."""
    tensors = load_file(ZOO / name / "model.safetensors")
    found = {k.removeprefix("vision_model."): v.float() for k, v in tensors.items()}
    return {k: v for k, v in found.items() if not k.startswith(("text_", "visual_", "logit_"))}


def main() -> None:
    torch.set_num_threads(1)
    base = tower("clip-base")
    changes = {
        task: {k: v - base[k] for k, v in tower(name).items()} for task, name in EXPERTS.items()
    }
    for task in EXPERTS:
        data = load_dataset(task, split="val").limited(400)
        model = load_for("clip-base", data)
        shown = [f"{task:14} n={len(data)}  base {100 * accuracy(model, data):.1f}"]
        for label, told in (("start", False), ("told", True)):
            mixed = {
                name: value + SCALE * sum(change[name] for change in changes.values())
                if not (told and ".mlp." in name)
                else value + changes[task][name]
                for name, value in base.items()
            }
            model.network.vision_tower.load_state_dict(mixed, strict=False)  # type: ignore[union-attr,operator]
            shown.append(f"{label} {100 * accuracy(model, data):.1f}")
        model = load_for(EXPERTS[task], data)
        shown.append(f"expert {100 * accuracy(model, data):.1f}")
        print("  ".join(shown), flush=True)


if __name__ == "__main__":
    main()

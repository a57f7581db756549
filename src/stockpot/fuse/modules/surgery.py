"""Representation surgery on a layer-wise AdaMerging (Yang et al., arXiv:2402.02705)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.adaptive.adamerging import adamerging
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.coefficients import coefficient_fuser
from stockpot.fuse.learning.learner import Learned, ModuleFuser
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import Task, TaskPool
from stockpot.models.modules.surgery import corrected
from stockpot.types import Count, Natural, Positive, Seed

_AT_ONCE = 256
"""Images per pass where features are computed."""


@fusers.register(
    "surgery", paper="arXiv:2402.02705", needs_base=True, linear=True, learns=True, needs_data=True
)
def surgery(
    *,
    steps: Natural = 1000,
    lr: Positive = 1e-3,
    init: float = 0.3,
    rank: Count = 16,
    surgery_steps: Natural = 1000,
    surgery_lr: Positive = 1e-3,
    examples: Count = 4096,
    batch_size: Count = 16,
    together: Count = 1,
    seed: Seed = 0,
) -> ModuleFuser:
    """Layer-wise AdaMerging, and for each task a small correction of the features.

    z -> z - up(relu(down(z))), trained to bring the merged features near those of the task's own
    member in the L1 norm, on unlabelled images. The correction is that of the task whose classes
    the data has; other data sees the merged model as it is. The result is a module: a folder that
    `load_model` reads.

    Args:
        steps: steps of AdaMerging; none makes it task arithmetic.
        lr: its step size.
        init: its coefficients at the start.
        rank: the width of the correction.
        surgery_steps: steps of Adam for each correction.
        surgery_lr: their size.
        examples: images of each task whose features are compared, at most.
        batch_size: images of each task per step.
        together: tasks that share one pass in AdaMerging.
        seed: of the order of the images and of the corrections.
    """
    if rank < 1 or surgery_steps < 0 or examples < 1:
        raise BadParameterError(
            "surgery: expected rank >= 1, surgery_steps >= 0 and examples >= 1, got "
            f"{rank}, {surgery_steps} and {examples}."
        )
    merging = adamerging(
        layers="layer", steps=steps, lr=lr, init=init, batch_size=batch_size, together=together,
        seed=seed,
    )  # fmt: skip

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("surgery")
        merged = merging.learn(pool)
        coefficients = merged.tensors["coefficients"].to(pool.device)
        tensors = dict(merged.tensors)
        distances: dict[str, list[float]] = {}
        for index, task in enumerate(tasks):
            pool.progress("learning corrections", index, len(tasks))
            pool.load_member(index)
            wanted = _features(pool, task, examples, seed)
            pool.form(coefficients)
            found = _features(pool, task, examples, seed)
            down, up, before, after = _correct(
                found, wanted, rank=rank, steps=surgery_steps, lr=surgery_lr, size=batch_size,
                seed=seed * 1000 + index,
            )  # fmt: skip
            tensors |= {f"down.{index}": down.cpu(), f"up.{index}": up.cpu()}
            distances[task.name] = [before, after]
        return Learned(tensors, {**merged.facts, "distance": distances})

    def parts(pool: TaskPool, learned: Learned) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {k: v for k, v in learned.tensors.items() if k != "coefficients"}
        return tensors, {"rank": rank}

    return ModuleFuser(
        "surgery", learn, _fuser, parts, (*merging.held, Held(_AT_ONCE, backward=False))
    )


def _fuser(learned: Learned) -> TensorFuser:
    return coefficient_fuser(learned.facts["names"], learned.tensors["coefficients"])


@torch.no_grad()
def _features(pool: TaskPool, task: Task, examples: int, seed: int) -> Tensor:
    """Both networks are frozen, so that the features of an image need to be computed only once."""
    pool.adopt(task)
    parts = [
        pool.model.features(batch.images.to(pool.device)).float()
        for batch in task.sample(examples, _AT_ONCE, seed, pool.model.preprocess.fit)
    ]
    return torch.cat(parts)


def _correct(
    found: Tensor, wanted: Tensor, *, rank: int, steps: int, lr: float, size: int, seed: int
) -> tuple[Tensor, Tensor, float, float]:
    """Learn one correction; also the mean L1 distance before and after."""
    generator = torch.Generator().manual_seed(seed)
    width = found.shape[1]
    bound = 1 / math.sqrt(width)
    down = (torch.rand(rank, width, generator=generator) * 2 - 1) * bound
    down = down.to(found.device).requires_grad_(True)
    up = torch.zeros(width, rank, device=found.device, requires_grad=True)
    optimiser = torch.optim.Adam([down, up], lr=lr)
    before = float(F.l1_loss(found, wanted))
    for _ in range(steps):
        rows = torch.randint(len(found), (min(size, len(found)),), generator=generator)
        rows = rows.to(found.device)
        loss = F.l1_loss(corrected(found[rows], down, up), wanted[rows])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        after = float(F.l1_loss(corrected(found, down, up), wanted))
    return down.detach(), up.detach(), before, after

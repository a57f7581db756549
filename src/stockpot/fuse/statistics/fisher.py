"""Fisher merging: every weight counts by its Fisher information (arXiv:2111.09832)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from stockpot.checkpoints.layouts import plain_name
from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.statistics.information import Square, information
from stockpot.types import Count, Positive, Seed


@fusers.register("fisher", paper="arXiv:2111.09832", symmetric=True, learns=True, needs_data=True)
def fisher(
    *,
    examples: Count = 256,
    batch_size: Count = 32,
    square: Square = "sample",
    expectation: Literal["joint", "exact"] = "joint",
    normalize: bool = True,
    floor: Positive = 1e-6,
    weights: list[float] | None = None,
    chunk: Count = 8,
    seed: Seed = 0,
) -> DataFuser:
    """The mean of the members, each weight counted by its diagonal Fisher information.

    theta = sum_t c_t (F_t + floor) theta_t / sum_t c_t (F_t + floor), F_t from member t on its own
    task's images and its own predictions; labels are not read. c_t is the member's weight, over
    the L2 norm of F_t when normalised. Every member needs its data.

    Args:
        examples: images of each task.
        batch_size: images per batch.
        square: square the gradient of each image (sample), or, as FusionBench does, of the sum over
            a batch (batch), which is no Fisher information unless the batch is one image.
        expectation: over classes: one gradient of sum_c sqrt(p_c) log p_c (joint), or the sum of
            p_c times the square of each class's gradient (exact), at one backward pass per class.
        normalize: divide each member's information by its L2 norm, so that all count alike.
        floor: added to the information, so that nothing is divided by zero.
        weights: one number per member; all 1 by default.
        chunk: images whose gradients are held at once; each takes the memory of one model.
        seed: of the choice of images.
    """
    if square == "batch" and expectation == "exact":
        raise BadParameterError("fisher: expectation=exact is per image; expected square=sample.")

    def learn(pool: TaskPool) -> Learned:
        tensors: dict[str, Tensor] = {}
        norms = []
        tasks = pool.need_tasks("fisher")
        for index, task in enumerate(tasks):
            pool.progress("measuring information", index, len(tasks))
            pool.load_member(index)
            batches = task.sample(examples, batch_size, seed, pool.model.preprocess.fit)
            found = information(
                pool, task, batches, square=square, exact=expectation == "exact", chunk=chunk
            )
            norms.append(float(found.double().norm()))
            for name, part in pool.views(found).items():
                tensors[f"{index}.{plain_name(name)}"] = part.cpu().clone()
        return Learned(tensors, {"norms": norms, "examples": examples})

    def fuser(learned: Learned) -> TensorFuser:
        return fisher_fuser(
            learned.tensors,
            shares(learned.facts["norms"], weights, normalize=normalize, floor=floor),
            floor=floor,
        )

    # A gradient for each image of a chunk, their squares, and the information of every member.
    rows = min(chunk, batch_size) if square == "sample" else 1
    return DataFuser(learn, fuser, (Held(images=batch_size, copies=2 * rows + 2, of_each=1),))


def shares(
    norms: list[float], weights: list[float] | None, *, normalize: bool, floor: float
) -> list[float]:
    """The c_t: each member's weight, over the norm of its information when normalised."""
    given = weights or [1 / len(norms)] * len(norms)
    if not normalize:
        return list(given)
    inverse = [1 / (norm + floor) for norm in norms]
    return [w * value / sum(inverse) for w, value in zip(given, inverse, strict=True)]


def fisher_fuser(found: Mapping[str, Tensor], factors: list[float], *, floor: float) -> TensorFuser:
    """The weighted mean; `found` holds `member.tensor` -> information."""

    def merge(slab: Slab) -> Tensor:
        above = torch.zeros_like(slab.member(0))
        below = torch.zeros_like(above)
        for index, values in enumerate(slab.members()):
            held = found[f"{index}.{plain_name(slab.name)}"].to(values.device, values.dtype)
            weight = factors[index] * (held + floor)
            above += weight * values
            below += weight
        return above / below

    return TensorFuser(merge, keeps_equal=True)

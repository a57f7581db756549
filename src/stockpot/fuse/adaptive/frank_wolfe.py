"""Frank-Wolfe merging: steps towards the members that a gradient asks for (Chen, 2503.12649)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from stockpot.fuse import fusers
from stockpot.fuse.adaptive.adamerging import first_coefficients
from stockpot.fuse.adaptive.descent import Layers, descend
from stockpot.fuse.adaptive.entropy import Adaptation, entropy
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.bookmark import Values
from stockpot.fuse.learning.coefficients import coefficient_fuser
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import Task, TaskPool
from stockpot.types import Count, Natural, Positive, Seed

Loss = Literal["labels", "entropy"]


@fusers.register(
    "fw_hard",
    paper="arXiv:2503.12649",
    needs_base=True,
    linear=True,
    learns=True,
    needs_data=True,
)
def fw_hard(
    *,
    steps: Natural = 10,
    step_size: Positive = 0.1,
    scale: float = 0.3,
    init: float | str = 0.3,
    layers: Layers = "task",
    loss: Loss = "labels",
    examples: Count = 100,
    batch_size: Count = 32,
    seed: Seed = 0,
) -> DataFuser:
    """Go from task arithmetic towards one member at a time, the one that the gradient asks for.

    In step k the loss of all tasks is differentiated at the merged model; of the members and the
    starting point the one whose weights lie most against the gradient (the smallest sum over
    tensors of cosines) is approached by 2 / (k + 2) * step_size * scale of the way.

    Args:
        steps: how many members are approached, one after the other.
        step_size: multiplies the shrinking steps.
        scale: multiplies them too, as the other program has both.
        init: the starting point: task arithmetic of this scale (0 is the base), or a file of
            merging weights as FusionBench saves them.
        layers: approach one member (task), or one for every tensor (layer).
        loss: of labelled images (labels), or the entropy of predictions on unlabelled ones.
        examples: images of each task per step, drawn anew.
        batch_size: images of a pass.
        seed: of the draws.
    """

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("fw_hard")
        merged = first_coefficients(pool, "layer", init)
        ends = torch.cat([_members(pool), merged[None]])
        chosen = torch.zeros(steps, dtype=torch.long)
        state = Values(merged=merged, chosen=chosen)
        for step in pool.walk("approaching members", steps, state=state):
            pool.form(merged)
            pool.zero_gradient()
            for index, task in enumerate(tasks):
                _add_gradient(pool, task, loss, examples, batch_size, (seed, step, index))
            best = _against(pool, ends, layers).argmin(dim=0)
            chosen[step] = best.mode().values.cpu()
            way = 2 / (step + 2) * step_size * scale
            merged += way * (_picked(ends, best) - merged)
        names = [*pool.members, "start"]
        facts = {"chosen": [names[number] for number in chosen.tolist()]}
        return Learned({"coefficients": merged.cpu()}, {**facts, "names": list(pool.names)})

    return DataFuser(learn, _fuser, (Held(images=min(batch_size, examples)),))


@fusers.register(
    "fw_soft",
    paper="arXiv:2503.12649",
    needs_base=True,
    linear=True,
    learns=True,
    needs_data=True,
)
def fw_soft(
    *,
    steps: Natural = 10,
    merge: Literal["adamerging", "task_arithmetic"] = "adamerging",
    step_size: Positive = 0.1,
    scale: float = 0.3,
    init: float | str = 0.0,
    layers: Layers = "task",
    most: Count | None = None,
    adapt_steps: Natural = 500,
    adapt_lr: Positive = 1e-3,
    adapt_init: float = 1e-8,
    examples: Count = 100,
    batch_size: Count = 16,
    seed: Seed = 0,
) -> DataFuser:
    """Go from the base towards several members at a time, one for the gradient of each task.

    In each step every task's gradient at the merged model picks the member whose weights lie most
    against it, of those not picked yet. How far to go towards each is learned as AdaMerging learns
    its coefficients, per tensor, or is the same for all.

    Args:
        steps: how often members are picked.
        merge: learn the way towards each by the entropy of predictions (adamerging), or go 2 / (k +
            2) * step_size * scale of it, in the first step `scale` (task_arithmetic).
        step_size: multiplies the steps of task arithmetic after the first.
        scale: the way in the first step: where learning begins, or what task arithmetic goes.
        init: the starting point: 0 is the base; or a file of merging weights of FusionBench.
        layers: pick members as a whole (task), or for every tensor (layer).
        most: pick no more than this many; all by default, which leaves nothing to choose.
        adapt_steps: steps of Adam in each step.
        adapt_lr: their size.
        adapt_init: where learning begins after the first step.
        examples: labelled images of each task per step, for the gradients.
        batch_size: images of a pass, and of each step of Adam.
        seed: of the draws.
    """

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("fw_soft")
        merged = first_coefficients(pool, "layer", init)
        ends = _members(pool)
        adaptation = Adaptation(pool, tasks, batch_size, seed)
        count = min(most or len(pool), len(pool))
        for step in range(steps):
            pool.progress("approaching members", step, steps)
            ways = torch.zeros_like(ends)
            free = torch.zeros(len(ends), len(pool.names), device=pool.device)
            pool.form(merged)
            for index, task in enumerate(tasks[:count]):
                pool.zero_gradient()
                _add_gradient(pool, task, "labels", examples, batch_size, (seed, step, index))
                best = (_against(pool, ends, layers) + free).argmin(dim=0)
                free.scatter_(0, best[None], torch.inf)
                ways[index] = _picked(ends, best) - merged
            if merge == "task_arithmetic":
                merged += scale * (2 / (step + 2) * step_size if step else 1) * ways.sum(dim=0)
                continue
            merged = _adapted(
                pool, adaptation, merged, ways, steps=adapt_steps, lr=adapt_lr,
                init=adapt_init if step else scale, stage=f"learning step {step + 1}",
            )  # fmt: skip
        return Learned({"coefficients": merged.cpu()}, {"names": list(pool.names)})

    return DataFuser(learn, _fuser, (Held(images=batch_size),))


def _fuser(learned: Learned) -> TensorFuser:
    return coefficient_fuser(learned.facts["names"], learned.tensors["coefficients"])


def _members(pool: TaskPool) -> Tensor:
    """The members as coefficients of the changes: ends x members x tensors."""
    one = torch.eye(len(pool), device=pool.device)
    return one[:, :, None].expand(-1, -1, len(pool.names)).clone()


def _picked(ends: Tensor, best: Tensor) -> Tensor:
    """For each tensor the chosen end, as members x tensors."""
    return ends.gather(0, best.expand(1, *ends.shape[1:])).squeeze(0)


def _add_gradient(
    pool: TaskPool, task: Task, loss: Loss, examples: int, size: int, draw: tuple[int, int, int]
) -> None:
    """Add the gradient of the mean loss of some images to the pool's."""
    seed = (draw[0] * 1000 + draw[1]) * 1000 + draw[2]
    count = min(examples, len(task.data))
    for batch in task.sample(examples, size, seed, pool.model.preprocess.fit):
        logits = pool.logits(task, batch.images).float()
        if loss == "entropy":
            total = entropy(logits) * len(logits)
        else:
            total = task.losses(logits, batch.rows).sum()
        (total / count).backward()  # type: ignore[no-untyped-call]


def _against(pool: TaskPool, ends: Tensor, layers: Layers) -> Tensor:
    """The cosine of every end's weights and the gradient, ends x tensors; or its sum over them.

    A tensor without a gradient, or of zeros, has no direction and counts nothing.
    """
    found = torch.zeros(len(ends), len(pool.names), device=pool.device)
    for number, span in enumerate(pool.spans):
        slope, base, deltas = pool.gradient[span], pool.base[span], pool.deltas[:, span]
        length = slope.norm()
        for end in range(len(ends)):
            weights = base + ends[end, :, number] @ deltas
            below = length * weights.norm()
            if below > 0:
                found[end, number] = (slope @ weights) / below
    return found if layers == "layer" else found.sum(dim=1, keepdim=True).expand_as(found)


def _adapted(
    pool: TaskPool,
    adaptation: Adaptation,
    merged: Tensor,
    ways: Tensor,
    *,
    steps: int,
    lr: float,
    init: float,
    stage: str,
) -> Tensor:
    """Go along each way as far as makes the predictions sure."""

    def mixed(far: Tensor) -> Tensor:
        return merged + torch.einsum("kl,ktl->tl", far, ways)

    start = torch.full((len(pool), len(pool.names)), init, device=pool.device)
    far, _ = descend(
        pool, adaptation, start, steps=steps, lr=lr,
        form=lambda far: pool.form(mixed(far)),
        pull=lambda: torch.einsum("tl,ktl->kl", pool.pull(), ways),
        beside={"position": Values(merged=merged, ways=ways)}, stage=stage,
    )  # fmt: skip
    return mixed(far)

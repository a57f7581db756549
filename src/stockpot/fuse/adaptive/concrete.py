"""Concrete subspace learning: a shared mask over the changes (Tang et al., arXiv:2312.06173)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from stockpot.checkpoints.layouts import plain_name
from stockpot.fuse import fusers
from stockpot.fuse.adaptive.descent import Layers, descend, gather, spread, start, summary
from stockpot.fuse.adaptive.entropy import Adaptation
from stockpot.fuse.adaptive.mask import Mask, masked_fuser
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.bookmark import Losses
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.types import Count, Natural, Positive, Seed

Merge = Literal["task_arithmetic", "adamerging_task", "adamerging_layer"]


@fusers.register(
    "concrete", paper="arXiv:2312.06173", needs_base=True, learns=True, needs_data=True
)
def concrete(
    *,
    merge: Merge = "task_arithmetic",
    steps: Natural = 1000,
    lr: Positive = 1e-3,
    scale: float = 0.3,
    temperature: Positive = 0.5,
    inner_lr: Positive = 1.0,
    adapt_steps: Natural = 1000,
    adapt_lr: Positive = 1e-3,
    mask: Literal["fixed", "resampled"] = "fixed",
    batch_size: Count = 16,
    together: Count = 1,
    seed: Seed = 0,
) -> DataFuser:
    """Learn which weights to change at all, with one mask for all members, on unlabelled images.

    theta = theta_0 + sum_t lambda_t (m / mean(m)) tau_t, m a relaxed Bernoulli draw per weight, its
    logits learned by the entropy of the predictions, the mean taken per tensor. lambda is `scale`,
    or learned as in `adamerging`: one inner step before each step of the mask, then on its own with
    the mask held fixed.

    Args:
        merge: task arithmetic, or AdaMerging with coefficients by member or by member and tensor.
        steps: steps of Adam on the mask's logits (FusionBench: 2000 for task arithmetic).
        lr: its step size.
        scale: the coefficients, or where they start.
        temperature: of the relaxed draw; lower is nearer to zeros and ones.
        inner_lr: the step of Adam on the coefficients before each step of the mask.
        adapt_steps: steps of AdaMerging with the finished mask.
        adapt_lr: their size.
        mask: the finished mask is drawn with the seed, so that a fusion can be repeated (fixed), or
            anew at every fusion, as FusionBench does (resampled).
        batch_size: images of each task per step.
        together: tasks that share one pass.
        seed: of the masks and of the order of the images.
    """
    layers: Layers = "layer" if merge == "adamerging_layer" else "task"
    adapts = merge != "task_arithmetic"

    def learn(pool: TaskPool) -> Learned:
        held = Mask(pool, temperature, seed)
        coefficients = start(pool, layers, scale)
        adaptation = None
        if steps or (adapts and adapt_steps):
            tasks = pool.need_tasks("concrete")
            adaptation = Adaptation(pool, tasks, batch_size, seed, together)
        losses = Losses()
        if adaptation is not None and steps:
            outer = torch.optim.Adam([held.logits], lr=lr)
            inner_free = coefficients.clone().requires_grad_(True)
            inner = torch.optim.Adam([inner_free], lr=inner_lr)
            held.mix(spread(pool, coefficients))
            for _ in pool.walk(
                "learning a mask", steps, mask=held, outer=outer, inner=inner,
                draws=adaptation, losses=losses,
            ):  # fmt: skip
                held.draw()
                if adapts:
                    inner_free.data.copy_(coefficients)
                    held.mix(spread(pool, coefficients))
                    held.form()
                    pool.zero_gradient()
                    adaptation.backward()
                    inner_free.grad = gather(inner_free, held.pull())
                    inner.step()
                    held.mix(spread(pool, inner_free.detach()))
                held.form()
                pool.zero_gradient()
                losses.append(adaptation.backward())
                held.logits.grad = held.gradient()
                outer.step()
        held.finish(resample=mask == "resampled")
        found: list[Tensor] = []
        if adaptation is not None and adapts and adapt_steps:

            def form(by_tensor: torch.Tensor) -> None:
                held.mix(by_tensor)
                held.form()

            coefficients, found = descend(
                pool, adaptation, coefficients, steps=adapt_steps, lr=adapt_lr, form=form,
                pull=held.pull, beside={"mask": held, "losses": losses},
            )  # fmt: skip
        tensors = {f"mask.{plain_name(k)}": v.cpu() for k, v in pool.views(held.values).items()}
        tensors["coefficients"] = spread(pool, coefficients).cpu().contiguous()
        facts = {**summary(losses), "adapted": summary(found), "names": list(pool.names)}
        return Learned({k: v.clone() for k, v in tensors.items()}, facts)

    def fuser(learned: Learned) -> TensorFuser:
        return masked_fuser(learned.facts["names"], learned.tensors)

    # Logits, change, draw and mask, two moments of Adam, and what its gradient is made of.
    return DataFuser(learn, fuser, (Held(images=batch_size * together, copies=10),))

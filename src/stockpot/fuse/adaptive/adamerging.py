"""AdaMerging: choose coefficients by the entropy of predictions (Yang et al., arXiv:2310.02575)."""

from __future__ import annotations

from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.adaptive.descent import Layers, descend, spread, start, summary
from stockpot.fuse.adaptive.entropy import Adaptation
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.fusionbench.merging_weights import merging_weights
from stockpot.fuse.learning.coefficients import coefficient_fuser
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.types import Count, Natural, Positive, Seed


@fusers.register(
    "adamerging",
    paper="arXiv:2310.02575",
    needs_base=True,
    linear=True,
    learns=True,
    needs_data=True,
)
def adamerging(
    *,
    layers: Layers = "layer",
    steps: Natural = 1000,
    lr: Positive = 1e-3,
    init: float | str = 0.3,
    batch_size: Count = 16,
    clamp: bool = False,
    together: Count = 1,
    seed: Seed = 0,
) -> DataFuser:
    """Learn each member's coefficient on unlabelled images, so that predictions are sure.

    theta = theta_0 + sum_t lambda_t tau_t, lambda per member (`task`) or per member and tensor
    (`layer`), minimising the mean entropy of the predictions, added up over the tasks. Labels are
    never read. No steps make it task arithmetic with scale `init`.

    Args:
        layers: one coefficient per member (task), or per member and tensor (layer).
        steps: steps of Adam; each sees one batch of every task.
        lr: its step size.
        init: the coefficients at the start: a number, or a file of merging weights as FusionBench
            saves them (`load` uses such a file as it is, without learning).
        batch_size: images of each task per step.
        clamp: keep the coefficients in [0, 1].
        together: tasks that share one pass; more is faster and needs more memory for activations.
        seed: of the order of the images.
    """

    def learn(pool: TaskPool) -> Learned:
        coefficients = first_coefficients(pool, layers, init)
        losses: list[Tensor] = []
        if steps:
            tasks = pool.need_tasks("adamerging")
            adaptation = Adaptation(pool, tasks, batch_size, seed, together)
            coefficients, losses = descend(
                pool, adaptation, coefficients, steps=steps, lr=lr, clamp=clamp
            )
        by_tensor = spread(pool, coefficients).cpu().contiguous()
        means = by_tensor.mean(dim=1).tolist()
        facts = {**summary(losses), "mean": dict(zip(pool.members, means, strict=True))}
        return Learned({"coefficients": by_tensor}, {**facts, "names": list(pool.names)})

    def fuser(learned: Learned) -> TensorFuser:
        return coefficient_fuser(learned.facts["names"], learned.tensors["coefficients"])

    return DataFuser(learn, fuser, (Held(images=batch_size * together),))


def first_coefficients(pool: TaskPool, layers: Layers, init: float | str) -> Tensor:
    """Those to begin with: one number for all, or a file of merging weights."""
    if isinstance(init, str):
        found = merging_weights(init, pool)
        if layers == "layer":
            return found
        if not bool((found == found[:, :1]).all()):
            raise BadParameterError(f"init: {init} has a weight for each tensor: use layers=layer.")
        return found[:, :1].clone()
    return start(pool, layers, init)

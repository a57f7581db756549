"""RegMean: linear layers that do to inputs what the members did (arXiv:2212.09849)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from stockpot.checkpoints.layouts import plain_name
from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.fuser import Slab, TensorFuser
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import Task, TaskPool
from stockpot.fuse.linear.average import mean
from stockpot.fuse.statistics.gram import Regression, grams, linear_layers, send
from stockpot.types import Count, Seed


@fusers.register("regmean", paper="arXiv:2212.09849", symmetric=True, learns=True, needs_data=True)
def regmean(
    *, examples: Count = 256, batch_size: Count = 32, off_diagonal: float = 0.95, seed: Seed = 0
) -> DataFuser:
    """Solve every linear layer so that it does to each task's inputs what its member did.

    W = (sum_t G_t)^-1 sum_t G_t W_t^T, transposed, G_t = X_t^T X_t / rows over all images and
    tokens that enter the layer in member t, with off-diagonal entries scaled. Everything else
    (biases, norms, embeddings, convolutions) is averaged. One pass per member; solved in fp64; an
    ill-conditioned layer gets a small ridge towards the mean, and is reported.

    Args:
        examples: images of each task; labels are not read.
        batch_size: images per forward pass.
        off_diagonal: multiplies the off-diagonal entries of every G_t; 1 is least squares itself.
        seed: of the choice of images.
    """
    check_regression("regmean", examples, off_diagonal)

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("regmean")
        layers = linear_layers(pool)
        sums = Regression(off_diagonal)
        means = {name: torch.zeros_like(layer.weight.detach()) for name, layer in layers.items()}
        for index, task in enumerate(tasks):
            pool.progress("measuring inputs", index, len(tasks))
            pool.load_member(index)
            pool.adopt(task)
            found = grams(layers, send(pool, images(pool, task, examples, batch_size, seed)))
            for name, gram in found.items():
                weight = layers[name].weight.detach()
                sums.add(name, gram, weight)
                means[name] += weight / len(tasks)
        solved, ridges = {}, {}
        for name in found:
            weight, ridge = sums.solve(name, means[name])
            solved[plain_name(name)] = weight.float().cpu()
            if ridge:
                ridges[name] = ridge
        return Learned(solved, report(len(solved), ridges, examples))

    return DataFuser(learn, solved_fuser, (Held(batch_size, backward=False, copies=4, grams=2.5),))


def check_regression(method: str, examples: int, off_diagonal: float) -> None:
    """Raise for settings that cannot be."""
    if not 0 <= off_diagonal <= 1:
        raise BadParameterError(
            f"{method}: off_diagonal: expected a share from 0 to 1, got {off_diagonal}."
        )


def images(
    pool: TaskPool, task: Task, examples: int, batch_size: int, seed: int
) -> Iterator[Tensor]:
    """A seeded sample of a task's images as the network sees them."""
    for batch in task.sample(examples, batch_size, seed, pool.model.preprocess.fit):
        yield pool.seen(batch.images)


def report(layers: int, ridges: dict[str, float], examples: int) -> dict[str, object]:
    """What to remember: how many layers were solved, and which needed a ridge."""
    return {
        "layers": layers,
        "examples": examples,
        "ill_conditioned": len(ridges),
        "ridge": ridges,
    }


def solved_fuser(learned: Learned) -> TensorFuser:
    """The solved weights where there are any, the mean elsewhere."""

    def merge(slab: Slab) -> Tensor:
        solved = learned.tensors.get(plain_name(slab.name))
        if solved is None:
            return mean(slab)
        first = slab.member(0)
        return solved.to(first.device, first.dtype)

    return TensorFuser(merge, keeps_equal=True)

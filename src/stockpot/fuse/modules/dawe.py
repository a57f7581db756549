"""Data-adaptive weight ensembling: the whole change of each member, gated by image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.adaptive.descent import summary
from stockpot.fuse.adaptive.entropy import Adaptation
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.bookmark import Losses
from stockpot.fuse.learning.coefficients import coefficient_fuser
from stockpot.fuse.learning.learner import Learned, ModuleFuser
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import Task, TaskPool
from stockpot.fuse.modules.blocks import frozen, pruned
from stockpot.fuse.modules.experts import weights_of_layers
from stockpot.fuse.parameters import check_share
from stockpot.models.modules.weight_ensemble import Router
from stockpot.models.modules.whole_ensemble import WholeEnsemble
from stockpot.types import Count, Natural, Positive, Seed


@fusers.register(
    "dawe",
    paper="https://github.com/tanganke/fusion_bench",
    needs_base=True,
    linear=True,
    learns=True,
    needs_data=True,
)
def dawe(
    *,
    steps: Natural = 1000,
    lr: Positive = 1e-5,
    scale: float = 0.3,
    depth: Natural = 1,
    density: float = 1.0,
    batch_size: Count = 1,
    seed: Seed = 0,
) -> ModuleFuser:
    """Task arithmetic whose coefficients a router chooses anew for every image.

    theta(x) = theta_0 + sum_t g_t(x) tau_t, g from a router on the base's own features (FusionBench
    takes those of a ResNet-18 beside it). Only the router learns, by the entropy of the predictions
    on unlabelled images. Every image takes two passes, the second with weights of its own. The
    result is a module: a folder that `load_model` reads.

    Args:
        steps: steps of Adam; each sees one batch of every task.
        lr: its step size.
        scale: the coefficients at the start.
        depth: linear layers of the router: 1, 2, or 0 for coefficients that are the same for all.
        density: the share of every linear layer's changes that is kept, the largest.
        batch_size: images of each task per step.
        seed: of the router and of the order of the images.
    """
    check_share("density", density)
    if depth > 2:
        raise BadParameterError(f"dawe: expected depth 0, 1 or 2, got {depth}.")

    def changes(pool: TaskPool) -> dict[str, Tensor]:
        linear = {weight for weight, _ in weights_of_layers(pool).values()}
        found = {}
        for number, place in enumerate(pool.places):
            own = pool.deltas[:, pool.spans[number]].view(len(pool), *pool.shapes[number])
            if not bool(own.any()):
                continue  # no member changed it
            if density < 1 and number in linear:
                own = torch.stack([pruned(change, density) for change in own])
            found[f"{place.removeprefix('network.')}.whole"] = own.clone()
        return found

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("dawe")
        pool.load_base()
        fit = pool.model.preprocess.fit
        pool.adopt(tasks[0])
        with torch.no_grad():
            first = pool.seen(next(tasks[0].draws(1, seed, fit)))
            width = pool.model.network.features(first).shape[1]  # type: ignore[operator]
        router = Router(width, len(pool), depth=depth, init=scale, seed=seed).to(pool.device)
        found = changes(pool)
        ensemble = WholeEnsemble(pool.model.network, router, found, softmax=False)

        def answers(group: Sequence[Task], pixels: Sequence[Tensor]) -> list[Tensor]:
            logits = []
            for task, images in zip(group, pixels, strict=True):
                pool.adopt(task)
                logits.append(ensemble(pool.seen(images)))
            return logits

        losses = Losses()
        with frozen(pool):
            adaptation = Adaptation(pool, tasks, batch_size, seed, answers=answers)
            optimiser = torch.optim.Adam(router.parameters(), lr=lr)
            for _ in pool.walk(
                # Where no member changed anything, no router makes a difference.
                "learning the router", steps if found else 0, router=router, optimiser=optimiser,
                draws=adaptation, losses=losses,
            ):  # fmt: skip
                optimiser.zero_grad()
                losses.append(adaptation.backward())
                optimiser.step()
        tensors = {f"router.{k}": v.detach().cpu() for k, v in router.state_dict().items()}
        tensors["coefficients"] = torch.zeros(len(pool), len(pool.names))
        return Learned(tensors, {**summary(losses), "names": list(pool.names), "width": width})

    def parts(pool: TaskPool, learned: Learned) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {k: v for k, v in learned.tensors.items() if k.startswith("router.")}
        settings = {
            "experts": list(pool.members),
            "depth": sum(name.startswith("router.weights.") for name in tensors),
            "width": learned.facts["width"],
            "softmax": False,
        }
        return {**tensors, **{f"changes.{k}": v for k, v in changes(pool).items()}}, settings

    return ModuleFuser(
        "whole_ensemble", learn, _fuser, parts, (Held(batch_size, mixed=1, of_each=1),)
    )


def _fuser(learned: Learned) -> TensorFuser:
    return coefficient_fuser(learned.facts["names"], learned.tensors["coefficients"])

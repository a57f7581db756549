"""Weight-ensembling mixture of experts (Tang et al., arXiv:2402.00433), dense or sparse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.adaptive.descent import summary
from stockpot.fuse.adaptive.entropy import Adaptation
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.bookmark import Losses
from stockpot.fuse.learning.coefficients import coefficient_fuser
from stockpot.fuse.learning.learner import Learned, ModuleFuser
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.modules.blocks import Block, frozen, need_blocks
from stockpot.fuse.parameters import check_share
from stockpot.models.modules.weight_ensemble import (
    Router,
    Routing,
    compact,
    mix_block,
    unmix_block,
)
from stockpot.types import Count, Natural, Positive, Seed


@fusers.register(
    "wemoe", paper="arXiv:2402.00433", needs_base=True, linear=True, learns=True, needs_data=True
)
def wemoe(
    *,
    steps: Natural = 1000,
    lr: Positive = 1e-4,
    scale: float = 0.3,
    batch_size: Count = 16,
    depth: Natural = 2,
    density: float = 1.0,
    shared: bool = False,
    routing: Routing = "image",
    together: Count = 1,
    seed: Seed = 0,
) -> ModuleFuser:
    """Mix the members' MLPs anew for every image with routers learned on unlabelled images.

    An MLP computes with theta_0 + sum_t g_t(x) tau_t, g from a small router on its input; all else
    is task arithmetic with `scale`. Only routers learn, by the entropy of the predictions. The
    sparse form (E-WEMoE) keeps a tenth of each change and one router for all layers: density=0.1,
    shared=true. The result is a module: a folder that `load_model` reads.

    Args:
        steps: steps of Adam; each sees one batch of every task.
        lr: its step size.
        scale: of the changes outside MLPs, and the gates at the start.
        batch_size: images of each task per step.
        depth: linear layers of a router: 2, 1, or 0 for gates that do not depend on the image.
        density: the share of every tensor's changes that is kept, the largest.
        shared: one router for all MLPs.
        routing: gates of each image (image), or their mean over the batch, as FusionBench has it
            (batch): predictions then depend on what else is in the batch.
        together: tasks that share one pass while learning.
        seed: of the routers and of the order of the images.
    """
    check_share("density", density)
    if depth not in (0, 1, 2) or steps < 0 or lr <= 0:
        raise BadParameterError(
            f"wemoe: expected depth 0, 1 or 2, steps >= 0 and lr > 0, got {depth}, {steps}, {lr}."
        )

    def routers(pool: TaskPool, blocks: list[Block]) -> dict[str, Router]:
        chosen = blocks[:1] if shared else blocks
        return {
            str(index): Router(
                block.width, len(pool), depth=depth, init=scale, seed=seed * 1000 + index
            ).to(pool.device)
            for index, block in enumerate(chosen)
        }

    def learn(pool: TaskPool) -> Learned:
        blocks = need_blocks(pool, "wemoe")
        made = routers(pool, blocks)
        coefficients = torch.full((len(pool), len(pool.names)), scale, device=pool.device)
        for block in blocks:
            coefficients[:, block.numbers] = 0.0
        losses = Losses()
        if steps:
            tasks = pool.need_tasks("wemoe")
            pool.form(coefficients)
            with _mixed(pool, blocks, made, density, shared, routing):
                # A router's mean over the batch would run across tasks in a joint pass.
                size = 1 if routing == "batch" else together
                adaptation = Adaptation(pool, tasks, batch_size, seed, size)
                weights = [weight for router in made.values() for weight in router.parameters()]
                optimiser = torch.optim.Adam(weights, lr=lr)
                for _ in pool.walk(
                    "learning routers", steps, routers=nn.ModuleDict(made),
                    optimiser=optimiser, draws=adaptation, losses=losses,
                ):  # fmt: skip
                    optimiser.zero_grad()
                    losses.append(adaptation.backward())
                    optimiser.step()
        tensors = {
            f"routers.{key}.{name}": value.detach().cpu()
            for key, router in made.items()
            for name, value in router.state_dict().items()
        }
        facts = {**summary(losses), "names": list(pool.names)}
        return Learned({**tensors, "coefficients": coefficients.cpu()}, facts)

    def parts(pool: TaskPool, learned: Learned) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {k: v for k, v in learned.tensors.items() if k.startswith("routers.")}
        blocks = need_blocks(pool, "wemoe")
        for block in blocks:
            for name, (weight, bias) in block.changes(pool, density).items():
                path = f"changes.{block.path}.{name}"
                tensors |= compact(f"{path}.weight", weight.cpu(), density)
                if bias is not None:
                    tensors |= compact(f"{path}.bias", bias.cpu(), density)
        settings = {
            "experts": list(pool.members),
            "depth": depth,
            "routing": routing,
            "density": density,
            "blocks": {
                block.path: {
                    "router": "0" if shared else str(index),
                    "width": block.width,
                    "layers": list(block.layers),
                }
                for index, block in enumerate(blocks)
            },
        }
        return tensors, settings

    # Every image has MLPs of its own, or the batch one; what is written are all changes.
    images = batch_size * (1 if routing == "batch" else together)
    own = 1.0 if routing == "image" else 1 / images
    held = (Held(images, mixed=own, of_each=int(density < 1)), Held(of_each=1))
    return ModuleFuser("weight_ensemble", learn, _fuser, parts, held)


def _fuser(learned: Learned) -> TensorFuser:
    return coefficient_fuser(learned.facts["names"], learned.tensors["coefficients"])


@contextmanager
def _mixed(
    pool: TaskPool,
    blocks: list[Block],
    routers: dict[str, Router],
    density: float,
    shared: bool,
    routing: Routing,
) -> Iterator[None]:
    """The working model with routers in it, and nothing but them to learn."""
    network: nn.Module = pool.model.network
    with frozen(pool):
        for index, block in enumerate(blocks):
            router = routers["0" if shared else str(index)]
            mix_block(network, block.path, block.changes(pool, density), router, routing)
        try:
            yield
        finally:
            for block in blocks:
                unmix_block(network, block.path)

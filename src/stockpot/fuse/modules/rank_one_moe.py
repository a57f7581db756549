"""Rank-one mixture of experts: singular triples of the members' MLPs, gated by image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from stockpot.fuse.modules.experts import low_rank_experts
from stockpot.fuse.spectral.decompose import RANK_TOLERANCE, check_tolerance
from stockpot.models.modules.rank_one import Selected, factor_block
from stockpot.models.modules.weight_ensemble import Router, unmix_block
from stockpot.types import Count, Natural, NonNegative, Positive, Seed


@fusers.register(
    "rank_one_moe",
    paper="https://github.com/tanganke/fusion_bench",
    needs_base=True,
    linear=True,
    learns=True,
    needs_data=True,
)
def rank_one_moe(
    *,
    steps: Natural = 1000,
    lr: Positive = 1e-4,
    scale: float = 0.3,
    rank: Count = 32,
    top_k: Count | None = None,
    batch_size: Count = 16,
    depth: Natural = 1,
    together: Count = 1,
    rank_tolerance: NonNegative = RANK_TOLERANCE,
    seed: Seed = 0,
) -> ModuleFuser:
    """Add singular triples of the members' MLPs for every image, as learned routers say.

    The linear layers of an MLP compute with W_0 + sum of g_k(x) s_k u_k v_k' over the leading
    `rank` triples of every member, g from one router on the MLP's input; all else, biases too, is
    task arithmetic with `scale`. Only routers learn, by the entropy of the predictions on
    unlabelled images. The result is a module: a folder that `load_model` reads.

    Args:
        steps: steps of Adam; each sees one batch of every task.
        lr: its step size.
        scale: of the changes outside the MLPs' matrices, and the gates at the start.
        rank: triples of each member's change to a matrix.
        top_k: about how many of all triples an image uses, those of the largest gates; all by
            default.
        batch_size: images of each task per step.
        depth: linear layers of a router: 1, 2, or 0 for gates that do not depend on the image.
        together: tasks that share one pass while learning.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding and are not kept.
        seed: of the routers and of the order of the images.
    """
    check_tolerance(rank_tolerance)
    if depth > 2:
        raise BadParameterError(f"rank_one_moe: expected depth 0, 1 or 2, got {depth}.")

    def factors(pool: TaskPool, block: Block) -> dict[str, tuple[Tensor, Tensor]]:
        found = {}
        for name, (weight, _) in block.changes(pool).items():
            size = min(rank, *weight.shape[1:])
            up, down, _ = low_rank_experts(weight, size, 1, rank_tolerance)
            found[name] = (_parts(up.transpose(1, 2), rank), _parts(down, rank))
        return found

    def learn(pool: TaskPool) -> Learned:
        blocks = need_blocks(pool, "rank_one_moe")
        routers = {
            block.path: Router(
                block.width, len(pool) * rank, depth=depth, init=scale, seed=seed * 1000 + index
            ).to(pool.device)
            for index, block in enumerate(blocks)
        }
        coefficients = torch.full((len(pool), len(pool.names)), scale, device=pool.device)
        for block in blocks:
            coefficients[:, [weight for weight, _ in block.layers.values()]] = 0.0
        losses = Losses()
        if steps:
            tasks = pool.need_tasks("rank_one_moe")
            pool.form(coefficients)
            made = {block.path: factors(pool, block) for block in blocks}
            with _factored(pool, made, routers, top_k):
                adaptation = Adaptation(pool, tasks, batch_size, seed, together)
                held = nn.ModuleList(routers.values())
                optimiser = torch.optim.Adam(held.parameters(), lr=lr)
                for _ in pool.walk(
                    "learning routers", steps, routers=held, optimiser=optimiser,
                    draws=adaptation, losses=losses,
                ):  # fmt: skip
                    optimiser.zero_grad()
                    losses.append(adaptation.backward())
                    optimiser.step()
        tensors = {
            f"routers.{path}.{name}": value.detach().cpu()
            for path, router in routers.items()
            for name, value in router.state_dict().items()
        }
        facts = {**summary(losses), "names": list(pool.names)}
        return Learned({**tensors, "coefficients": coefficients.cpu()}, facts)

    def parts(pool: TaskPool, learned: Learned) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {k: v for k, v in learned.tensors.items() if k.startswith("routers.")}
        blocks = need_blocks(pool, "rank_one_moe")
        for block in blocks:
            for name, (up, down) in factors(pool, block).items():
                path = f"parts.{block.path}.{name}"
                tensors |= {f"{path}.up": up.cpu(), f"{path}.down": down.cpu()}
        settings = {
            "experts": list(pool.members),
            "rank": rank,
            "top_k": top_k,
            "depth": depth,
            "blocks": {
                block.path: {"width": block.width, "layers": list(block.layers)} for block in blocks
            },
        }
        return tensors, settings

    return ModuleFuser(
        "rank_one_experts", learn, _fuser, parts, (Held(batch_size * together, of_each=1),)
    )


def _fuser(learned: Learned) -> TensorFuser:
    return coefficient_fuser(learned.facts["names"], learned.tensors["coefficients"])


def _parts(rows: Tensor, rank: int) -> Tensor:
    """Members x triples x width as parts x width; where there are fewer triples, zeros."""
    missing = rank - rows.shape[1]
    return torch.nn.functional.pad(rows, (0, 0, 0, missing)).flatten(0, 1).contiguous()


@contextmanager
def _factored(
    pool: TaskPool,
    factors: Mapping[str, dict[str, tuple[Tensor, Tensor]]],
    routers: Mapping[str, Router],
    top_k: int | None,
) -> Iterator[None]:
    """The working model with rank-one parts in it, and nothing but routers to learn."""
    network: nn.Module = pool.model.network
    with frozen(pool):
        for path, own in factors.items():
            factor_block(network, path, own, Selected(routers[path], top_k))
        try:
            yield
        finally:
            for path in factors:
                unmix_block(network, path)

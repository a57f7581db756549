"""Twin-Merging: a shared model, and what is each task's own by a router (Lu, arXiv:2406.15479)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.learning.bookmark import Losses
from stockpot.fuse.learning.coefficients import coefficient_fuser
from stockpot.fuse.learning.learner import Learned, ModuleFuser
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.modules.experts import low_rank_experts
from stockpot.fuse.spectral.decompose import RANK_TOLERANCE, check_tolerance
from stockpot.models.modules.weight_ensemble import Router
from stockpot.types import Count, Natural, NonNegative, Positive, Seed


@fusers.register(
    "twin", paper="arXiv:2406.15479", needs_base=True, linear=True, learns=True, needs_data=True
)
def twin(
    *,
    scale: float = 0.3,
    rank: Count = 16,
    depth: Count = 1,
    steps: Natural = 500,
    lr: Positive = 1e-3,
    examples: Count = 256,
    batch_size: Count = 64,
    rank_tolerance: NonNegative = RANK_TOLERANCE,
    seed: Seed = 0,
) -> ModuleFuser:
    """Task arithmetic as the shared model, and for every image a mix of what it lacks.

    theta(x) = theta_s + sum_t w_t(x) v_t, theta_s = theta_0 + scale * sum_t tau_t, v_t what member
    t has beyond it, cut to `rank` where it is a matrix; w is a softmax over tasks of a router on
    the features of the shared model. The router learns to tell the tasks' images apart; labels are
    not read. Every image takes two passes, the second with weights of its own. The result is a
    module: a folder that `load_model` reads.

    Args:
        scale: of the summed change in the shared model.
        rank: singular triples of each matrix that a member keeps beyond the shared model.
        depth: linear layers of the router, 1 or 2.
        steps: steps of Adam for the router.
        lr: their size.
        examples: images of each task that the router learns from.
        batch_size: images of all tasks per step.
        rank_tolerance: singular values up to this share of a change's Frobenius norm count as
            rounding and are not kept.
        seed: of the router, the choice of images and their order.
    """
    check_tolerance(rank_tolerance)
    if depth > 2:
        raise BadParameterError(f"twin: expected depth 1 or 2, got {depth}.")

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("twin")
        coefficients = torch.full((len(pool), len(pool.names)), scale)
        pool.form(coefficients)
        seen, owner = [], []
        for index, task in enumerate(tasks):
            pool.progress("looking at tasks", index, len(tasks))
            pool.adopt(task)
            for batch in task.sample(examples, batch_size, seed, pool.model.preprocess.fit):
                with torch.no_grad():
                    found = pool.model.features(batch.images.to(pool.device)).float()
                seen.append(found)
                owner.append(torch.full((len(found),), index, device=pool.device))
        features, wanted = torch.cat(seen), torch.cat(owner)
        width = features.shape[1]
        router = Router(width, len(pool), depth=depth, init=0.0, seed=seed).to(pool.device)
        optimiser = torch.optim.Adam(router.parameters(), lr=lr)
        losses = Losses()
        for step in pool.walk(
            "learning the router", steps, router=router, optimiser=optimiser, losses=losses
        ):
            generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
            rows = torch.randperm(len(features), generator=generator)[:batch_size]
            rows = rows.to(pool.device)
            loss = F.cross_entropy(router(features[rows, None]), wanted[rows])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            losses.append(loss.detach())
        with torch.no_grad():
            right = (router(features[:, None]).argmax(dim=1) == wanted).float().mean()
        tensors = {f"router.{k}": v.detach().cpu() for k, v in router.state_dict().items()}
        facts = {"told_apart": float(right), "names": list(pool.names), "width": width}
        return Learned({**tensors, "coefficients": coefficients}, facts)

    def parts(pool: TaskPool, learned: Learned) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {k: v for k, v in learned.tensors.items() if k.startswith("router.")}
        for number, place in enumerate(pool.places):
            changes = pool.deltas[:, pool.spans[number]].view(len(pool), *pool.shapes[number])
            if not bool(changes.any()):
                continue  # no member changed it
            own = changes - scale * changes.sum(dim=0)
            path = f"changes.{place.removeprefix('network.')}"
            if own.ndim == 3 and rank < min(own.shape[1:]):
                up, down, _ = low_rank_experts(own, rank, 1, rank_tolerance)
                tensors |= {f"{path}.up": up, f"{path}.down": down}
            else:
                tensors[f"{path}.whole"] = own.clone()
        settings = {
            "experts": list(pool.members),
            "depth": sum(name.startswith("router.weights.") for name in tensors),
            "width": learned.facts["width"],
        }
        return tensors, settings

    return ModuleFuser(
        "whole_ensemble", learn, _fuser, parts, (Held(batch_size, backward=False), Held(of_each=2))
    )


def _fuser(learned: Learned) -> TensorFuser:
    return coefficient_fuser(learned.facts["names"], learned.tensors["coefficients"])

"""RegMean++: RegMean on what the merged layers feed on (Nguyen et al., arXiv:2508.03121)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stockpot.checkpoints.layouts import plain_name
from stockpot.fuse import fusers
from stockpot.fuse.learning.learner import DataFuser, Learned
from stockpot.fuse.learning.memory import Held
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.statistics.gram import Regression, grams, linear_layers, send
from stockpot.fuse.statistics.regmean import check_regression, images, report, solved_fuser
from stockpot.types import Count, Seed


@fusers.register(
    "regmean_pp", paper="arXiv:2508.03121", symmetric=True, learns=True, needs_data=True
)
def regmean_pp(
    *, examples: Count = 256, batch_size: Count = 32, off_diagonal: float = 0.95, seed: Seed = 0
) -> DataFuser:
    """RegMean block by block: the inputs of a block come from the blocks merged before it.

    Embeddings are averaged first. Then each block in turn: every member's own block runs on what
    the merged model feeds it, its linear layers are solved as in `regmean`, and the merged block
    takes its place. What stands behind the last block is solved or averaged at the end.

    Args:
        examples: images of each task; labels are not read.
        batch_size: images per forward pass.
        off_diagonal: multiplies the off-diagonal entries of every G_t; 1 is least squares itself.
        seed: of the choice of images.
    """
    check_regression("regmean_pp", examples, off_diagonal)

    def learn(pool: TaskPool) -> Learned:
        tasks = pool.need_tasks("regmean_pp")
        layers = linear_layers(pool)
        seen = [list(images(pool, task, examples, batch_size, seed)) for task in tasks]
        share = torch.full((len(pool), len(pool.names)), 1 / len(pool), device=pool.device)
        pool.form(share)  # the plain average
        merged = pool.flat.clone()
        solved: dict[str, Tensor] = {}
        ridges: dict[str, float] = {}
        blocks = stages(pool)
        for done, (block, numbers) in enumerate(blocks):
            pool.progress("solving blocks", done, len(blocks))
            names = {pool.names[number] for number in numbers}
            here = {name: layer for name, layer in layers.items() if name in names}
            sums = Regression(off_diagonal)
            for index, task in enumerate(tasks):
                pool.flat.copy_(merged)
                for number in numbers:
                    pool.load_tensor(number, index)
                pool.adopt(task)
                found = grams(here, send(pool, seen[index]), last=block)
                for name, gram in found.items():
                    sums.add(name, gram, here[name].weight.detach())
            for number in numbers:
                name, span = pool.names[number], pool.spans[number]
                if name not in found:
                    continue
                plain = merged[span].view(pool.shapes[number])
                weight, ridge = sums.solve(name, plain)
                merged[span] = weight.float().reshape(-1)
                solved[plain_name(name)] = weight.float().cpu()
                if ridge:
                    ridges[name] = ridge
        return Learned(solved, report(len(solved), ridges, examples))

    # One block's products at a time.
    held = Held(batch_size, backward=False, copies=4, grams=1, seen=examples)
    return DataFuser(learn, solved_fuser, (held,))


def stages(pool: TaskPool) -> list[tuple[nn.Module | None, list[int]]]:
    """The blocks of the network in order, each with the numbers of its tensors; the rest last."""
    blocks = blocks_of(pool.model)
    taken: set[int] = set()
    found: list[tuple[nn.Module | None, list[int]]] = []
    for prefix, block in blocks:
        numbers = [i for i, place in enumerate(pool.places) if place.startswith(f"{prefix}.")]
        if numbers:
            taken |= set(numbers)
            found.append((block, numbers))
    rest = [i for i in range(len(pool.places)) if i not in taken]
    return [*found, (None, rest)]


def blocks_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The repeated blocks: the entries of the largest list of modules that hold linear layers."""
    best: list[tuple[str, nn.Module]] = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList) or ".text_model." in f".{name}.":
            continue
        entries = [
            (f"{name}.{index}", entry)
            for index, entry in module.named_children()
            if any(isinstance(part, nn.Linear) for part in entry.modules())
        ]
        if len(entries) > len(best):
            best = entries
    return best

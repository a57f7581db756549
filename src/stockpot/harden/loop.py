"""The training loop: one for every hardening method.

A method supplies an objective, a function from the model and a batch to a loss; the loop does
the rest. Data order and everything random, dropout too, follow from (seed, epoch) and (seed, step),
never from a generator that lives across steps, so a run stopped anywhere resumes to the same
weights.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.feed import Feed
from stockpot.engine.interrupt import ask_to_stop, stop_asked, stop_if_asked
from stockpot.errors import BadParameterError
from stockpot.harden.augment import Augmentations, augment
from stockpot.harden.budget import epochs_within
from stockpot.harden.draws import generator_of, layers_draw_from
from stockpot.harden.finite import LossWatch
from stockpot.harden.many.layers import whole_batch
from stockpot.harden.many.processes import (
    any_of,
    average_gradients,
    is_first,
    joined,
    share_weights,
)
from stockpot.harden.many.sharded import (
    check_for_shards,
    is_in_shards,
)
from stockpot.harden.many.shares import own_rows, weight_of
from stockpot.harden.objective import (
    Batch,
    Objective,
    Step,
    begin,
    is_same,
    memory_of,
    parameters_of,
)
from stockpot.harden.optimise import Milestones, Schedule, follow, make_optimiser, set_rate
from stockpot.harden.selection import ACCURACY, Select, hold_out, parse_selection, scores
from stockpot.harden.slopes import Slopes
from stockpot.harden.state import Resume, State, question_of
from stockpot.harden.stochastic_depth import need_branches, stochastic_depth
from stockpot.models.classifier import Classifier
from stockpot.score.scorer import renumbered
from stockpot.types import Count, Epochs, Fraction01, Natural, NonNegative, Part, Positive, Seed

Report = Callable[[int, int, dict[str, float]], None]
"""Called after every epoch with the step, the number of steps, and what was seen."""
Progress = Callable[[str, int, int], None]
"""Called between epochs with the loss so far in words, the step and the number of steps."""
PULSE = 1.0
"""Seconds between two such calls at least: to know the loss, a GPU must be waited for."""


def train(
    model: Classifier,
    data: Dataset,
    objective: Objective,
    *,
    validation: Dataset | None = None,
    resume: Resume | None = None,
    report: Report | None = None,
    progress: Progress | None = None,
    question: str = "",
    epochs: Epochs = 30,
    compute: NonNegative = 0.0,
    batch_size: Count = 128,
    optimizer: Literal["adamw", "sgd"] = "adamw",
    lr: Positive = 1e-3,
    weight_decay: NonNegative = 0.05,
    decay_norms: bool = False,
    momentum: Part = 0.9,
    betas: tuple[Part, Part] = (0.9, 0.999),
    schedule: Schedule = "cosine",
    warmup: Fraction01 = 0.05,
    milestones: Milestones = (),
    gamma: Part = 0.1,
    clip: NonNegative = 1.0,
    ema: Part = 0.0,
    drop_path: Part = 0.0,
    augmentations: Augmentations = ("flip", "crop"),
    precision: Literal["fp32", "bf16"] = "fp32",
    keep: Literal["last", "best"] = "last",
    select: Select = ACCURACY,
    holdout: Part = 0.0,
    patience: Natural = 0,
    seed: Seed = 0,
) -> dict[str, float]:
    """Train the model in place and say how it went.

    Classes meet by name, as when measuring; of several accepted labels the first is learned.

    Args:
        epochs: passes over the data; 0 leaves the model as it is.
        compute: instead of `epochs`, as many of them as fit into so many 10^15 floating-point
            operations (one forward and backward pass per image), to compare at equal compute.
        batch_size: images per step; a last incomplete batch is dropped when there are others.
        optimizer: `adamw`, or `sgd` with Nesterov momentum.
        lr: the peak learning rate.
        weight_decay: on matrices and filters; biases and norms are spared.
        decay_norms: let biases and norms decay too.
        momentum: of `sgd`.
        betas: of `adamw`; `cosine_cycle` moves the first.
        schedule: the learning rate over the run; `step` lowers it at `milestones`.
        warmup: the share of the run over which the rate rises.
        milestones: with schedule=step, after these epochs the rate is multiplied by `gamma`, such
            as `100,150`; by default after half and three quarters of the run.
        gamma: what the rate is multiplied by at each milestone.
        clip: the largest gradient norm; 0 does not clip.
        ema: decay of an exponential moving average of the weights; 0 keeps none.
        drop_path: stochastic depth: the chance that the last block's branches are left out for an
            image, rising evenly from 0 in the first block.
        augmentations: random changes of each batch, in this order.
        precision: `bf16` runs the forward pass in bfloat16 where the device can.
        keep: the weights of the `last` epoch, or of the `best` one on validation data.
        select: what is `best`: `accuracy`, or the robust accuracy under threats such as
            `linf:8/255` or `linf:8/255,l1:12` (their union), by a 10-step APGD.
        holdout: where no validation data are given, hold out this share of every class for it.
        patience: stop when the best epoch lies so many epochs back; 0 never stops early.
        seed: of the data order and everything random.
    """
    data = renumbered(data, model.classes)
    if validation is None and holdout:
        data, validation = hold_out(data, holdout, seed)
    _check(keep, select, patience, validation)
    if milestones and schedule != "step":
        raise BadParameterError(f"milestones: need schedule=step, got schedule={schedule}.")
    device = model.device
    feed, labels = Feed(data.images, model.preprocess.fit, device), data.labels.to(device)
    per_epoch = max(1, len(labels) // batch_size)
    if compute:
        epochs = epochs_within(model, per_epoch * min(batch_size, len(labels)), compute)
    total = epochs * per_epoch
    if is_in_shards(model):
        check_for_shards(min(batch_size, len(labels)), ema)
    if total:
        begin(objective, model, data, validation)
        share_weights(model)
    branches = need_branches(model) if drop_path else []
    drops = [epoch * per_epoch for epoch in milestones] or [total // 2, total * 3 // 4]
    learned = [*model.parameters(), *parameters_of(objective)]
    if total and not any(each.requires_grad for each in learned):
        raise BadParameterError(
            f"{model.origin.source}: none of its {len(learned)} weights may change.",
            hint="Set requires_grad of those that are to be trained.",
        )
    optimiser = make_optimiser(
        learned, optimizer, lr, weight_decay, momentum, betas=betas, decay_norms=decay_norms
    )
    averaged = copy.deepcopy(model) if ema else None
    asked = question_of(
        question, data.fingerprint, total, batch_size, optimizer, lr, weight_decay, seed
    )
    state = State(asked, model, optimiser, averaged, memory_of(objective), resume)
    start = state.read()
    records = not drop_path and is_same(objective) and not joined()
    slopes = Slopes(model, learned, records)
    watch = LossWatch(start, total)
    steps, shown = start, -math.inf
    model.train()
    for step, rows, pixels in _batches(feed, batch_size, per_epoch, start, total, seed):
        rest = step - state.best["step"]
        if patience and step % per_epoch == 0 and rest >= patience * per_epoch:
            break
        steps = step + 1
        set_rate(optimiser, lr, schedule, step, total, int(warmup * total), drops, gamma)
        generator = generator_of(seed, step)
        chosen = rows.to(device, non_blocking=True)
        batch = Batch(augment(pixels.float() / 255, augmentations, generator), labels[chosen])
        own, of_all = own_rows(len(batch)), batch if joined() else None
        known = data.masks if not augmentations else None
        masks = known[rows][own] if known is not None else None

        def loss_of(
            given: Tensor,
            meant: Tensor,
            generator: Generator = generator,
            step: int = step,
            of_all: Batch | None = of_all,
            masks: Tensor | None = masks,
        ) -> Tensor:
            # Weights that were cast for one pass must not be kept for the next, as a graph would.
            with torch.autocast(
                device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=not records
            ):
                if of_all is None:
                    return objective(Step(model, given, meant, generator, step, masks=masks))
                with whole_batch(len(of_all)):
                    loss = objective(Step(model, given, meant, generator, step, of_all, masks))
                return loss * weight_of(len(of_all))

        drawing = partial(layers_draw_from, seed, step, device)
        with stochastic_depth(branches, drop_path):
            loss = slopes(loss_of, drawing, batch.pixels[own], batch.labels[own], total - step)
        loss = average_gradients(learned, loss)
        if clip:
            nn.utils.clip_grad_norm_(learned, clip)
        optimiser.step()
        if averaged is not None:
            follow(averaged, model, min(ema, (1 + step) / (10 + step)))
        state.add(loss)
        watch.add(loss)
        if steps % per_epoch == 0:
            watch.check(learned)
            state.end_epoch()
            if validation is not None:
                found = scores(state.judged, validation, select, precision)
                state.seen |= found
                if keep == "best":
                    state.keep_if_best(found, steps)
            if report and is_first():
                report(steps, total, state.seen)
        elif progress and time.monotonic() - shown > PULSE and is_first():
            shown = time.monotonic()
            progress(f"loss {state.loss:.4f}", steps, total)
        late, stop = any_of(state.is_old, stop_asked())  # what all do next is decided together
        if stop:
            ask_to_stop()
        if resume and (late or stop or steps == total or steps % resume.every == 0):
            watch.check(learned)  # going on from what is no number would never end well
            state.write(steps)
            watch.saved(steps)
        stop_if_asked(f"Step {steps:,} of {total:,} is saved." if resume else "Nothing is saved.")
    if total:
        state.settle()
    model.eval()
    return {"steps": float(steps), **state.seen}


def _batches(
    feed: Feed, size: int, per_epoch: int, start: int, total: int, seed: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Rows and pixels of each step; the order of an epoch depends on (seed, epoch) alone."""
    step = start
    while step < total:
        epoch, done = divmod(step, per_epoch)
        order = torch.randperm(len(feed), generator=generator_of(seed, epoch, salt=1))
        rest = order[done * size : per_epoch * size]
        for rows, pixels in zip(torch.split(rest, size), feed.batches(size, rest), strict=True):
            yield step, rows, pixels
            step += 1


def _check(keep: str, select: str, patience: int, validation: Dataset | None) -> None:
    if (keep == "best" or parse_selection(select)) and validation is None:
        told = "keep=best" if keep == "best" else f"select={select}"
        raise BadParameterError(
            f"{told} needs validation data to choose by.",
            hint="Give validation data, or holdout=0.1 to take a share of the training data.",
        )
    if patience and keep != "best":
        raise BadParameterError(f"patience: needs keep=best, got {patience} and keep={keep}.")

"""Forward passes of one classifier, as fast as its device allows, with the same answers.

    run = Passes(model, Forward("bf16"), size=512)
    logits = run(pixels)          # uint8 or float pixels, NCHW, any number; float32 logits

A copy of the model is made at the first batch: batch norms folded into convolutions, NHWC, in the
precision that was chosen, compiled where that was asked for; on a GPU with bias, sum and ReLU in
the kernels that are the fastest for it, and recorded as a graph, in which models alike take turns.
Its answers to a few images must be those of the model itself in full precision up to `TOLERANCE`;
where they are not, or a step is not possible, the next plainer way is gone, and the result says so
where a chosen precision or compilation was lost.
"""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from stockpot.models.classifier import Classifier
from stockpot.models.forward import first_token
from stockpot.models.forward.alike import likeness
from stockpot.models.forward.apart import CPU_PIECE, in_parts, keeps_nothing
from stockpot.models.forward.arithmetic import products
from stockpot.models.forward.compiled import compiled
from stockpot.models.forward.cuda_graph import Captured
from stockpot.models.forward.ends import by_kernel
from stockpot.models.forward.folding import Looked, folded_copy, is_folded
from stockpot.models.forward.fused.layers import with_pools
from stockpot.models.forward.fused.tokens import with_tokens
from stockpot.models.forward.joining import ends_seen, join_seen
from stockpot.models.forward.memory import Halving
from stockpot.models.forward.normalised import normalised
from stockpot.models.forward.options import Forward
from stockpot.models.forward.own_answers import (
    FEW,
    TOLERANCE,
    difference,
    own_answers,
    own_look,
    unheard,
)
from stockpot.models.forward.packed import pack
from stockpot.models.forward.turns import Copy, Recorded, Run, Turn, recorded
from stockpot.models.forward.ways import KERNELS, TOLD, Steps, groups, named, seconds, wanted
from stockpot.results.schema import ForwardFacts

_NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


class Made(NamedTuple):
    """A way to make passes, and what it answered to the pixels for which it was made."""

    run: Run
    answers: Tensor


class Passes:
    """Forward passes of one classifier, in batches that fit; made for `evaluating(model)`."""

    def __init__(self, model: Classifier, forward: Forward | None = None, size: int = 256) -> None:
        """Nothing is made yet.

        Args:
            model: in evaluation mode whenever this is called, on the device of the pixels; its
                weights must stay as they are.
            forward: precision and compilation.
            size: images per pass at most.
        """
        self.model = model
        self.forward = forward or Forward()
        self._halving = Halving(size)
        self._runs: dict[tuple[Any, ...], tuple[int, Run]] = {}
        self._copies: dict[str, nn.Module] = {}
        self._turns: dict[str, Turn] = {}
        self._kept: list[Recorded] = []
        self._said: dict[str, None] = {}
        self._steps: set[str] = set()

    def __call__(self, pixels: Tensor) -> Tensor:
        """Logits of the pixels in float32, on their device."""
        parts: list[Tensor] = []
        start = 0
        while start < len(pixels) or not parts:
            part = pixels[start : start + self._halving.size]
            try:
                parts.append(self._answers(part))
            except torch.OutOfMemoryError as problem:
                kept_passes.cache_clear()
                self._runs.clear()
                self._copies.clear()
                self._turns.clear()
                self._kept.clear()
                self._halving.halve(problem)
                continue
            start += len(part)
        logits = parts[0] if len(parts) == 1 else torch.cat(parts)
        # Who listens to the model hears the answers of its copy.
        for hook in tuple(self.model._forward_hooks.values()):
            hook(self.model, (pixels,), logits)
        return logits

    @property
    def notes(self) -> list[str]:
        """What a reader must know: ways that could not be gone, and batches that were halved."""
        return [*self._said, *self._halving.notes]

    @property
    def facts(self) -> ForwardFacts:
        """How the passes were made."""
        weights = {value.dtype for value in self.model.parameters()} & set(_NAMES)
        own = _NAMES[weights.pop()] if weights else None
        return ForwardFacts(
            precision=own or (self.forward.precision if "plain" not in self._steps else "fp32"),
            compiled="compiled" in self._steps,
            folded="folded" in self._steps,
            fused=next((kernel for kernel in KERNELS[:2] if kernel in self._steps), False),
            graph="graph" in self._steps,
            memory_format="channels_last" if "nhwc" in self._steps else "contiguous",
            batch_size=self._halving.size,
        )

    def _answers(self, pixels: Tensor) -> Tensor:
        kind = (*pixels.shape[1:], pixels.dtype)
        known = self._runs.get(kind)
        # What is recorded or compiled takes as many images as it was made with, or fewer.
        if known is not None and known[0] >= len(pixels):
            return known[1](pixels)
        made = self._made(pixels)
        if made is None:
            made = Made(self._plain, self._plain(pixels))
        self._runs[kind] = len(pixels), made.run
        return made.answers

    def _made(self, pixels: Tensor) -> Made | None:
        """The fastest way that gives the model's own answers to these pixels; none but itself."""
        ways = list(groups(self.model, self.forward, records=_records(pixels)))
        if not any(True for _ in self.model.parameters()):
            # There is nothing to change in a model that can only be asked.
            self._steps.add("plain")
            self._say(f"{self.forward.precision}: the model is asked as it is", TOLD)
            return None
        # A model in half precision is taken as it is.
        halves = any(value.dtype in _NAMES for value in self.model.parameters())
        if halves or not ways or not len(pixels):
            return None
        like = likeness(self.model) if _records(pixels) else None
        key = like and (like, self.forward, pixels.shape[1:], pixels.dtype)
        known = recorded.get(key) if key else None
        if known is not None and known.size >= len(pixels):
            shared = self._shared(known, pixels)
            if shared is not None:
                return shared
        looked = own_look(self.model, pixels[:FEW])
        for group in ways:
            found = self._fastest(group, pixels, looked, shares=key is not None)
            if found is None:
                continue
            steps, made = found
            self._steps |= set(steps)
            turn = self._turns.get(wanted(steps))
            if turn is None:
                return made
            if "graph" in steps:
                taken = Recorded(turn.copy, made.run, len(pixels), steps)
                self._kept.append(taken)
                if known is None or known.size < taken.size:
                    recorded[key] = taken
            return made._replace(run=turn.around(made.run))
        self._steps.add("plain")
        return None

    def _shared(self, known: Recorded, pixels: Tensor) -> Made | None:
        """What was recorded for a model alike, where it gives this model's answers too."""
        run = Turn(known.copy, known.copy.weights_of(self.model)).around(known.run)
        meant = own_answers(self.model, pixels[:FEW])
        # Nothing is said of it: a pass of its own comes next.
        answers = self._alike(run, pixels, meant, ("joined",))
        if answers is None:
            return None
        self._kept.append(known)
        self._steps |= set(known.steps)
        return Made(run, answers)

    def _fastest(
        self, group: list[Steps], pixels: Tensor, looked: Looked, *, shares: bool
    ) -> tuple[Steps, Made] | None:
        """Of ways with one copy the fastest that gives the answers; none where none does."""
        best: tuple[Steps, Made] | None = None
        least = float("inf")
        try:
            network = self._copy(group[0], pixels[:FEW], looked, shares=shares)
        except torch.OutOfMemoryError:
            raise
        except Exception as problem:  # of whatever kind: not every module can be copied
            self._refuse(problem, group[0])
            return None
        turn = self._turns.get(wanted(group[0]))
        if turn is not None:
            turn.begin()
        for steps in group:
            try:
                run = self._way(steps, network, pixels)
            except torch.OutOfMemoryError:
                if best is None:
                    raise
                break  # there is no room for a second one beside it
            except Exception as problem:  # what cannot be compiled or recorded, ...
                self._refuse(problem, steps)
                continue
            answers = self._alike(run, pixels, looked.answers, steps)
            if answers is None:
                continue
            taken = seconds(run, pixels) if len(group) > 1 else 0.0
            if taken < least:
                best, least = (steps, Made(run, answers)), taken
        return best

    def _alike(self, run: Run, pixels: Tensor, meant: Tensor, steps: Steps) -> Tensor | None:
        """The answers of a way, if they begin with the model's own; says so where not."""
        try:
            answers = run(pixels)
            off = difference(answers[: len(meant)], meant)
        except torch.OutOfMemoryError:
            raise
        except Exception as problem:
            self._refuse(problem, steps)
            return None
        if off < TOLERANCE[self.forward.precision]:
            return answers
        what = named(steps) or self.forward.precision
        self._say(f"{what}: logits differ by {off:.1g} of the largest from fp32", steps)
        return None

    def _way(self, steps: Steps, network: nn.Module, pixels: Tensor) -> Run:
        run: Run = network.forward if network is self.model else network
        if "compiled" in steps:
            run = compiled(network, len(pixels))
        for kernel in set(KERNELS) & set(steps):
            by_kernel(network, kernel)

        tf32 = self.forward.precision == "tf32"  # what is recorded must not hold these passes
        pieces = {"nhwc", "packed"} & set(steps) and not {"compiled", "graph"} & set(steps)

        def eager(images: Tensor) -> Tensor:
            with products(tf32):  # of the whole process: around parts, which may run side by side
                if images.device.type == "cpu" and pieces:
                    apart = keeps_nothing(network)
                    return in_parts(run, images, CPU_PIECE, apart=apart).float()
                return run(images).float()

        return Captured(eager, pixels) if "graph" in steps else eager

    def _copy(self, steps: Steps, few: Tensor, looked: Looked, *, shares: bool) -> nn.Module:
        """The model with all that is done to its weights; made once for all ways."""
        kind, folds = wanted(steps), "nhwc" in steps
        if (kind or (shares and "graph" in steps)) and kind not in self._copies:
            with unheard(self.model), products(tf32=False):
                copy = folded_copy(self.model, looked.pairs) if folds else deepcopy(self.model)
                if folds:
                    seen = ends_seen(copy, few)
                    if not is_folded(looked.answers, seen.answers.float()):
                        raise ValueError("folded batch norms would change its answers")
                    if "joined" in steps and not join_seen(copy, seen.pairs):
                        raise ValueError("no ends to join")
                    if "joined" in steps:
                        with_pools(copy)
                if "tokens" in steps and not with_tokens(copy):
                    raise ValueError("no tower that is known")
                if "packed" in steps:
                    pack(copy, few if folds else None)
            module = self._copies[kind] = normalised(cast(Classifier, copy), half="bf16" in steps)
            pairs = looked.pairs if folds else []
            turn = Turn.first(Copy(module, self.model, pairs), self.model) if shares else None
            if turn is not None:
                self._turns[kind] = turn
        if kind in self._copies:
            return self._copies[kind]
        return normalised(self.model, half=False) if "compiled" in steps else self.model

    def _plain(self, pixels: Tensor) -> Tensor:
        quick = pixels.device.type == "cpu" and not torch.is_grad_enabled()
        with products(tf32=False):
            if quick and first_token.is_known(self.model):
                return first_token.answers(self.model, pixels).float()
            if quick and keeps_nothing(self.model):
                return in_parts(self.model.forward, pixels, CPU_PIECE).float()
            return self.model.forward(pixels).float()

    def _say(self, words: str, steps: Steps) -> None:
        # That a copy which nobody asked for was not used is no news.
        if self.forward != Forward() and set(steps) & set(TOLD) and "joined" not in steps:
            self._said[words] = None

    def _refuse(self, problem: Exception, steps: Steps) -> None:
        what = named(steps) or self.forward.precision
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        self._say(f"{what}: not possible for this model ({reason[:120]})", steps)


def _records(pixels: Tensor) -> bool:
    return pixels.device.type == "cuda"


@lru_cache(maxsize=32)
def kept_passes(model: Classifier, forward: Forward, size: int) -> Passes:
    """The passes of a model whose weights stay as they are; those of the last ones are kept.

    Whoever has asked for many clears them.
    """
    return Passes(model, forward, size)

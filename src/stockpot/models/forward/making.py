"""How the passes of one classifier are made: the fastest way that gives its own answers.

From the fastest way down to the plainest each is tried on pixels; below all of them is the model
itself. What was refused, and why, is remembered for the reader of a result.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from stockpot.models.classifier import Classifier
from stockpot.models.forward.alike import likeness
from stockpot.models.forward.apart import CPU_PIECE, in_parts, keeps_nothing
from stockpot.models.forward.arithmetic import products
from stockpot.models.forward.changed_copy import changed_copy
from stockpot.models.forward.compiled import compiled
from stockpot.models.forward.cuda_graph import Captured
from stockpot.models.forward.ends import by_kernel
from stockpot.models.forward.folding import Looked
from stockpot.models.forward.normalised import normalised
from stockpot.models.forward.options import Forward
from stockpot.models.forward.own_answers import (
    FEW,
    TOLERANCE,
    difference,
    own_answers,
    own_look,
)
from stockpot.models.forward.plain_twin import plain_twin
from stockpot.models.forward.turns import Copy, Recorded, Run, Turn, recorded
from stockpot.models.forward.ways import KERNELS, TOLD, Steps, groups, named, seconds, wanted

HALVES = {torch.float16: "fp16", torch.bfloat16: "bf16"}
"""Weights in half precision, by name; such a model is taken as it is."""


class Made(NamedTuple):
    """A way to make passes, and what it answered to the pixels for which it was made."""

    run: Run
    answers: Tensor


class Making:
    """The ways of one classifier that were made, and what is known of those that were not."""

    def __init__(self, model: Classifier, forward: Forward) -> None:
        """Nothing is made yet.

        Args:
            model: as for `Passes`.
            forward: precision and compilation.
        """
        self.model, self.forward = model, forward
        self._base = model
        """What copies are made of: the model, or a plain network over its weights."""
        self.said: dict[str, None] = {}
        """Ways that could not be gone, for a reader."""
        self.steps: set[str] = set()
        """Of the ways that were made; `plain` where the model itself runs."""
        self.refused = False
        """Whether any way was found not to do, whether that is said or not."""
        self._copies: dict[str, nn.Module] = {}
        self._turns: dict[str, Turn] = {}
        self._kept: list[Recorded] = []

    def forget(self) -> None:
        """Keep nothing that takes memory; what was said stays said."""
        self._copies.clear()
        self._turns.clear()
        self._kept.clear()

    def confirmed(self, run: Run, pixels: Tensor) -> Tensor | None:
        """The answers of a way that was made for others, if they are the model's own too.

        Nothing is said where they are not: a way of its own comes next.
        """
        return self._alike(run, pixels, own_answers(self.model, pixels[:FEW]), ("joined",))

    def made(self, pixels: Tensor) -> Made | None:
        """The fastest way that gives the model's own answers to these pixels; none but itself."""
        if not any(True for _ in self.model.parameters()):
            # There is nothing to change in a model that can only be asked.
            self.steps.add("plain")
            self._say(f"{self.forward.precision}: the model is asked as it is", TOLD)
            return None
        # A model in half precision is taken as it is.
        halves = any(value.dtype in HALVES for value in self.model.parameters())
        if halves or not len(pixels):
            return None
        looked = self._choose_base(pixels[:FEW])
        ways = list(groups(self._base, self.forward, records=_records(pixels)))
        if not ways:
            return None
        like = likeness(self._base) if _records(pixels) else None
        key = like and (like, self.forward, pixels.shape[1:], pixels.dtype)
        known = recorded.get(key) if key else None
        if known is not None and known.size >= len(pixels):
            shared = self._shared(known, pixels)
            if shared is not None:
                return shared
        looked = looked or own_look(self._base, pixels[:FEW])
        for group in ways:
            found = self._fastest(group, pixels, looked, shares=key is not None)
            if found is None:
                continue
            steps, made = found
            self.steps |= set(steps)
            turn = self._turns.get(wanted(steps))
            if turn is None:
                return made
            if "graph" in steps:
                taken = Recorded(turn.copy, made.run, len(pixels), steps)
                self._kept.append(taken)
                if known is None or known.size < taken.size:
                    recorded[key] = taken
            return made._replace(run=turn.around(made.run))
        self.steps.add("plain")
        return None

    def _choose_base(self, few: Tensor) -> Looked | None:
        """Find what copies are made of; what a plain network shows, where that is new."""
        twin = plain_twin(self.model)
        if twin is None:
            self._base = self.model
            return None
        looked = own_look(twin, few)
        alike = difference(looked.answers, own_answers(self.model, few)) < TOLERANCE["fp32"]
        self._base = twin if alike else self.model
        return looked if alike else None

    def _shared(self, known: Recorded, pixels: Tensor) -> Made | None:
        """What was recorded for a model alike, where it gives this model's answers too."""
        run = Turn(known.copy, known.copy.weights_of(self._base)).around(known.run)
        answers = self.confirmed(run, pixels)
        if answers is None:
            return None
        self._kept.append(known)
        self.steps |= set(known.steps)
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
        self.refused = True
        what = named(steps) or self.forward.precision
        self._say(f"{what}: logits differ by {off:.1g} of the largest from fp32", steps)
        return None

    def _way(self, steps: Steps, network: nn.Module, pixels: Tensor) -> Run:
        run: Run = network.forward if network is self._base else network
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
            module = self._copies[kind] = changed_copy(self._base, steps, few, looked)
            pairs = looked.pairs if folds else []
            turn = Turn.first(Copy(module, self._base, pairs), self._base) if shares else None
            if turn is not None:
                self._turns[kind] = turn
        if kind in self._copies:
            return self._copies[kind]
        return normalised(self._base, half=False) if "compiled" in steps else self._base

    def _say(self, words: str, steps: Steps) -> None:
        # That a copy which nobody asked for was not used is no news.
        if self.forward != Forward() and set(steps) & set(TOLD) and "joined" not in steps:
            self.said[words] = None

    def _refuse(self, problem: Exception, steps: Steps) -> None:
        self.refused = True
        what = named(steps) or self.forward.precision
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        self._say(f"{what}: not possible for this model ({reason[:120]})", steps)


def _records(pixels: Tensor) -> bool:
    return pixels.device.type == "cuda"

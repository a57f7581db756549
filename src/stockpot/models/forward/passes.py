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

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stockpot.engine.current import as_current
from stockpot.models.classifier import Classifier
from stockpot.models.forward import first_token
from stockpot.models.forward.apart import CPU_PIECE, in_parts, keeps_nothing
from stockpot.models.forward.arithmetic import products
from stockpot.models.forward.making import HALVES, Made, Making
from stockpot.models.forward.memory import Halving
from stockpot.models.forward.options import Forward
from stockpot.models.forward.turns import Run
from stockpot.models.forward.ways import KERNELS
from stockpot.results.schema import ForwardFacts


class Prepared(NamedTuple):
    """A way that was made on noise, for pixels of a kind, at most so many."""

    kind: tuple[Any, ...]
    size: int
    run: Run


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
        self._making = Making(model, self.forward)
        self._prepared: Prepared | None = None

    def prepare(self, shape: tuple[int, ...], count: int) -> Tensor | None:
        """Make the passes while there are no pixels yet, on noise; gives the answers to it.

        Nobody need believe it: the first pixels are compared with the model's own answers to them
        as ever. Only what was made without any refusal is kept, so that a result never depends on
        this. None where nothing was made; whatever the reason, it is then as if nobody had asked.

        Args:
            shape: of one image, whose pixels will be bytes.
            count: how many will come first.
        """
        if self._runs or self._prepared is not None:
            return None
        try:
            device, count = self.model.device, min(count, self._halving.size)
            draws = torch.Generator(device).manual_seed(0)
            noise = torch.randint(
                256, (count, *shape), generator=draws, dtype=torch.uint8, device=device
            )
            with as_current(device):
                made = self._making.made(noise)
        except Exception:  # of whatever kind: it is made again for pixels, and then it is heard
            made = None
        if made is None or self._making.refused:
            self._making = Making(self.model, self.forward)
            return None
        self._prepared = Prepared(_kind(noise), count, made.run)
        return made.answers

    def __call__(self, pixels: Tensor) -> Tensor:
        """Logits of the pixels in float32, on their device."""
        parts: list[Tensor] = []
        start = 0
        while start < len(pixels) or not parts:
            part = pixels[start : start + self._halving.size]
            try:
                with as_current(part.device):
                    parts.append(self._answers(part))
            except torch.OutOfMemoryError as problem:
                kept_passes.cache_clear()
                self._runs.clear()
                self._making.forget()
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
        return [*self._making.said, *self._halving.notes]

    @property
    def facts(self) -> ForwardFacts:
        """How the passes were made."""
        weights = {value.dtype for value in self.model.parameters()} & set(HALVES)
        own = HALVES[weights.pop()] if weights else None
        steps = self._making.steps
        return ForwardFacts(
            precision=own or (self.forward.precision if "plain" not in steps else "fp32"),
            compiled="compiled" in steps,
            folded="folded" in steps,
            fused=next((kernel for kernel in KERNELS[:2] if kernel in steps), False),
            graph="graph" in steps,
            memory_format="channels_last" if "nhwc" in steps else "contiguous",
            batch_size=self._halving.size,
        )

    def _answers(self, pixels: Tensor) -> Tensor:
        kind = _kind(pixels)
        known = self._runs.get(kind)
        # What is recorded or compiled takes as many images as it was made with, or fewer.
        if known is not None and known[0] >= len(pixels):
            return known[1](pixels)
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            fits = prepared.kind == kind and 0 < len(pixels) <= prepared.size
            answers = self._making.confirmed(prepared.run, pixels) if fits else None
            if answers is not None:
                self._runs[kind] = prepared.size, prepared.run
                return answers
            self._making = Making(self.model, self.forward)
        made = self._making.made(pixels)
        if made is None:
            made = Made(self._plain, self._plain(pixels))
        self._runs[kind] = len(pixels), made.run
        return made.answers

    def _plain(self, pixels: Tensor) -> Tensor:
        quick = pixels.device.type == "cpu" and not torch.is_grad_enabled()
        with products(tf32=False):
            if quick and first_token.is_known(self.model):
                return first_token.answers(self.model, pixels).float()
            if quick and keeps_nothing(self.model):
                return in_parts(self.model.forward, pixels, CPU_PIECE).float()
            return self.model.forward(pixels).float()


def _kind(pixels: Tensor) -> tuple[Any, ...]:
    return (*pixels.shape[1:], pixels.dtype)


@lru_cache(maxsize=32)
def kept_passes(model: Classifier, forward: Forward, size: int) -> Passes:
    """The passes of a model whose weights stay as they are; those of the last ones are kept.

    Whoever has asked for many clears them.
    """
    return Passes(model, forward, size)

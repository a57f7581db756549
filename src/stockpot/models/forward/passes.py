"""Forward passes of one classifier, as fast as its device allows, with the same answers.

    run = Passes(model, Forward("bf16"), size=512)
    logits = run(pixels)          # uint8 or float pixels, NCHW, any number; float32 logits

A copy of the model is made at the first batch: batch norms folded into convolutions, NHWC, in the
precision that was chosen, compiled where that was asked for; on a GPU with bias, sum and ReLU in
one kernel, and recorded as a graph. Its answers to a few images must be those of the model itself
in full precision up to `TOLERANCE`; where they are not, or a step is not possible, the next plainer
way is gone, and the result says so where a chosen precision or compilation was lost.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from stockpot.models.classifier import Classifier
from stockpot.models.forward.arithmetic import products
from stockpot.models.forward.cuda_graph import Captured
from stockpot.models.forward.ends import fuse_ends
from stockpot.models.forward.folding import folded
from stockpot.models.forward.memory import Halving
from stockpot.models.forward.normalised import normalised
from stockpot.models.forward.options import Forward
from stockpot.results.schema import ForwardFacts

Run = Callable[[Tensor], Tensor]

TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}
"""The most by which a logit may differ from full precision, as a share of the largest one."""
_FEW = 16
_CPU_PIECE = 64
"""Images whose activations stay in a processor's cache."""
_NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


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
        self._said: dict[str, None] = {}
        self._steps: set[str] = set()

    def __call__(self, pixels: Tensor) -> Tensor:
        """Logits of the pixels in float32, on their device."""
        parts: list[Tensor] = []
        start = 0
        while start < len(pixels) or not parts:
            part = pixels[start : start + self._halving.size]
            try:
                parts.append(self._run_of(part)(part))
            except torch.OutOfMemoryError as problem:
                kept_passes.cache_clear()
                self._runs.clear()
                self._copies.clear()
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
            fused="fused" in self._steps,
            graph="graph" in self._steps,
            memory_format="channels_last" if "nhwc" in self._steps else "contiguous",
            batch_size=self._halving.size,
        )

    def _run_of(self, pixels: Tensor) -> Run:
        kind = (*pixels.shape[1:], pixels.dtype)
        known = self._runs.get(kind)
        # What is recorded or compiled takes as many images as it was made with, or fewer.
        if known is None or known[0] < len(pixels):
            known = self._runs[kind] = len(pixels), self._made(pixels)
        return known[1]

    def _made(self, pixels: Tensor) -> Run:
        """The first way that gives the model's own answers to these pixels."""
        ways = list(self._ways(pixels))
        # A model in half precision is taken as it is.
        halves = any(value.dtype in _NAMES for value in self.model.parameters())
        if halves or not ways or not len(pixels):
            return self._plain
        few = pixels[:_FEW]
        meant = self._plain(few)
        for steps in ways:
            what = ", ".join(step for step in steps if step in _TOLD) or self.forward.precision
            try:
                run = self._way(steps, pixels)
                off = _difference(run(pixels)[: len(few)], meant)
            except torch.OutOfMemoryError:
                raise
            except Exception as problem:  # of whatever kind: not every module can be copied, ...
                reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
                self._say(f"{what}: not possible for this model ({reason[:120]})", steps)
                continue
            if off < TOLERANCE[self.forward.precision]:
                self._steps |= set(steps)
                return run
            self._say(f"{what}: logits differ by {off:.1g} of the largest from fp32", steps)
        self._steps.add("plain")
        return self._plain

    def _ways(self, pixels: Tensor) -> Iterator[tuple[str, ...]]:
        """From the fastest way to the plainest; below all of them is the model itself."""
        cuda = pixels.device.type == "cuda"
        copied: tuple[str, ...] = ("nhwc",) if _has(self.model, nn.Conv2d, 2) else ()
        copied += ("folded",) if copied and _has(self.model, nn.BatchNorm2d, 1) else ()
        if self.forward.precision != "fp32":
            copied = (*copied, self.forward.precision)
        if self.forward.compile:
            yield (*copied, "compiled", "graph") if cuda else (*copied, "compiled")
        if cuda and "nhwc" in copied:
            yield (*copied, "fused", "graph")
        if cuda:
            yield (*copied, "graph")
        if copied:
            yield copied
        if len(copied) > 1 and self.forward.precision != "fp32":
            yield (self.forward.precision,)

    def _way(self, steps: tuple[str, ...], pixels: Tensor) -> Run:
        network: nn.Module = self._copy(steps, pixels)
        run: Run = network.forward if network is self.model else network
        exact = self.forward.precision != "tf32"
        if "compiled" in steps:
            run = _compiled(network, len(pixels))

        def eager(images: Tensor) -> Tensor:
            with products(tf32=not exact):
                return run(images).float()

        if "graph" in steps:
            return Captured(eager, pixels)
        if pixels.device.type == "cpu" and "nhwc" in steps and "compiled" not in steps:
            return lambda images: torch.cat(
                [eager(part) for part in torch.split(images, _CPU_PIECE)]
            )
        return eager

    def _copy(self, steps: tuple[str, ...], pixels: Tensor) -> nn.Module:
        """The model with all that is done to its weights; made once for all ways."""
        half = "bf16" in steps
        wanted = "+".join(step for step in steps if step in ("nhwc", "bf16", "fused"))
        if wanted and wanted not in self._copies:
            with _unheard(self.model), products(tf32=False):
                made = folded(self.model, pixels[:_FEW]) if "nhwc" in steps else self.model
                if made is self.model and "nhwc" in steps:
                    raise ValueError("folded batch norms would change its answers")
                copy = deepcopy(self.model) if made is self.model else made
                if "fused" in steps and not fuse_ends(cast(nn.Module, copy), pixels[:2]):
                    raise ValueError("no ends to fuse")
            self._copies[wanted] = normalised(cast(Classifier, copy), half=half)
        if wanted:
            return self._copies[wanted]
        return normalised(self.model, half=False) if "compiled" in steps else self.model

    def _plain(self, pixels: Tensor) -> Tensor:
        with products(tf32=False):
            return self.model.forward(pixels).float()

    def _say(self, words: str, steps: tuple[str, ...]) -> None:
        # That a copy which nobody asked for was not used is no news.
        if self.forward != Forward() and set(steps) & set(_TOLD) and "fused" not in steps:
            self._said[words] = None


_TOLD = ("compiled", "bf16", "tf32")


@lru_cache(maxsize=32)
def kept_passes(model: Classifier, forward: Forward, size: int) -> Passes:
    """The passes of a model whose weights stay as they are; those of the last ones are kept.

    Whoever has asked for many clears them.
    """
    return Passes(model, forward, size)


@contextmanager
def _unheard(model: nn.Module) -> Iterator[None]:
    """Nobody listens to the model meanwhile, and copies of it have no listeners."""
    listeners = model._forward_hooks
    model._forward_hooks = OrderedDict()
    try:
        yield
    finally:
        model._forward_hooks = listeners


def _has(model: nn.Module, kind: type[nn.Module], least: int) -> bool:
    """Whether there are so many layers; one convolution only cuts a picture into patches."""
    return sum(isinstance(module, kind) for module in model.modules()) >= least


def _compiled(network: nn.Module, size: int) -> Run:
    """Every new number of images would be compiled anew, so a short batch is filled up."""
    run = torch.compile(network, dynamic=False)

    def filled(pixels: Tensor) -> Tensor:
        rows = len(pixels)
        # A tensor of its own: views of others would be compiled for apart.
        rest = pixels[-1:].expand(size - rows, *pixels.shape[1:])
        with _without_limit():
            logits: Tensor = run(torch.cat([pixels, rest]))
        return logits[:rows]

    return filled


def _without_limit() -> AbstractContextManager[None]:
    """The limit counts all models of a process, and beyond it nothing would be compiled."""
    from torch._dynamo import config

    return config.patch(recompile_limit=1 << 16, accumulated_recompile_limit=1 << 16)  # type: ignore[no-any-return]


def _difference(found: Tensor, meant: Tensor) -> float:
    scale = meant.abs().amax().clamp(min=1e-12)
    return float((found - meant).abs().amax() / scale)

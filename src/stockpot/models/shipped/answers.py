"""A network that can only be asked: pixels in, logits out, and nothing to be seen inside.

What is behind it (a runtime, a server, a function of somebody else) has no weights here and gives
no gradients. Whoever wants a gradient is told so in one line, in the backward pass, where it is
wanted: looks at the model, of which clean accuracy, corruptions, random searches and votes of views
are made, never come there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stockpot.errors import BadCheckpointError, UserError

Pixels = NDArray[np.float32]
Ask = Callable[[Pixels], Any]
"""From N x 3 x H x W floats to N x classes numbers."""


class Answers(nn.Module):
    """What is asked, as a module without parameters."""

    def __init__(self, ask: Ask, what: str) -> None:
        """Nothing is asked yet.

        Args:
            ask: gives the answers.
            what: the model in words, for messages: `model.onnx (ONNX)`.
        """
        super().__init__()
        self.ask = ask
        self.what = what
        # Without weights there is nothing else to tell on which device answers are wanted.
        self.register_buffer("place", torch.empty(0), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = _Asked.apply(pixels, self)  # type: ignore[no-untyped-call]
        return logits

    def answers(self, pixels: Tensor) -> Tensor:
        """The logits in float32, on the device of the pixels."""
        given = np.ascontiguousarray(pixels.detach().to("cpu", torch.float32).numpy())
        found = self.ask(given)
        found = found.detach().cpu().numpy() if isinstance(found, Tensor) else np.asarray(found)
        if found.ndim != 2 or len(found) != len(given) or found.dtype.kind not in "fiu":
            raise BadCheckpointError(
                f"{self.what}: expected {len(given)} rows of logits for {len(given)} images, got "
                f"{found.dtype} of shape {tuple(found.shape)}."
            )
        return torch.from_numpy(found.astype(np.float32)).to(pixels.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Nothing in it changes, and a session or a connection cannot be copied.
        return self


class _Asked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pixels: Tensor, network: Answers) -> Tensor:
        ctx.what = network.what
        return network.answers(pixels)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NoGradientError(ctx.what)


class NoGradientError(UserError):
    """A gradient was wanted of a model that can only be asked."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} gives answers and no gradients, which are needed here.",
            hint="Searches without them are there (adversarial: method=square); the model that it "
            "was made from may have them.",
        )


def want_gradients(model: nn.Module) -> None:
    """Raise for a model that can only be asked, before anything is loaded for a search."""
    for module in model.modules():
        if isinstance(module, Answers):
            raise NoGradientError(module.what)


def only_asked(model: nn.Module) -> bool:
    """Whether a model, or what it wraps, can only be asked."""
    return any(isinstance(module, Answers) for module in model.modules())

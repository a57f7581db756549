"""The model under audit: what it is asked is counted, and what it answers is watched."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stockpot.attack.checks.forward_pass import modules_behind
from stockpot.attack.victim import Victim
from stockpot.models.forward.folding import Model
from stockpot.score.predictions import finite


@dataclass
class Subject:
    """A model that can always be differentiated, even where that gives nothing.

    One that cuts its output off from its input would stop a search with an error; here its
    gradient is zero, and `cut` says so.
    """

    model: Model
    look: Model
    """The model with pixels in the precision that it takes."""
    seen: int = 0
    """Forward passes, counted in images."""
    broken: int = 0
    """Outputs that were NaN or infinite."""
    cut: bool = False
    """Whether an output had no gradient with respect to its input."""

    @classmethod
    def of(cls, model: Model, pixels: Tensor, given: torch.dtype) -> Subject:
        """A model for some pictures, which came in a precision that it may want."""
        victim = Victim(model)
        victim.prepare(pixels, given)
        return cls(model, victim.once)

    def __call__(self, pixels: Tensor) -> Tensor:
        outputs = self.look(pixels)
        outputs = outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
        self.seen += len(pixels)
        self.broken += int((~finite(outputs.detach())).sum())
        if not pixels.requires_grad or outputs.requires_grad:
            return outputs
        self.cut = True
        return outputs + 0 * pixels.flatten(1).sum(dim=1, keepdim=True)

    def logits(self, pixels: Tensor) -> Tensor:
        """Outputs without gradients."""
        with torch.no_grad():
            return torch.cat([self(part) for part in torch.split(pixels, 64)]).float()


def untouched_copy(model: Model) -> Model | None:
    """The model as it was before anybody asked it; nothing where it cannot be copied."""
    if not isinstance(model, nn.Module):
        return None
    try:
        return copy.deepcopy(model)
    except Exception:  # whatever a stranger's module holds: then this is not asked
        return None


def state_of(model: Model) -> dict[tuple[int, str], Hashable]:
    """The plain values and tensors that the modules behind a model hold, as short texts."""
    found: dict[tuple[int, str], Hashable] = {}
    for number, module in enumerate(modules_behind(model)):
        tensors = {**dict(module.named_parameters(recurse=False)),
                   **dict(module.named_buffers(recurse=False))}  # fmt: skip
        for name, value in {**vars(module), **tensors}.items():
            if isinstance(value, Tensor):
                sums = value.detach().double()
                # As text, in which NaN equals itself.
                found[number, name] = (
                    f"{value.shape} {float(sums.sum())} {float(sums.square().sum())}"
                )
            elif isinstance(value, int | float | str | bool):
                found[number, name] = value
    return found

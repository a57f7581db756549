"""What a GPU's work needs is loaded beside what is done meanwhile: reading models, decoding."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def load_libraries(device: torch.device) -> None:
    """Load what networks do on a GPU, by doing each once, and Triton.

    A kernel is loaded at its first use, which takes longer than a batch does later.
    """
    if device.type == "cuda":
        _beside(_know_triton, device)
        _beside(_use, device)
        _beside(_judge, device)


def _use(device: torch.device) -> None:
    import torch
    import torch.nn.functional as F

    try:
        for dtype in (torch.float32, torch.bfloat16):
            values = torch.ones(1, 8, 8, 8, dtype=dtype, device=device)
            torch.conv2d(values, values)
            torch.mm(values[0, 0], values[0, 0])
            tokens = torch.ones(1, 1, 64, 64, dtype=dtype, device=device)  # of one usual head
            F.gelu(F.layer_norm(tokens, (64,)) + tokens)
            F.linear(tokens, tokens[0, 0], tokens[0, 0, 0])
            F.scaled_dot_product_attention(tokens, tokens, tokens)
            torch.cat((tokens, tokens), dim=1)
        pixels = torch.zeros(1, 3, 8, 8, dtype=torch.uint8, device=device).float() / 255
        (pixels - pixels[:, :, :1, :1]) / pixels[:, :, :1, :1]
    except RuntimeError:
        return  # who needs it will hear


def _judge(device: torch.device) -> None:
    """What is done with answers: whether each is one, which is the best, how sure and how wrong."""
    import torch
    import torch.nn.functional as F

    try:
        logits = torch.ones(16, 1000, device=device)
        labels = torch.zeros(16, dtype=torch.long, device=device)
        known = logits.amax(dim=1).isfinite() & logits.amin(dim=1).isfinite()
        best = torch.where(known, logits.argmax(dim=1), -1)[:, None]
        logits.clone().scatter_(1, best, -torch.inf)
        best = torch.where(best == -1, -1, torch.cat([best] * 5, dim=1))
        ((best[:, :, None] == labels[:, None, None]) & (best != -1)[:, :, None]).any(dim=2)
        torch.where(known, F.cross_entropy(logits, labels, reduction="none"), torch.inf)
        logits.softmax(dim=1).amax(dim=1)
        (~known).sum()
    except RuntimeError:
        return  # who needs it will hear


def _know_triton(device: torch.device) -> None:
    """Triton asks its compiler who it is, and the driver, before it runs the first kernel."""
    try:
        from stockpot.engine.first_kernel import run_first_kernel

        run_first_kernel(device)
    except Exception:  # of whatever kind: there may be none, or no compiler
        return


def _beside(work: Callable[..., object], *given: object) -> None:
    # Not a daemon: a process that ended while torch is at work would be aborted.
    threading.Thread(target=work, args=given, name="gpu start").start()

"""Which device to use, and what it is called in results."""

from __future__ import annotations

import torch

from stockpot.errors import BadParameterError


def pick_device(name: str) -> torch.device:
    """`auto` is the first accelerator there is, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # `meta` is a device too, and holds no values
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        reason = str(problem).strip().splitlines()[0]
        known = "device type at start of device string" not in reason
        raise BadParameterError(
            f"device: expected one that torch can use here, got {name!r}"
            + (f" ({reason.rstrip('.')})." if known else "."),
            hint="Known: auto, cpu, cuda, cuda:0, mps, ...",
        ) from problem
    return device


def device_name(device: torch.device) -> str:
    """The device in words, such as `NVIDIA H200` or `cpu, 2 threads`."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"

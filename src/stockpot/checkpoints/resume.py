"""The state of a long piece of work on disk, written atomically so that a kill loses little.

Work that is resumed from here comes to the same weights as work that was never stopped: everything
random is derived from (seed, step), or its generator's state is kept.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from stockpot.checkpoints.state_dict import read_torch_file
from stockpot.errors import BadCheckpointError
from stockpot.files import write_atomic


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values in torch's format."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomic(path, buffer.getvalue())


def read_state(path: Path) -> dict[str, Any] | None:
    """The saved state, or None when there is none."""
    if not path.exists():
        return None
    # Not mapped: the file is soon replaced by the state of a later step.
    state: dict[str, Any] = read_torch_file(path, mapped=False)
    return state


def load_state(path: Path, question: str) -> dict[str, Any] | None:
    """The saved state, or None when there is none; one of another run is refused."""
    state = read_state(path)
    if state is not None and state.get("question") != question:
        raise BadCheckpointError(
            f"{path} belongs to a run with other settings.",
            hint="Choose another output folder, or start anew with --fresh.",
        )
    return state

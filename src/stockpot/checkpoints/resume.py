"""The state of a long piece of work on disk, written atomically so that a kill loses little.

Work that is resumed from here comes to the same weights as work that was never stopped: everything
random is derived from (seed, step), or its generator's state is kept.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from stockpot.checkpoints.state_dict import read_torch_file
from stockpot.errors import BadCheckpointError
from stockpot.files import write_atomic
from stockpot.stages import stage


@stage("write")
def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values in torch's format."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomic(path, buffer.getvalue())


def read_state(path: Path) -> dict[str, Any] | None:
    """The saved state, or None when there is none; a damaged one is complained of."""
    if not path.exists():
        return None
    try:
        with zipfile.ZipFile(path) as parts:
            changed = parts.testzip()
    except (OSError, zipfile.BadZipFile) as problem:
        raise BadCheckpointError(f"{path} cannot be read: {problem}.") from problem
    if changed is not None:
        raise BadCheckpointError(f"{path} was changed on disk: {changed} has another checksum.")
    # Not mapped: the file is soon replaced by the state of a later step.
    state: dict[str, Any] = read_torch_file(path, mapped=False)
    return state


def load_state(path: Path, question: str) -> dict[str, Any] | None:
    """The saved state of this very work; None, with a warning, where it belongs to other work."""
    try:
        state = read_state(path)
    except BadCheckpointError as problem:
        path.unlink(missing_ok=True)
        warnings.warn(f"{problem} The training starts anew.", UserWarning, stacklevel=2)
        return None
    if state is not None and state.get("question") != question:
        path.unlink(missing_ok=True)  # going on from it would mix two trainings
        message = f"{path} was of a training with other settings or inputs; it starts anew."
        warnings.warn(message, UserWarning, stacklevel=2)
        return None
    return state

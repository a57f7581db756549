"""Weights of a torch file as safetensors, by a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stockpot.errors import BadCheckpointError

_PACKAGES = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Extracted:
    """What became of a file."""

    tensors: int
    taken: str
    """The key of the state dict in the file; empty where it is the whole file."""
    left_out: Mapping[str, str]
    others: Mapping[str, int]
    """Further state dicts in the file: key -> tensors."""
    foreign: tuple[str, ...]
    """Functions and classes that the file names, of which none was run."""


def extract(path: Path, out: Path, *, key: str | None = None) -> Extracted:
    """Write the weights of a torch file as safetensors; nothing in the file is run.

    Args:
        path: a file of `torch.save`, or a TorchScript file.
        out: the file to write, which must not exist.
        key: where the state dict stands, with dots between keys; by default the usual places.
    """
    asked = [] if key is None else [key]
    # The same package as here, wherever one stands; paths of the environment may be relative.
    paths = [str(_PACKAGES), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        # Without -P a folder one stands in could bring its own modules.
        [sys.executable, "-P", "-m", f"{__package__}", str(path), str(out), *asked],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    try:
        said = json.loads(done.stdout)
    except ValueError:
        reason = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        raise BadCheckpointError(f"{path}: the process that reads it failed: {reason}") from None
    if "error" in said:
        raise BadCheckpointError(said["error"], hint=said.get("hint", ""))
    return Extracted(
        said["tensors"], said["taken"], said["left_out"], said["others"], tuple(said["foreign"])
    )

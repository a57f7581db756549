"""Where a learner stands, kept beside the folder it will write, so that a kill loses little.

A method walks its steps with `TaskPool.walk` and names what changes in them: optimisers, masks, the
draws of images. From time to time their states are saved; the next call with the same question
begins there and comes to the same weights. A bookmark of another question is written over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from stockpot.checkpoints.resume import read_state, save_state
from stockpot.engine.interrupt import stop_asked
from stockpot.errors import BadCheckpointError

EVERY_SECONDS = 20.0
"""Between two savings, at least."""
TIMES_ITS_COST = 20.0
"""And this many times what the last one took, so that large states do not slow the learning."""


class Stateful(Protocol):
    """What can be saved and brought back: an optimiser, a module, `Values`, ..."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> object:
        """Become what was saved."""
        ...


class Values:
    """Tensors that a method changes in place."""

    def __init__(self, **tensors: Tensor) -> None:
        self._tensors = tensors

    def state_dict(self) -> dict[str, Any]:
        """Their values."""
        return {name: tensor.detach() for name, tensor in self._tensors.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put values in their place."""
        for name, tensor in self._tensors.items():
            tensor.data.copy_(state[name])


class Losses(list[Tensor]):
    """The loss of every step; on a GPU nothing waits for its value."""

    def state_dict(self) -> dict[str, Any]:
        """All of them, as one tensor."""
        return {"losses": torch.stack([loss.cpu() for loss in self]) if self else torch.zeros(0)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Those of the steps that were done."""
        self[:] = state["losses"].unbind()


class Bookmark:
    """A file that says how far a learner came; without a path nothing is kept."""

    def __init__(self, path: Path | None = None, ask: Callable[[], str] = str) -> None:
        """Nothing is read before a method walks.

        Args:
            path: the file.
            ask: gives what tells this piece of learning from every other.
        """
        self._path = path
        self._ask = ask
        self._finished: list[str] = []
        self._due = time.monotonic() + EVERY_SECONDS

    @cached_property
    def _question(self) -> str:
        return self._ask()

    @cached_property
    def _saved(self) -> dict[str, Any] | None:
        try:
            found = read_state(self._path) if self._path is not None else None
        except BadCheckpointError:
            return None  # what cannot be read cannot be gone on from
        return found if found is not None and found["question"] == self._question else None

    def restore(self, stage: str, steps: int, parts: Mapping[str, Stateful]) -> int:
        """Bring the parts to where they were; returns the number of steps that are done."""
        saved = self._saved
        if saved is None or (saved["stage"] != stage and stage not in saved["finished"]):
            return 0
        for name in parts.keys() & saved["parts"].keys():
            parts[name].load_state_dict(saved["parts"][name])
        if saved["stage"] != stage:
            return steps
        self._saved = None  # read for the last time, and it may be large
        return int(saved["step"])

    @property
    def is_kept(self) -> bool:
        """Whether steps are saved at all."""
        return self._path is not None

    def keep(self, stage: str, step: int, parts: Mapping[str, Stateful]) -> None:
        """Save the parts, if it is time to."""
        if self._path is None or (time.monotonic() < self._due and not stop_asked()):
            return
        start = time.monotonic()
        states = {name: part.state_dict() for name, part in parts.items()}
        save_state(
            self._path,
            {"question": self._question, "stage": stage, "step": step,
             "finished": list(self._finished), "parts": states},
        )  # fmt: skip
        self._due = time.monotonic() + max(
            EVERY_SECONDS, TIMES_ITS_COST * (time.monotonic() - start)
        )

    def finish(self, stage: str) -> None:
        """A stage is over; bookmarks of later ones say so."""
        self._finished.append(stage)


def bookmark_of(out: Path, label: str) -> Path:
    """Where the bookmark of one point of a fusion into `out` lies."""
    return out.with_name(".".join(["", out.name, *([label] if label else []), "learning"]))

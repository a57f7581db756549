"""What a training is between two steps: all that one needs that goes on from there."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stockpot.checkpoints.resume import load_state, save_state
from stockpot.harden.many.processes import from_first, is_first
from stockpot.harden.many.sharded import load_optimiser, load_weights, whole
from stockpot.harden.objective import Remembers
from stockpot.harden.selection import deciding
from stockpot.models.classifier import Classifier


@dataclass(frozen=True)
class Resume:
    """Where the state of a run is kept, and after how many steps or seconds it is written."""

    path: Path
    every: int = 1000
    seconds: float = 60.0


def question_of(*settings: object) -> str:
    """What decides the weights of every step, in short: another training's state is not gone on
    with."""
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()


@dataclass
class State:
    """Weights, and what moves and judges them."""

    question: str
    model: Classifier
    optimiser: torch.optim.Optimizer
    averaged: Classifier | None
    """An average of the weights over steps."""
    memory: Remembers | None
    """What the objective remembers."""
    resume: Resume | None
    """Nothing is written without it."""
    losses: Tensor = field(init=False)
    """Of the epoch so far: their sum, and how many."""
    seen: dict[str, float] = field(default_factory=dict)
    """What was seen at the end of the last epoch."""
    best: dict[str, Any] = field(
        default_factory=lambda: {"score": -1.0, "weights": None, "step": 0}
    )
    _written: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.losses = torch.zeros(2, device=self.model.device)

    def read(self) -> int:
        """Go on where an earlier run of the same training stopped; the steps that were made."""
        last = load_state(self.resume.path, self.question) if self.resume and is_first() else None
        state = from_first(last)
        if not state:
            return 0
        load_weights(self.model, state["model"])
        load_optimiser(self.optimiser, state["optimiser"])
        self.losses, self.best = state["losses"].to(self.model.device), state["best"]
        # A training that was killed at its very end has only this to tell.
        self.seen = state.get("seen", {})
        if self.averaged is not None:
            self.averaged.load_state_dict(state["averaged"])
        if self.memory is not None and state["objective"] is not None:
            self.memory.load_state_dict(state["objective"])
        return int(state["step"])

    def add(self, loss: Tensor) -> None:
        """Count the loss of a step; nobody waits for its value."""
        self.losses = self.losses + torch.stack([loss.float(), loss.new_ones(()).float()])

    @property
    def loss(self) -> float:
        """The mean loss of the epoch so far."""
        return float(self.losses[0] / self.losses[1])

    def end_epoch(self) -> None:
        """Note the mean loss, and begin a new one."""
        self.seen = {"loss": self.loss}
        self.losses = torch.zeros_like(self.losses)

    @property
    def judged(self) -> Classifier:
        """The weights that validation looks at."""
        return self.model if self.averaged is None else self.averaged

    def keep_if_best(self, found: dict[str, float], step: int) -> None:
        """Keep these weights where validation says that none were better."""
        if deciding(found) > self.best["score"]:
            held = whole(self.judged.state_dict())
            weights = {name: values.cpu().clone() for name, values in held.items()}
            self.best = {"score": deciding(found), "weights": weights, "step": step} | found

    @property
    def is_old(self) -> bool:
        """Whether what lies on disk is older than it may be."""
        since = time.monotonic() - self._written
        return self.resume is not None and is_first() and since > self.resume.seconds

    def write(self, step: int) -> None:
        """Write all of it; in shards every process has a part in that."""
        self._written = time.monotonic()
        now = {
            "question": self.question,
            "step": step,
            "model": whole(self.model.state_dict()),
            "optimiser": whole(self.optimiser.state_dict()),
            "averaged": self.averaged.state_dict() if self.averaged is not None else None,
            "objective": self.memory.state_dict() if self.memory is not None else None,
            "losses": self.losses,
            "best": self.best,
            "seen": self.seen,
        }
        if self.resume is not None and is_first():
            save_state(self.resume.path, now)

    def settle(self) -> None:
        """Give the model the weights that the training is for: the average, or the best."""
        if self.averaged is not None:
            self.model.load_state_dict(self.averaged.state_dict())
        if self.best["weights"] is not None:
            load_weights(self.model, self.best["weights"])

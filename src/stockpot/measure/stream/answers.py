"""What a model answered along a stream, and the scores of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.measure.measurement import proportion, with_interval
from stockpot.measure.samples.said import Note, no_note
from stockpot.measure.stream.order import Numbers
from stockpot.measure.stream.pictures import Corruption
from stockpot.results.calibration import calibration_error, calibration_interval
from stockpot.results.schema import Score
from stockpot.results.statistics import bootstrap_mean
from stockpot.score.scorer import Scorer

Condition = dict[str, str | int | float]


class Answers:
    """For every picture under every corruption whether it was right, and how sure the model was."""

    def __init__(self, scorer: Scorer, kinds: Sequence[Corruption]) -> None:
        self.scorer, self.kinds = scorer, kinds
        self.notes: list[Note] = [no_note] * len(kinds)
        """Where the answers under each corruption go besides."""
        shape = len(kinds), len(scorer.labels)
        self.correct: NDArray[np.bool_] = np.zeros(shape, dtype=bool)
        self.losses: NDArray[np.float64] = np.full(shape, np.inf)
        self.confidence: NDArray[np.float64] = np.ones(shape)

    def add(self, rows: Numbers, kinds: Numbers, outputs: Tensor) -> None:
        """The outputs for one batch."""
        logits, places = self.scorer.logits(outputs.float()), torch.from_numpy(rows)
        for kind in np.unique(kinds):
            mine = torch.from_numpy(kinds == kind)
            self.notes[int(kind)](logits[mine.to(logits.device)], places[mine])
        self.correct[kinds, rows] = self.scorer.right(logits, places)[:, 0].cpu().numpy()
        self.losses[kinds, rows] = self.scorer.losses(logits, places).cpu().double().numpy()
        # What is no answer has no likelihood; its confidence counts as complete, and it is wrong.
        sure = logits.softmax(dim=1).amax(dim=1).nan_to_num(1.0)
        self.confidence[kinds, rows] = sure.cpu().double().numpy()

    def scores(
        self, said: Condition, groups: Sequence[str] | None, bins: int, seed: int
    ) -> list[Score]:
        """Of the whole stream, and the accuracy under each corruption.

        Args:
            said: what is said of the stream in every condition.
            groups: which rows belong together; the pictures of one row do in any case.
            bins: of the calibration error.
            seed: of resampling.
        """
        own = np.arange(self.correct.shape[1]) if groups is None else np.asarray(groups)
        together = np.tile(own, len(self.kinds))
        every = together if groups is not None or len(self.kinds) > 1 else None
        correct, confidence = self.correct.ravel(), self.confidence.ravel()
        losses = self.losses.ravel()
        answered = np.isfinite(losses)
        scores = [proportion("stream_accuracy", correct, said, groups=every)]
        if answered.any():
            interval = bootstrap_mean(losses[answered], seed=seed, groups=together[answered])
            value, n = float(losses[answered].mean()), int(answered.sum())
            scores.append(
                with_interval("nll", value, n, interval, better=False, unit="nats", condition=said)
            )
        value = calibration_error(confidence, correct, bins)
        interval = calibration_interval(confidence, correct, bins, seed=seed, groups=every)
        scores.append(
            with_interval("ece", value, len(correct), interval, better=False, condition=said)
        )
        rows = None if groups is None else own
        for kind, flags in zip(self.kinds, self.correct, strict=True):
            shown: Condition = {"corruption": kind[0], "severity": kind[1]} if kind else {}
            scores.append(proportion("accuracy", flags, {**said, **shown}, groups=rows))
        return scores

    def outcomes(self) -> dict[str, NDArray[np.bool_]]:
        """Who was right, by corruption, in the order of the data."""
        return dict(zip(self.records, self.correct, strict=True))

    @property
    def records(self) -> list[str]:
        """How the outcomes of the corruptions are called."""
        return [f"{kind[0]}:{kind[1]}" if kind else "correct" for kind in self.kinds]

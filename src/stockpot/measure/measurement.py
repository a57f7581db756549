"""What a measure receives besides model and data, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.datasets.dataset import Batch, Dataset
from stockpot.measure.parts import (
    Piece,
    Pieces,
    Recalled,
    as_range,
    seen_again,
)
from stockpot.measure.rehearsal import Scored, rehearse, waits_for_pictures
from stockpot.measure.samples.said import Note, Said, no_note
from stockpot.measure.together.pictures import Pictures
from stockpot.measure.together.steps import Steps, to_the_end
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.forward.options import Forward
from stockpot.models.forward.passes import Passes, kept_passes
from stockpot.results.resamples import Groups
from stockpot.results.schema import Finding, Flag, ForwardFacts, Picture, Score
from stockpot.results.statistics import Interval, share_interval
from stockpot.score.class_space import ClassSpace
from stockpot.score.predictions import Watch, watching
from stockpot.score.scorer import Scorer, scorer_for
from stockpot.stages import stage

Flags = NDArray[np.bool_]

Progress = Callable[[str, int, int], None]
"""Called with what is going on, how many images are done, and how many there are."""


def no_progress(what: str, done: int, total: int) -> None:
    """The silent progress."""


@dataclass(frozen=True)
class Context:
    """How to run: none of it may change a number but the precision."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    batch_size: int = 256
    seed: int = 0
    progress: Progress = no_progress
    scratch: Path | None = None
    """Where a long measure may keep what it has done, to go on from there when it was killed."""
    forward: Forward = field(default_factory=Forward)
    """Precision and compilation of forward passes; this alone may change a number, by rounding."""
    keeps: bool = False
    """Whether models and their weights stay as they are, so that fast copies of them may too."""
    made: list[Passes | Recalled] = field(default_factory=list)
    """What `passes` has given so far."""
    identity: str = ""
    """What tells the model of a cell from every other, where that is known without its weights."""
    sibling: Callable[[str], Dataset] | None = None
    """Another split of the data, whole and with the same options; none where only images came."""
    said: dict[str, Said] | None = None
    """What was answered, by record, where per-image records are asked for."""
    pictures: Pictures = field(default_factory=Pictures)
    """Where measures that go in steps find their batches: the same for all models of a group."""
    pieces: Pieces = field(default_factory=lambda: Pieces(None))
    """What is kept of the first pass over the images, where that is divided among workers."""

    def note(self, record: str, data: Dataset, scorer: Scorer) -> Note:
        """Where to put the answers to the images of a record, named as among the outcomes.

        What is noted changes no number; where nobody asked for records, it goes nowhere.
        """
        if self.said is None:
            return no_note
        self.said[record] = Said(data, scorer)
        return self.said[record].add

    def chose(self, record: str, data: Dataset, scorer: Scorer, columns: Tensor) -> None:
        """The same for measures that know the columns that were chosen for all images, no more."""
        if self.said is not None:
            self.said[record] = Said(data, scorer)
            self.said[record].chose(columns)

    def scorer(self, model: Classifier, data: Dataset, space: ClassSpace = "all") -> Scorer:
        """What is right for a model's outputs, on the device; one for all models of a group.

        To copy labels to a GPU would wait for all that is queued there, at every model's beginning.
        """

        def make() -> Scorer:
            return scorer_for(model.classes, data, space).to(self.device)

        return self.pictures.once((model.classes, space, str(self.device)), data, make)

    def passes(self, model: Classifier) -> Passes:
        """A model as a function from pixels to float32 logits, in batches that fit.

        It is to be called inside `evaluating(model)`, with pixels on the device.
        """
        make = kept_passes if self.keeps else Passes
        run = make(model, self.forward, self.batch_size)
        if run not in self.made:
            self.made.append(run)
        return run


@dataclass(frozen=True)
class Measurement:
    """The scores of one model on one dataset."""

    scores: list[Score]
    convention: str
    images: int
    outcomes: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    findings: tuple[Finding, ...] = ()
    class_space: str = ""
    pictures: tuple[Picture, ...] = ()


def forward_batches(
    model: Classifier, data: Dataset, context: Context, what: str, scored: Scored | None = None
) -> Iterator[tuple[Tensor, Batch]]:
    """Logits of every batch in float32, on the device, with the batch they belong to.

    To be gone through inside `evaluating(model)`. What is done with the logits on the device leaves
    a GPU no pause; bringing them over makes it wait.

    Args:
        model: what is asked.
        data: about which images.
        context: how.
        what: is going on, for the progress.
        scored: what will be done with the logits, where it leaves nothing behind: it may be tried
            on made-up ones before there are others.
    """
    size = context.batch_size
    known, keeps = context.pieces.begin(len(data), size)
    if known is not None:
        yield from _recalled(model, data, context, known)
        return
    done = 0
    run = context.passes(model)
    part = context.pieces.part if keeps else None
    shown = context.pictures.of(data, size, model.preprocess, context.device, part)
    if not context.pictures.shown and part is None and waits_for_pictures(data, context.device):
        with stage("forward"):
            rehearse(run, model.preprocess.size, min(size, len(data)), scored)
    for pixels, batch in shown:
        with watching(model) if keeps else nullcontext(Watch()) as watch, stage("forward"):
            logits = run(pixels)
        if keeps:
            about = {**told_of(run), "seen": watch.seen, "broken": watch.broken}
            context.pieces.keep(as_range(batch.rows), {"logits": logits}, about)
        done += len(batch.rows)
        context.progress(what, done, len(data))
        yield logits, batch
    if keeps:
        context.pieces.end()


def _recalled(
    model: Classifier, data: Dataset, context: Context, pieces: Sequence[Piece]
) -> Iterator[tuple[Tensor, Batch]]:
    """Logits that workers have kept, with batches whose pictures nobody needs any more."""
    nothing = torch.empty(0, 3, 0, 0, dtype=torch.uint8)
    recall_passes(context, [piece.about for piece in pieces])
    for piece in pieces:
        seen_again(model, piece.about)
        rows = torch.arange(piece.rows.start, piece.rows.stop)
        logits = piece.found["logits"].to(context.device)
        yield logits, Batch(nothing, data.labels[rows], rows)


def told_of(run: Passes) -> dict[str, Any]:
    """How passes were made, to be kept beside a piece."""
    return {"facts": run.facts.model_dump(mode="json"), "notes": run.notes}


def recall_passes(context: Context, told: Sequence[Mapping[str, Any]]) -> None:
    """Say of a run by pieces how their passes were made, as `told_of` told it."""
    notes = dict.fromkeys(note for about in told for note in about["notes"])
    facts = ForwardFacts.model_validate(told[-1]["facts"])
    context.made.append(Recalled(facts, list(notes)))


def span(rows: Tensor) -> slice:
    """The rows of a batch, which follow one another, as a slice: no device waits for numbers."""
    return slice(int(rows[0]), int(rows[0]) + len(rows))


def right_flags(
    model: Classifier,
    data: Dataset,
    context: Context,
    what: str,
    spaces: Sequence[ClassSpace] = ("all",),
    record: str = "",
) -> dict[ClassSpace, Flags]:
    """One pass over the images; for each reading of the class space, who is answered rightly."""
    with evaluating(model):
        return to_the_end(flags_in_steps(model, data, context, what, spaces, record))


def flags_in_steps(
    model: Classifier,
    data: Dataset,
    context: Context,
    what: str,
    spaces: Sequence[ClassSpace] = ("all",),
    record: str = "",
) -> Steps[dict[ClassSpace, Flags]]:
    """The same in steps, for measures that go in steps themselves.

    Args:
        model: what is asked.
        data: about which images.
        context: how.
        what: is going on, for the progress.
        spaces: readings of the class space.
        record: under which name the answers in the first of them are noted, if at all.
    """
    scorers = {space: context.scorer(model, data, space) for space in spaces}
    found: dict[ClassSpace, list[Tensor]] = {space: [] for space in spaces}
    note = context.note(record, data, scorers[spaces[0]]) if record else no_note
    for outputs, batch in forward_batches(model, data, context, what):
        rows = span(batch.rows)
        for space, scorer in scorers.items():
            logits = scorer.logits(outputs)
            found[space].append(scorer.right(logits, rows)[:, 0])
            if space == spaces[0]:
                note(logits, rows)
        yield None
    return {space: torch.cat(parts).cpu().numpy() for space, parts in found.items()}


def proportion(
    metric: str,
    flags: NDArray[np.bool_],
    condition: Mapping[str, str | int | float] | None = None,
    *,
    better: bool = True,
    groups: Groups | None = None,
    crossed: Groups | None = None,
) -> Score:
    """A share of images as a score with its Wilson interval; groups of them count together."""
    n = int(flags.size)
    value = int(flags.sum()) / n if n else 0.0
    interval = share_interval(flags, groups, crossed=crossed)
    return with_interval(metric, value, n, interval, better=better, condition=condition)


def with_interval(
    metric: str,
    value: float,
    n: int,
    interval: Interval,
    *,
    better: bool | None = True,
    unit: str = "fraction",
    condition: Mapping[str, str | int | float] | None = None,
) -> Score:
    """A score and the interval that belongs to it."""
    return Score(
        metric=metric,
        value=value,
        n=n,
        ci_low=interval.low,
        ci_high=interval.high,
        ci_method=interval.method,
        higher_is_better=better,
        unit=unit,
        condition=dict(condition or {}),
    )

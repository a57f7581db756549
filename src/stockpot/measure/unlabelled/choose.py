"""`stockpot.choose`: which of several models is best on these images, with how few labels."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.imagefolder import unlabelled_folder
from stockpot.datasets.label_map import LabelIndex
from stockpot.engine import pick_device
from stockpot.errors import BadDataError, BadParameterError, UserError
from stockpot.measure.cells import ModelSpec, undefended
from stockpot.measure.chosen_data import load_chosen
from stockpot.measure.measurement import Context, Progress, no_progress, proportion
from stockpot.measure.specs import Models, data_specs, model_specs
from stockpot.measure.unknown.held_out import kept_apart
from stockpot.measure.unlabelled.estimates import Estimate, estimates
from stockpot.measure.unlabelled.labels_file import Line, read_lines, write_lines
from stockpot.measure.unlabelled.pool import PoolAnswers, line_estimates, pool_answers
from stockpot.measure.unlabelled.selection import Method, Pick, Selection, selection
from stockpot.models.load import identify, load_model
from stockpot.results.schema import Score
from stockpot.types import check_seed


@dataclass(frozen=True)
class Choice:
    """What is known so far."""

    best: str
    """The model that is most probably the best one."""
    probability: dict[str, float]
    """Of each model to be the best one, as the method sees it."""
    method: Method
    labels: int
    """How many were used."""
    images: int
    asked: tuple[str, ...] = ()
    """Pictures whose labels would tell most; empty where no more are wanted."""
    estimates: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    """Accuracies foretold without labels: model -> method -> estimate; with a source only."""
    accuracy: dict[str, Score] = field(default_factory=dict)
    """The true ones, where the data knows its labels."""
    trace: tuple[str, ...] = ()
    """The best model after no label, one, two, ..."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        share = self.probability.get(self.best, 0.0)
        return (
            f"Choice({self.best}, {100 * share:.0f} % sure by {self.method}: {self.labels:,} "
            f"labels of {self.images:,} images, {len(self.probability)} models)"
        )

    def plain(self) -> dict[str, Any]:
        """All of it as values that JSON knows."""
        told = {
            model: {
                method: {"value": value, "ci_low": ends.low, "ci_high": ends.high}
                for method, (value, ends) in by_method.items()
            }
            for model, by_method in self.estimates.items()
        }
        truth = {name: score.model_dump() for name, score in self.accuracy.items()}
        return {**vars(self), "estimates": told, "accuracy": truth}


def choose(
    models: Models,
    *,
    data: str | Path | Dataset,
    labels: str | Path | None = None,
    oracle: bool = False,
    source: Any = None,
    method: Method = "active_testing",
    budget: int = 100,
    sure: float = 0.95,
    batch: int = 10,
    rate: float = 1.0,
    seed: int = 0,
    device: str = "auto",
    batch_size: int = 256,
    model_options: Mapping[str, Any] | None = None,
    data_options: Mapping[str, Any] | None = None,
    progress: Progress = no_progress,
) -> Choice:
    """Choose among models by few labels, or none.

    Args:
        models: two or more sources or classifiers; a list, or a mapping from names.
        data: the images: a dataset, its name, or a folder of pictures. Folder names count as labels
            with `oracle` alone.
        labels: a CSV file to ask in: what is answered there is learned, and the next pictures are
            written to its end, with a label to be filled in. The same call goes on from there.
        oracle: the data's own labels answer, one at a time, as a rehearsal.
        source: labelled images of the kind that the models were made for: adds the accuracies
            foretold without labels.
        method: `active_testing`: images that may cost most, weighed without bias; `coda`; `random`.
            Where nobody is asked, the consensus of the models (`coda`) ranks them.
        budget: at most so many labels.
        sure: ask no more once a model is the best one with this probability.
        batch: pictures to ask for at a time in the file.
        rate: for `coda`, how much a label counts beside the consensus of the models; the authors'
            0.01 hardly moves a choice among few models.
        seed: of draws, and of the order of equals.
        device: `auto`, `cpu`, `cuda`, ...
        batch_size: images per forward pass.
        model_options: options of `load_model` for every model.
        data_options: options of `load_dataset`; `classes` for a folder without labels.
        progress: called as images are done.
    """
    specs = model_specs(models, model_options)
    if len(specs) < 2:
        raise UserError(f"choose needs two models or more, got {len(specs)}.")
    if oracle and labels is not None:
        raise BadParameterError("give either labels=FILE or oracle, not both.")
    if budget < 0 or batch < 1 or not 0 < sure <= 1:
        raise BadParameterError(
            f"expected budget >= 0, batch >= 1 and 0 < sure <= 1, got {budget}, {batch} and {sure}."
        )
    if not 0 < rate < math.inf:
        raise BadParameterError(f"rate: expected a number above 0, got {rate}.")
    check_seed(seed)
    if labels is None and not oracle:
        method = "coda"
    images, knows = _images(data, specs, dict(data_options or {}), oracle)
    context = Context(pick_device(device), batch_size, seed, progress)
    target = pool_answers(specs, images, context)
    way = selection(method, target.probabilities, target.said, seed, rate)
    known: dict[str, Any] = {}
    if source is not None:
        known = _without_labels(specs, source, images, target, context)
    if oracle:
        found = _rehearsed(way, images, target, budget, sure)
    else:
        question = _question(specs, images, method, seed)
        found = _asked(way, images, Path(labels) if labels else None, budget, sure, batch, question)
    shares = way.best()
    names = target.names
    truth = {
        name: proportion("accuracy", answers.correct, groups=images.groups)
        for name, answers in zip(names, target.answers, strict=True)
        if knows
    }
    return Choice(
        best=names[int(shares.argmax())],
        probability=dict(zip(names, map(float, shares), strict=True)),
        method=method,
        labels=found.labels,
        images=len(images),
        asked=found.asked,
        trace=tuple(names[best] for best in found.trace),
        accuracy=truth,
        **{**known, "notes": (*known.get("notes", ()), *_told(target), *found.notes)},
    )


@dataclass(frozen=True)
class _Progress:
    labels: int
    trace: tuple[int, ...]
    asked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _images(
    data: str | Path | Dataset, specs: list[ModelSpec], options: dict[str, Any], oracle: bool
) -> tuple[Dataset, bool]:
    """The images, and whether their labels are known."""
    if isinstance(data, Dataset):
        return data, True
    if oracle or not Path(data).is_dir():
        (spec,) = data_specs(data, options)
        return spec.load(), True
    classes = options.pop("classes", None)
    limit = options.pop("limit", None)
    if options:
        raise BadParameterError(
            f"a folder without labels has no option {', '.join(sorted(options))}.",
            hint="Give oracle where its folders are the classes.",
        )
    if classes is None:
        first, own = specs[0].source, undefended(specs[0].options)
        classes = (load_model(first, **own) if isinstance(first, str) else first).classes
    return unlabelled_folder(data, classes).limited(limit), False


def _rehearsed(
    way: Selection, images: Dataset, target: PoolAnswers, budget: int, sure: float
) -> _Progress:
    """Ask the data for labels, one at a time."""
    right = target.right
    trace = [int(way.best().argmax())]
    wanted = images.labels.tolist()
    while len(trace) <= budget and way.best().max() < sure and (picks := way.next(1)):
        image = picks[0].image
        way.add(picks[0], wanted[image], right[:, image])
        trace.append(int(way.best().argmax()))
    return _Progress(len(trace) - 1, tuple(trace))


def _asked(
    way: Selection,
    images: Dataset,
    path: Path | None,
    budget: int,
    sure: float,
    batch: int,
    question: str,
) -> _Progress:
    """Learn what is answered in the file, and ask for more there."""
    files = images.columns.get("file") or tuple(map(str, range(len(images))))
    places = {name: place for place, name in enumerate(files)}
    numbers = LabelIndex(images.classes)
    lines = read_lines(path) if path else []
    drawn = not question.startswith("coda:")
    trace, waiting = [int(way.best().argmax())], 0
    for number, line in enumerate(lines, 2):
        file = line.file if line.file in places else line.file.strip()
        if file not in places:
            raise BadDataError(f"labels: {path}, line {number}: no picture is called {file}.")
        if drawn and line.asked != question:
            raise BadDataError(
                f"labels: {path}, line {number} was drawn for another question ({line.asked}), and "
                "cannot be weighed for these models, images, method and seed.",
                hint="Take another file, or method coda, which takes any labels.",
            )
        if not line.label:
            waiting += 1
        elif drawn and waiting:
            continue  # the weights follow the order of the draws
        else:
            label = numbers.of(line.label, f"labels: {path}, line {number}")
            way.add(Pick(places[file], line.chance), label)
            trace.append(int(way.best().argmax()))
    used = len(trace) - 1
    enough = used >= budget or way.best().max() >= sure
    notes = [f"still without a label in {path}: {waiting}"] if waiting else []
    if waiting or enough:
        asked = [line.file for line in lines if not line.label] if not enough else []
        return _Progress(used, tuple(trace), tuple(asked), tuple(notes))
    picks = way.next(min(batch, budget - used))
    fresh = [Line(files[pick.image], "", pick.chance, question) for pick in picks]
    if path is not None:
        write_lines(path, [*lines, *fresh])
    return _Progress(used, tuple(trace), tuple(line.file for line in fresh))


def _without_labels(
    specs: list[ModelSpec], source: Any, images: Dataset, target: PoolAnswers, context: Context
) -> dict[str, Any]:
    """Accuracies foretold from a labelled source that no model was trained on."""
    kept = load_chosen(source, "source")
    whole = len(kept)
    for spec in specs:
        kept, _ = kept_apart(kept, spec.source, images)
    notes = [f"source: {len(kept)} of {kept} ({kept.fingerprint[:16]})"]
    if len(kept) < whole:
        notes.append(f"{whole - len(kept)} source images are left out: trained on, or asked about")
    inside = pool_answers(specs, kept, context)
    pairs = zip(inside.names, inside.answers, target.answers, strict=True)
    found = {name: estimates(here, there, seed=context.seed) for name, here, there in pairs}
    if len(specs) >= 3:
        lines, line = line_estimates(inside, target, context.seed)
        for place, name in enumerate(inside.names):
            found[name] |= {method: values[place] for method, values in lines.items()}
        notes.append(
            f"agreement on the line: slope {line.slope:.2f}, R² {line.fit:.2f} over pairs"
            + ("" if line.fit > 0.95 else " (below 0.95: not to be trusted)")
        )
    return {"estimates": found, "notes": tuple(notes)}


def _told(target: PoolAnswers) -> list[str]:
    """What a reader must know of the models' answers."""
    notes = []
    for name, answers in zip(target.names, target.answers, strict=True):
        notes += [f"{name}: {note}" for note in answers.scorer.notes]
        if silent := int((~answers.answered).sum()):
            notes.append(f"{name}: {silent} of {len(answers)} outputs were NaN or infinite: wrong")
    return notes


def _question(specs: list[ModelSpec], images: Dataset, method: Method, seed: int) -> str:
    parts = [images.fingerprint, str(seed)]
    parts += [identify(each.source, undefended(each.options)) for each in specs]
    if options := [each.options for each in specs if each.options]:
        parts.append(json.dumps(options, sort_keys=True, default=str))
    return f"{method}:{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:12]}"

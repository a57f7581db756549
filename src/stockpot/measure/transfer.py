"""`stockpot transfer`: images found on each model, shown to all of them.

The matrix tells a weakness that models share from one that a search found in a single model. Images
are rounded to the 256 levels of a file before anybody looks at them, the finder included.
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot.attack.scored import attack_scored
from stockpot.attack.threat import threat
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.published.write import LABELS
from stockpot.dynamic.references import all_references
from stockpot.engine import device_name, pick_device
from stockpot.errors import BadParameterError, UnknownNameError, UserError
from stockpot.measure import measures
from stockpot.measure.adversarial.work import Attacked, Work
from stockpot.measure.cells import Cell, by_position_told, model_for
from stockpot.measure.measurement import Context, Progress, no_progress, proportion, right_flags
from stockpot.measure.overlap import with_unseen
from stockpot.measure.samples.said import Said
from stockpot.measure.samples.table import cell_samples
from stockpot.measure.specs import Models, data_specs, model_specs
from stockpot.models.classifier import Classifier
from stockpot.results.packed import pack_bits, pack_groups
from stockpot.results.provenance import provenance
from stockpot.results.samples_file import digest_of
from stockpot.results.schema import CellResult, Cost, DataFacts, Flag, ModelFacts, Score
from stockpot.results.store import ResultStore
from stockpot.results.trust import UNAUDITED
from stockpot.score.predictions import NON_FINITE, watching
from stockpot.score.scorer import scorer_for

Search = Literal["adversarial", "dynamic"]
_STRIDE = 1 << 32
"""Seeds of one run lie this far from those of the next, so that no two images share theirs."""


class Matrix(NamedTuple):
    """Accuracy of each viewer (across) on the images found on each maker (down)."""

    makers: list[str]
    viewers: list[str]
    clean: list[Score]
    scores: list[list[Score]]


def transfer(
    models: Models,
    *,
    data: str | Path | Dataset,
    search: Search = "adversarial",
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int = 256,
    data_options: Mapping[str, Any] | None = None,
    makers: Sequence[str] | None = None,
    log_samples: bool = False,
    progress: Progress = no_progress,
    **params: Any,
) -> list[CellResult]:
    """Find images on each model and measure every model on them: one result per viewer.

    Members, their merges and their output ensembles are models like any other: what is found on a
    member and shown to a merge tells whether its weakness came along.

    Args:
        models: two or more sources or classifiers; a list, or a mapping from names.
        data: a dataset, its name or path.
        search: an `adversarial` attack within a norm, or a `dynamic` search that an oracle judges.
        out: the run folder; results go to `out/results`.
        seed: the seed of everything random.
        device: `auto`, `cpu`, `cuda`, ...
        batch_size: images per forward pass.
        data_options: options of `load_dataset`.
        makers: names of the models that are searched; all of them by default.
        log_samples: also write what each model answered to every image, as a parquet file beside
            its result; needs `out`.
        progress: called as images are done.
        params: of `stockpot.attack` (norm, eps, method, steps, ...), or of the measure `dynamic`.
    """
    specs = model_specs(models)
    if len(specs) < 2:
        raise UserError(f"transfer needs two models or more, got {len(specs)}.")
    there = [spec.name for spec in specs]
    searched = there if makers is None else list(makers)
    for name in searched:
        if name not in there:
            raise UnknownNameError("model", name, there)
    if log_samples and out is None:
        raise BadParameterError(
            "log_samples: expected a folder to write the records to.", hint="Give out=FOLDER."
        )
    (place,) = data_specs(data, data_options)
    images, chosen = place.load(), pick_device(device)
    context = Context(chosen, batch_size, seed, progress)
    start = time.perf_counter()
    made = {}
    look = _attacked if search == "adversarial" else _searched
    for spec in specs:
        if spec.name in searched:
            made[spec.name] = look(model_for(spec, images, chosen), images, context, params)
    signs = [
        flag.model_copy(update={"condition": {"maker": maker, **flag.condition}})
        for maker, found in made.items()
        for flag in found.flags
    ]
    warned = [f"{maker}: {note}" for maker, found in made.items() for note in found.notes]
    results = []
    named = all_references(measures.get("dynamic"), params) if search == "dynamic" else {}
    asked = {"search": search, "makers": list(made), **params}
    for spec in specs:
        viewer = model_for(spec, images, chosen)
        said: dict[str, Said] = {}
        asking = replace(context, said=said if log_samples else None)
        with watching(viewer) as watch:
            right = {"correct": _right(viewer, images, asking, "correct")}
            for maker, found in made.items():
                record = f"transfer:{maker}"
                right[record] = _right(viewer, found.images, asking, record)
                if record in said:  # images are called as those that they were made of
                    said[record].data = found.origin
        scores = [proportion("accuracy", right["correct"], groups=images.groups)]
        scores += [
            proportion("transfer_accuracy", right[f"transfer:{maker}"], {"maker": maker},
                       groups=found.images.groups)
            for maker, found in made.items()
        ]  # fmt: skip
        broken = [Flag(name=NON_FINITE, count=watch.broken, of=watch.seen)] if watch.broken else []
        positions, by_position = by_position_told(viewer, images)
        cell = Cell(spec, "transfer", place, asked, seed, None, device, batch_size)
        known = cell.overlap()
        result = CellResult(
            key=cell.key(named),
            scores=scores,
            data=DataFacts(
                name=images.name, split=images.split, n=len(images), classes=len(images.classes),
                fingerprint=images.fingerprint, licence=images.licence,
            ),
            model=ModelFacts(name=spec.name, source=viewer.origin.source,
                             fingerprint=viewer.origin.fingerprint),
            convention=f"transfer:{search}; images rounded to 256 levels",
            provenance=provenance(str(chosen)),
            cost=Cost(wall_seconds=time.perf_counter() - start, device=device_name(chosen)),
            outcomes={name: pack_bits(flags) for name, flags in right.items()},
            outcome_sizes={
                name: len(flags) for name, flags in right.items() if len(flags) != len(images)
            },
            groups=pack_groups(images.groups),
            seen=pack_bits(known.seen) if known else "",
            notes=[*warned, *by_position, *([watch.note] if broken else []), UNAUDITED],
            flags=[*signs, *broken, *positions, *(known.flags if known else [])],
        )  # fmt: skip
        if known:
            result = with_unseen(result, known)
        if out is not None:
            samples = None
            if log_samples:
                samples = cell_samples(result, images, said, place)
                result = result.model_copy(update={"samples": digest_of(samples)})
            ResultStore(Path(out) / "results").save(result, samples)
        results.append(result)
    return results


def matrix(results: list[CellResult]) -> Matrix:
    """The results of `transfer` as a table."""
    viewers = [cell for cell in results if cell.key.measure == "transfer"]
    if not viewers:
        raise UserError("these results hold no transfer.", hint="Run `stockpot transfer` first.")
    makers = [str(name) for name in viewers[0].key.params["makers"]]
    return Matrix(
        makers,
        [cell.key.model for cell in viewers],
        [cell.score("accuracy") for cell in viewers],
        [[cell.score("transfer_accuracy", maker=maker) for cell in viewers] for maker in makers],
    )


class _Made(NamedTuple):
    """Images that were found on a model, and what the search had to say of that model."""

    images: Dataset
    origin: Dataset
    """The images that they were made of."""
    flags: Sequence[Flag]
    notes: Sequence[str]


def _attacked(
    maker: Classifier, data: Dataset, context: Context, params: Mapping[str, Any]
) -> _Made:
    """What an attack on the maker makes of each image; those it withstands stay in."""
    scorer = scorer_for(maker.classes, data)
    parts = []
    work = Work()
    ball = threat(params.get("norm", "linf"), params.get("eps", "8/255"))
    for batch in data.batches(context.batch_size, maker.preprocess.fit):
        pixels = batch.images.to(context.device).float() / 255
        seeds = (batch.rows + context.seed * _STRIDE).tolist()
        asked = {**params, "norm": ball.norm, "eps": ball.eps}
        found = attack_scored(maker, pixels, scorer, batch.rows, seed=seeds, **asked)
        work.add(ball, Attacked.of(found))
        parts.append((found.images * 255).round().clamp(0, 255).to(torch.uint8).cpu())
        context.progress("attacks", int(batch.rows[-1]) + 1, len(data))
    pixels = torch.cat(parts)
    fingerprint = pixel_fingerprint(pixels, data.labels, data.classes)
    made = replace(data, images=TensorImages(pixels), fingerprint=fingerprint, masks=None)
    return _Made(made, data, work.flags(), work.warnings())


def _searched(
    maker: Classifier, data: Dataset, context: Context, params: Mapping[str, Any]
) -> _Made:
    """What a dynamic search against the maker makes, as far as its oracle accepts it."""
    entry = measures.get("dynamic")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "made"
        settings = entry.validate({"pictures": 0, "per_class": False, **params})
        about = entry.function(maker, data, context, **settings | {"export": str(target)})
        with (target / LABELS).open(encoding="utf-8", newline="") as table:
            lines = {line["file"]: int(line["row"]) for line in csv.DictReader(table)}
        found = load_dataset("imagefolder", path=str(target), classes=list(data.classes))
        # Read before the folder goes.
        batches = found.batches(context.batch_size, maker.preprocess.fit)
        pixels = torch.cat([batch.images for batch in batches])
    # A folder knows one class of each picture; what else is right, and what is known of it, stays
    # with the data.
    rows = torch.tensor([lines[name] for name in found.columns["file"]])
    order = rows.argsort()  # of the data, not of class folders
    kept, images = data.take(rows[order]), TensorImages(pixels[order])
    made = replace(kept, images=images, fingerprint=found.fingerprint, masks=None)
    return _Made(made, kept, about.flags, [note for note in about.notes if note != UNAUDITED])


def _right(viewer: Classifier, seen: Dataset, context: Context, record: str) -> NDArray[np.bool_]:
    return right_flags(viewer, seen, context, "transfer", record=record)["all"]


def shares(found: Matrix) -> NDArray[np.float64]:
    """Makers x viewers, accuracies."""
    return np.array([[score.value for score in row] for row in found.scores])

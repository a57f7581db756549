"""`stockpot.measure`: models x measures x datasets, each cell saved as soon as it is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from stockpot.checkpoints.hashes import hash_ahead
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.stream import processes
from stockpot.engine import pick_device
from stockpot.engine.choice import EngineChoice, chosen_engine, engine_name
from stockpot.engine.gpu_start import load_libraries
from stockpot.errors import BadParameterError, UserError
from stockpot.measure.cells import Cell
from stockpot.measure.failures import raise_failures
from stockpot.measure.measurement import Progress, no_progress
from stockpot.measure.saved import saved
from stockpot.measure.specs import (
    Measures,
    Models,
    data_specs,
    has_files,
    measure_specs,
    model_specs,
)
from stockpot.measure.together.ends import End
from stockpot.measure.together.jobs import Asked, divide, model_of, split
from stockpot.measure.together.loading import load_first
from stockpot.measure.together.sent import carry_out, sent
from stockpot.models.forward.arithmetic import warn_if_emulated
from stockpot.models.forward.options import chosen_forward
from stockpot.remote.working_copy import working_copy
from stockpot.results.collection import Results
from stockpot.results.index.open import caught_up, prepared
from stockpot.results.manifest import add_cells
from stockpot.results.provenance import ask_ahead
from stockpot.results.schema import CellKey, CellResult
from stockpot.results.sinks.feed import Feed, Sinks
from stockpot.results.store import ResultStore
from stockpot.stages import stage, timed
from stockpot.types import BatchSize, PrecisionChoice, check_seed

Done = Callable[[CellResult, int, int], None]


def measure(
    models: Models,
    measures: Measures,
    *,
    data: str | Path | Dataset | Sequence[str | Dataset] | Mapping[str, Any],
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: BatchSize = 256,
    precision: PrecisionChoice = "auto",
    compile: bool = False,
    engine: EngineChoice = "serial",
    shards: int = 1,
    unseen: bool = False,
    log_samples: bool = False,
    model_options: Mapping[str, Any] | None = None,
    data_options: Mapping[str, Any] | None = None,
    progress: Progress = no_progress,
    done: Done | None = None,
    to: Sinks | None = None,
    index: str | Path = "",
) -> Results:
    """Measure every model with every measure on every dataset.

    Args:
        models: sources as for `load_model`, classifiers, or functions from pixels to logits with
            `classes` and `size` among the model options; a list, or a mapping from names.
        measures: names, or a mapping from names to parameters.
        data: a dataset, its name or path; a list of them, or a mapping from names.
        out: the run folder, or its address in storage; results go to `out/results`, and what is
            there is not repeated.
        seed: the seed of everything random.
        device: `auto`, `cpu`, `cuda`, ...
        batch_size: images per forward pass, or `auto`; half of it whenever memory runs out.
        precision: of forward passes: `fp32`, `tf32` (NVIDIA GPUs), `bf16`, or `auto` by device.
            Attacks and searches have parameters of their own and decide in full precision.
        compile: compile the network first; worth it for many images.
        engine: where the cells run: `serial`, `processes`, `ray` or `slurm`, or a mapping with its
            `name` and options.
        shards: into how many parts the images of a cell are divided, so that many workers share it;
            needs `out`. Measures that cannot be divided are measured whole.
        unseen: leave out, for each model, the images that it has seen as its record tells; they are
            scored and marked otherwise.
        log_samples: also write what was answered to every image, as a parquet file beside each
            result (docs/viewer.md); a result that has none yet is measured again.
        model_options: options of `load_model` for every model; `base` for every adapter.
        data_options: options of `load_dataset` for every dataset.
        progress: called as images are done.
        done: called as cells are done, with how many are and how many there are.
        to: trackers that are told each result as it comes (`mlflow`, `tensorboard`, `trackio`,
            `wandb`); names, or a mapping from names to parameters.
        index: an index of results that is told of each as it comes, beside `out`: a SQLite file, or
            `postgresql://user@host/database`.

    Raises:
        PartialResultsError: some cells failed; the others are saved and listed in the message.
    """
    if batch_size != "auto" and (not isinstance(batch_size, int) or batch_size < 1):
        raise BadParameterError(
            f"batch_size: expected a number of at least 1, or auto, got {batch_size!r}."
        )
    check_seed(seed)
    if shards < 1 or (shards > 1 and out is None):
        raise BadParameterError(
            f"shards: expected 1 or more, got {shards}."
            if shards < 1
            else "shards: the parts of a cell meet in a run folder; give out=FOLDER (-o)."
        )
    if log_samples and out is None:
        raise BadParameterError(
            "log_samples: expected a folder to write the records to.", hint="Give out=FOLDER."
        )
    if index and not out:
        raise BadParameterError("index: results must be saved as files too: give out.")
    on = pick_device(device)
    warn_if_emulated(chosen_forward(precision, compile, on).precision, on)
    sets = data_specs(data, data_options)
    feeds = engine == "serial" and on.type == "cuda"
    if feeds:
        load_libraries(on)
    with working_copy(out, weights=False) if out else nullcontext() as place:
        folder = place.folder if place else None
        told = prepared(index, folder) if index and folder else ""
        cells = [
            Cell(
                model=model,
                measure=name,
                data=dataset,
                params=params,
                seed=seed,
                store=str(folder / "results") if folder else None,
                device=device,
                batch_size=batch_size,
                unseen=unseen,
                precision=precision,
                compile=compile,
                shards=shards,
                samples=log_samples,
                index=told,
            )
            for model, dataset, (name, params) in product(
                model_specs(models, model_options), sets, measure_specs(measures)
            )
        ]
        with Feed(to, folder) as feed, processes.decoding(feeds and any(map(has_files, sets))):
            results = run_cells(cells, engine=engine, progress=progress, done=done, feed=feed)
        if folder:
            store = ResultStore(folder / "results")
            add_cells(folder, [store.path(result.key).name for result in results])
            if told:
                caught_up(told, folder)
    return results


@timed()
def run_cells(
    cells: Sequence[Cell],
    *,
    engine: EngineChoice = "serial",
    progress: Progress = no_progress,
    done: Done | None = None,
    feed: Feed | None = None,
) -> Results:
    """Run cells on an engine; what is already saved is read back.

    Models that are asked the same are measured together (`together/group.py`). Cells that are to be
    divided (`shards`) are gone through in parts first, beside those that are not.
    """
    runner = chosen_engine(engine)
    here = engine_name(engine) == "serial"
    results: dict[int, CellResult] = {}
    failures: list[tuple[Cell, Exception]] = []
    asked: list[Asked] = []
    identities: dict[object, str] = {}

    def tell(result: CellResult) -> None:
        if feed:
            feed.take(result)
        if done:
            done(result, len(results), len(cells))

    with stage("load"):
        hash_ahead(_folders(cells))
        if here and cells:
            load_first(cells[0])
    for index, cell in enumerate(cells):
        # Finished cells are found here, so that no worker starts for nothing.
        key, known = _known(cell, identities)
        if known is None:
            asked.append(Asked(index, cell if here else sent(cell, key, runner), key))
        else:
            results[index] = known
            tell(known)

    if here and asked:
        ask_ahead()

    def ended(end: End) -> None:
        if end.error is not None:
            failures.append((cells[end.number], end.error))
        elif end.result is not None:
            results[end.number] = end.result
            tell(end.result)

    work = partial(carry_out, progress=progress, told=ended) if here else carry_out
    whole = [one for one in asked if not one.cell.divided]
    divided = [one for one in asked if one.cell.divided]
    parts = divide(divided, runner.size)
    for jobs in ([*parts, *split(whole, runner.size)], split(divided, runner.size)):
        for outcome in runner.run(work, jobs) if jobs else ():
            if jobs[outcome.job][0].cell.part is not None:
                continue  # what is missing of a part is made up for when its cell is measured
            if outcome.error is not None:  # a worker was killed; what it had finished is saved
                for one in jobs[outcome.job]:
                    _, known = _known(one.cell, identities)
                    ended(End(one.number, known, None if known else outcome.error))
            elif not here:
                for end in outcome.value:
                    ended(end)
    if failures:
        raise_failures(failures, len(results))
    return Results(results[index] for index in range(len(cells)))


def _folders(cells: Sequence[Cell]) -> list[Path]:
    """Where models lie on this machine, for those that are folders."""
    sources = dict.fromkeys(
        cell.model.source for cell in cells if isinstance(cell.model.source, str)
    )
    # Unlike a Path, it says no of a name that is too long for any file.
    return [Path(source) for source in sources if os.path.isdir(source)]


@stage("load")
def _known(cell: Cell, identities: dict[object, str]) -> tuple[CellKey | None, CellResult | None]:
    """The key of a cell, and its result where that is saved; a model is identified once."""
    try:
        key = cell.key(identity=identities.get(model_of(cell)))
        identities[model_of(cell)] = key.model_fingerprint
        return key, saved(cell, key)
    except UserError:
        return None, None  # the cell itself will fail with this, and the others will not

"""`stockpot.measure`: models x measures x datasets, each cell saved as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from stockpot.checkpoints.hashes import hash_ahead
from stockpot.checkpoints.member_names import by_name
from stockpot.checkpoints.resolve import resolve, source_text
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.stream import processes
from stockpot.datasets.tasks.sets import TASK_SETS
from stockpot.engine import engines, pick_device
from stockpot.engine.gpu_start import load_libraries
from stockpot.engine.stages import stage, timed
from stockpot.errors import BadParameterError, PartialResultsError, UserError
from stockpot.measure import measures as registry
from stockpot.measure.cells import Cell, DataSpec, ModelSpec
from stockpot.measure.measurement import Progress, no_progress
from stockpot.measure.together.group import Asked, model_of, run_apart, run_group, split
from stockpot.measure.together.in_step import End
from stockpot.models.adapted import is_adapter
from stockpot.models.classifier import Classifier
from stockpot.models.forward.options import chosen_forward
from stockpot.models.load import load_model
from stockpot.remote.working_copy import working_copy
from stockpot.results.collection import Results
from stockpot.results.manifest import add_cells
from stockpot.results.schema import CellKey, CellResult
from stockpot.results.sinks.feed import Feed, Sinks
from stockpot.results.store import ResultStore
from stockpot.types import BatchSize, PrecisionChoice

Source = str | Path | Classifier | Callable[[Any], Any]
Models = Source | Sequence[Source] | Mapping[str, Source]
Measures = str | Sequence[str | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]
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
    engine: str = "serial",
    unseen: bool = False,
    log_samples: bool = False,
    model_options: Mapping[str, Any] | None = None,
    data_options: Mapping[str, Any] | None = None,
    progress: Progress = no_progress,
    done: Done | None = None,
    to: Sinks | None = None,
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
        engine: where the cells run: `serial` or `processes`.
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

    Raises:
        PartialResultsError: some cells failed; the others are saved and listed in the message.
    """
    if batch_size != "auto" and (not isinstance(batch_size, int) or batch_size < 1):
        raise BadParameterError(
            f"batch_size: expected a number of at least 1, or auto, got {batch_size!r}."
        )
    if log_samples and out is None:
        raise BadParameterError(
            "log_samples: expected a folder to write the records to.", hint="Give out=FOLDER."
        )
    on = pick_device(device)
    chosen_forward(precision, compile, on)
    sets = data_specs(data, data_options)
    feeds = engine == "serial" and on.type == "cuda"
    if feeds:
        load_libraries(on)
    with working_copy(out, weights=False) if out else nullcontext() as place:
        folder = place.folder if place else None
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
                samples=log_samples,
            )
            for model, dataset, (name, params) in product(
                model_specs(models, model_options), sets, measure_specs(measures)
            )
        ]
        with Feed(to, folder) as feed, processes.decoding(feeds and any(map(_has_files, sets))):
            results = run_cells(cells, engine=engine, progress=progress, done=done, feed=feed)
        if folder:
            store = ResultStore(folder / "results")
            add_cells(folder, [store.path(result.key).name for result in results])
    return results


@timed()
def run_cells(
    cells: Sequence[Cell],
    *,
    engine: str = "serial",
    progress: Progress = no_progress,
    done: Done | None = None,
    feed: Feed | None = None,
) -> Results:
    """Run cells on an engine; what is already saved is read back.

    Models that are asked the same are measured together (`together/group.py`).
    """
    runner = engines.get(engine)()
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
    for index, cell in enumerate(cells):
        # Finished cells are found here, so that no worker starts for nothing.
        key, known = _known(cell, identities)
        if known is None:
            asked.append(Asked(index, cell, key))
        else:
            results[index] = known
            tell(known)

    def ended(end: End) -> None:
        if end.error is not None:
            failures.append((cells[end.number], end.error))
        elif end.result is not None:
            results[end.number] = end.result
            tell(end.result)

    jobs = split(asked, runner.size)
    here = engine == "serial"
    job = partial(run_group, progress=progress, told=ended) if here else run_apart
    for outcome in runner.run(job, jobs):
        if outcome.error is not None:  # a worker was killed; what it had finished is saved
            for one in jobs[outcome.job]:
                _, known = _known(one.cell, identities)
                ended(End(one.number, known, None if known else outcome.error))
        elif not here:
            for end in outcome.value:
                ended(end)
    if failures:
        _raise(failures, len(results))
    return Results(results[index] for index in range(len(cells)))


def _folders(cells: Sequence[Cell]) -> list[Path]:
    """Where models lie on this machine, for those that are folders."""
    sources = dict.fromkeys(
        cell.model.source for cell in cells if isinstance(cell.model.source, str)
    )
    return [folder for folder in map(Path, sources) if folder.is_dir()]


@stage("load")
def _known(cell: Cell, identities: dict[object, str]) -> tuple[CellKey | None, CellResult | None]:
    """The key of a cell, and its result where that is saved; a model is identified once."""
    try:
        key = cell.key(identity=identities.get(model_of(cell)))
        identities[model_of(cell)] = key.model_fingerprint
        store = ResultStore(cell.store) if cell.store else None
        return key, store.find(key, samples=cell.samples) if store else None
    except UserError:
        return None, None  # the cell itself will fail with this, and the others will not


def _raise(failures: list[tuple[Cell, Exception]], saved: int) -> None:
    for _, error in failures:
        if not isinstance(error, UserError):
            raise error
    if saved == 0 and len({str(error) for _, error in failures}) == 1:
        raise failures[0][1]
    lines = "; ".join(
        f"{cell.model.name} x {cell.measure} x {cell.data.name}: {error}"
        for cell, error in failures
    )
    count = f"{len(failures)} of {saved + len(failures)} cells failed, {saved} are saved."
    raise PartialResultsError(f"{count} {lines}")


def model_specs(models: Models, options: Mapping[str, Any] | None = None) -> list[ModelSpec]:
    """Names and sources; `member_names` says how a source without a name is called.

    An option `base` is for the LoRA adapters among the models.
    """
    chosen = dict(options or {})
    named = by_name(models)
    for name, source in named.items():
        if not isinstance(source, str | Path | Classifier):
            named[name] = load_model(source, **chosen, name=name)
    adapters = {
        name: not isinstance(source, Classifier) and is_adapter(resolve(source_text(source)))
        for name, source in named.items()
        if "base" in chosen
    }
    if adapters and not any(adapters.values()):
        raise BadParameterError("base: expected a LoRA adapter among the models, got none.")
    whole = {key: value for key, value in chosen.items() if key != "base"}
    return [
        ModelSpec(
            name,
            source if isinstance(source, Classifier) else source_text(source),
            chosen if adapters.get(name) else whole,
        )
        for name, source in named.items()
    ]


def data_specs(data: Any, options: Mapping[str, Any] | None = None) -> list[DataSpec]:
    """Datasets by name."""
    chosen = dict(options or {})
    if isinstance(data, str | Path | Dataset):
        data = [data]
    if isinstance(data, Mapping):
        return [
            spec
            for name, source in data.items()
            for spec in (
                [DataSpec(name, source, chosen)]
                if isinstance(source, Dataset)
                else task_specs(name, str(source), chosen)
            )
        ]
    return [
        spec
        for source in data
        for spec in (
            [DataSpec(source.name, source, {})]
            if isinstance(source, Dataset)
            else task_specs(_short(str(source)), str(source), chosen)
        )
    ]


def _has_files(spec: DataSpec) -> bool:
    """Whether a dataset may be pictures in files, which are decoded whenever they are wanted."""
    if isinstance(spec.source, Dataset):
        return isinstance(spec.source.images, EncodedImages)
    return Path(spec.source).expanduser().is_dir() or "path" in spec.options


def task_specs(name: str, source: str, options: dict[str, Any]) -> list[DataSpec]:
    """One dataset, or all those of a set of tasks such as `ta8`."""
    if source not in TASK_SETS:
        return [DataSpec(name, source, options)]
    prefix = "" if name == source else f"{name}-"
    return [DataSpec(f"{prefix}{task}", task, options) for task in TASK_SETS[source]]


def measure_specs(measures: Measures) -> list[tuple[str, dict[str, Any]]]:
    """Measure names with checked parameters, before any model is loaded."""
    chosen: Iterable[tuple[str, Mapping[str, Any]]]
    if isinstance(measures, str):
        chosen = [(name.strip(), {}) for name in measures.split(",")]
    elif isinstance(measures, Mapping):
        chosen = list(measures.items())
    else:
        chosen = [
            (item, {})
            if isinstance(item, str)
            else (str(item["measure"]), {k: v for k, v in item.items() if k != "measure"})
            for item in measures
        ]
    return [(name, registry.get(name).validate(params)) for name, params in chosen]


def _short(source: str) -> str:
    return source.rstrip("/").rpartition("/")[2].removeprefix("zoo:")

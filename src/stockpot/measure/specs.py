"""What a user names to be measured: models, datasets and measures, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stockpot.checkpoints.member_names import by_name
from stockpot.checkpoints.resolve import resolve, source_text
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.kept import forget_datasets
from stockpot.datasets.tasks.sets import TASK_SETS
from stockpot.errors import BadParameterError
from stockpot.measure import measures as registry
from stockpot.measure.cells import DataSpec, ModelSpec
from stockpot.models.adapted import is_adapter
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_model

Source = str | Path | Classifier | Callable[[Any], Any]
Models = Source | Sequence[Source] | Mapping[str, Source]
Measures = str | Sequence[str | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]


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
    """Datasets by name, to be read as they are now."""
    forget_datasets()
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


def has_files(spec: DataSpec) -> bool:
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

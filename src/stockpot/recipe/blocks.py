"""The blocks of a recipe, and which of their keys name models and datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import (
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from stockpot.recipe.block import Closed, WithParams
from stockpot.recipe.fuse_entry import FuseEntry
from stockpot.recipe.tune_entry import TuneEntry
from stockpot.recipe.variants import meant
from stockpot.types import BatchSize, Count, Natural, PrecisionChoice, Seed, Variant


class DataEntry(WithParams):
    """A dataset: its registered name (or a path) and its options."""

    dataset: str = Field(description="Its name (`stockpot list datasets`), or a path.")
    split: str | None = Field(
        None, description="When left out: test, or all of data that has no splits."
    )
    limit: Count | None = Field(None, description="At most so many images.")

    @property
    def source(self) -> dict[str, Any]:
        """The arguments of `load_dataset`."""
        return {"name": self.dataset, "split": self.split, "limit": self.limit, **self.params}


class ModelEntry(WithParams):
    """A model that exists (`load`), or a new one of a transformers architecture (`new`)."""

    load: str | None = Field(None, description="Where it is: every source of docs/models.md.")
    new: str | None = Field(None, description="An architecture; its settings stand beside it.")
    data: str | None = Field(None, description="Where a new model's classes come from.")
    size: int = Field(
        64,
        ge=8,
        le=8192,
        description="The input side of a new model, or of one that a factory makes.",
    )
    seed: Seed = Field(0, description="Of a new model's weights.")

    @property
    def options(self) -> dict[str, Any]:
        """What loading is told beside the source."""
        size = {"size": self.size} if "size" in self.model_fields_set else {}
        return {**size, **self.params}

    @model_validator(mode="after")
    def _one_origin(self) -> ModelEntry:
        if (self.load is None) == (self.new is None):
            raise ValueError("expected exactly one of `load` and `new`")
        if self.new is not None and self.data is None:
            raise ValueError("a new model needs `data` for its classes")
        return self


class HardenEntry(WithParams):
    """A training run."""

    method: str = Field(description="Its parameters stand beside it.")
    model: str = Field(description="The model that is trained, by its name in the recipe.")
    data: str = Field(description="What it is trained on, by its name in the recipe.")
    validation: str | None = Field(None, description="What the best epoch is chosen by.")
    defend: str | list[str] | dict[str, dict[str, Any] | None] | None = Field(
        None, description="Train behind defences; those of the model when left out."
    )


class SeasonEntry(WithParams):
    """A soup whose weights a method chooses on some images."""

    method: str = Field(description="Its parameters stand beside it.")
    models: list[str] = Field(min_length=1, description="The members, by their names.")
    data: str = Field(description="The images that the soup is seasoned for.")
    source: str | None = Field(None, description="Labelled images of the members' own kind.")
    shots: Natural = Field(100, description="How many images the method may see.")
    bn: Literal["auto", "mix", "recompute", "left"] | None = Field(
        None, description="BatchNorm statistics of every soup and member."
    )
    bn_images: Literal["source", "target"] | None = Field(
        None, description="Whose images bn: recompute uses."
    )
    class_space: Literal["usual", "all", "subset"] | None = Field(
        None, description="Among which outputs models with more classes than the data are scored."
    )
    precision: PrecisionChoice | None = Field(None, description="Of forward passes.")

    @property
    def options(self) -> dict[str, str]:
        """What is said of the seasoning itself; what is not said is as `stockpot.season` has it."""
        said = {key: getattr(self, key) for key in ("bn", "bn_images", "class_space", "precision")}
        return {key: value for key, value in said.items() if value is not None}


class MeasureEntry(WithParams):
    """One measure on one dataset."""

    measure: str = Field(description="Its parameters stand beside it.")
    data: str = Field(description="On what, by its name in the recipe.")
    models: list[str] | None = Field(None, description="All models of the block when left out.")
    unseen: bool = Field(
        False, description="Leave out, for each model, the images that it saw when it was made."
    )
    shards: Count = Field(
        1, description="Into how many parts images are divided, so that many workers share a cell."
    )


class MeasureBlock(Closed):
    """Which models are measured, and how."""

    models: list[str] | None = Field(None, description="Every model of the recipe when left out.")
    with_: list[MeasureEntry] = Field(alias="with", min_length=1, description="The measures.")
    log_samples: bool = Field(
        False, description="Write what was answered to every image beside each result."
    )


class SimilarityBlock(Closed):
    """The models whose changes from a common base are compared."""

    base: str = Field(description="What the changes are taken from.")
    models: list[str] = Field(min_length=2, description="Whose changes are compared.")


class ScatterBlock(Closed):
    """Two groups of datasets whose mean accuracies are drawn against each other."""

    title: str = Field("", description="Of the chart.")
    across: list[str] = Field(min_length=1, description="Datasets of the horizontal axis.")
    up: list[str] = Field(min_length=1, description="Datasets of the vertical axis.")


class ReportBlock(Closed):
    """The page at the end."""

    title: str = Field("Stockpot report", description="Of the page.")
    out: str = Field("report.html", description="Its file in the run folder.")
    subtitle: str = Field("", description="A line below the title.")
    scatter: list[ScatterBlock] = Field(default_factory=list, description="One, or a list.")

    @field_validator("scatter", mode="before")
    @classmethod
    def _one_or_more(cls, given: Any) -> Any:
        return [given] if isinstance(given, dict) else given


class Recipe(Closed):
    """A whole run."""

    version: Literal[1] = Field(description="Of the recipe's format.")
    seed: Seed = Field(0, description="Of everything random.")
    device: str = Field("auto", description="`auto`, `cpu`, `cuda`, ...")
    batch_size: BatchSize = Field(256, description="Images per forward pass, or `auto`.")
    precision: PrecisionChoice = Field("auto", description="Of a measure's forward passes.")
    compile: bool = Field(False, description="Compile networks before they are measured.")
    engine: str | dict[str, Any] = Field(
        "serial", description="Where work runs: a name, or a mapping with `name` and its options."
    )
    data: dict[str, DataEntry] = Field(default_factory=dict, description="The datasets.")
    models: dict[str, ModelEntry] = Field(
        default_factory=dict, description="Models that exist or begin anew."
    )
    harden: dict[str, HardenEntry] = Field(
        default_factory=dict, description="Models made by training."
    )
    fuse: dict[str, FuseEntry] = Field(default_factory=dict, description="Models made of several.")
    season: dict[str, SeasonEntry] = Field(
        default_factory=dict, description="Soups whose weights are chosen on images."
    )
    tune: dict[str, TuneEntry] = Field(
        default_factory=dict, description="Fusions whose parameters are searched."
    )
    similarity: SimilarityBlock | None = Field(None, description="Whether changes point one way.")
    measure: MeasureBlock | None = Field(None, description="What is measured.")
    report: ReportBlock | None = Field(None, description="The page at the end.")
    sinks: dict[str, dict[str, Any] | None] = Field(
        default_factory=dict,
        description="Trackers that are told each result: a name, a list, or names with parameters.",
    )
    index: str = Field(
        "",
        description="An index that results go into too: a SQLite file or a PostgreSQL URL.",
    )
    _variants: dict[str, Variant] = PrivateAttr(default_factory=dict)

    @field_validator("sinks", mode="before")
    @classmethod
    def _names_or_parameters(cls, given: Any) -> Any:
        names = [given] if isinstance(given, str) else given
        return dict.fromkeys(names) if isinstance(names, list) else names

    def __repr__(self) -> str:
        measures = len(self.measure.with_) if self.measure else 0
        made = f"{len(self.model_names)} models, {measures} measures"
        return f"Recipe({len(self.data)} datasets, {made}, seed {self.seed})"

    def __str__(self) -> str:
        return repr(self)

    def with_variants(self, variants: Mapping[str, Variant]) -> Recipe:
        """The recipe, told which of its models are written out from entries for several."""
        self._variants = dict(variants)
        return self

    def variant(self, model: str) -> Variant:
        """The entry that a model stands in, with its seed and its point of a sweep."""
        return self._variants.get(model, Variant(model))

    def model_meant(self, name: str, beside: str) -> str:
        """The model that `name` means to another one: run n of an entry to run n."""
        found = meant(name, self.variant(beside).seed, self._variants)
        return found[0] if len(found) == 1 else name

    @property
    def model_names(self) -> list[str]:
        """Every model of the recipe: given, hardened, fused or seasoned."""
        return [*self.models, *self.harden, *self.fuse, *self.season, *self.tune]


def references(recipe: Recipe) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Every place that names a model or a dataset: (path, kind, name)."""
    for name, model in recipe.models.items():
        if model.data is not None:
            yield ("models", name, "data"), "data", model.data
    for name, run in recipe.harden.items():
        yield ("harden", name, "model"), "model", run.model
        yield ("harden", name, "data"), "data", run.data
        if run.validation is not None:
            yield ("harden", name, "validation"), "data", run.validation
    for name, soup in recipe.fuse.items():
        for index, member in enumerate(soup.models):
            yield ("fuse", name, "models", index), "model", member
        if soup.base is not None:
            yield ("fuse", name, "base"), "model", soup.base
        for index, data in enumerate(soup.datasets):
            place = ("fuse", name, "data", index)
            yield place[:3] if isinstance(soup.data, str) else place, "data", data
    for name, seasoned in recipe.season.items():
        for index, member in enumerate(seasoned.models):
            yield ("season", name, "models", index), "model", member
        yield ("season", name, "data"), "data", seasoned.data
        if seasoned.source is not None:
            yield ("season", name, "source"), "data", seasoned.source
    for name, tuned in recipe.tune.items():
        for index, member in enumerate(tuned.models):
            yield ("tune", name, "models", index), "model", member
        if tuned.base is not None:
            yield ("tune", name, "base"), "model", tuned.base
        for key, sets in tuned.sets.items():
            for data in sets:
                yield ("tune", name, key), "data", data
    if recipe.similarity is not None:
        yield ("similarity", "base"), "model", recipe.similarity.base
        for index, member in enumerate(recipe.similarity.models):
            yield ("similarity", "models", index), "model", member
    if recipe.measure is None:
        return
    for index, chosen in enumerate(recipe.measure.models or ()):
        yield ("measure", "models", index), "model", chosen
    for index, entry in enumerate(recipe.measure.with_):
        yield ("measure", "with", index, "data"), "data", entry.data
        for position, chosen in enumerate(entry.models or ()):
            yield ("measure", "with", index, "models", position), "model", chosen


def json_schema(parameters: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The JSON Schema of a recipe, for editors; `parameters` adds each method's own keys."""
    schema = Recipe.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    scatters = definitions["ReportBlock"]["properties"]
    scatters["scatter"] = {"anyOf": [{"$ref": "#/$defs/ScatterBlock"}, scatters["scatter"]]}
    trackers = schema["properties"]
    listed = {"type": "array", "items": {"type": "string"}}
    trackers["sinks"] = {"anyOf": [{"type": "string"}, listed, trackers["sinks"]]}
    for title, key in (
        ("HardenEntry", "method"),
        ("FuseEntry", "method"),
        ("SeasonEntry", "method"),
        ("MeasureEntry", "measure"),
    ):
        known = (parameters or {}).get(title, {})
        if known:
            definitions[title]["properties"][key]["enum"] = sorted(known)
            definitions[title]["allOf"] = [
                {
                    "if": {"properties": {key: {"const": name}}},
                    "then": {"properties": properties},
                }
                for name, properties in sorted(known.items())
            ]
    return schema

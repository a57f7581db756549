"""`stockpot.run`: follow a recipe, and give back what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from stockpot.datasets.kept import forget_datasets
from stockpot.engine.choice import EngineChoice, checked_engine
from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.fuse.similarity import SimilarityReport, similarity
from stockpot.measure.measurement import Progress, no_progress
from stockpot.measure.run import Done, run_cells
from stockpot.recipe import Overrides, Recipe, RecipeFile, load_recipe
from stockpot.remote.working_copy import WorkingCopy, working_copy
from stockpot.report.page import write_page
from stockpot.report.sections.scatter import Axes
from stockpot.results.collection import Results
from stockpot.results.index.open import caught_up, prepared
from stockpot.results.schema import CellResult
from stockpot.results.sinks.feed import Feed, Sinks, chosen_sinks
from stockpot.run.check import check
from stockpot.run.folder import LOCK, clear, remember
from stockpot.run.make import Say, keep_silent, make_model, make_models
from stockpot.run.pictures import pictures_of
from stockpot.run.places import beside
from stockpot.run.plan import cells_of, checkpoint, model_spec
from stockpot.run.survey import Survey, cell_files, survey
from stockpot.stages import stage, timed


@dataclass(frozen=True)
class Run:
    """What came of a recipe."""

    folder: Path
    models: dict[str, str]
    """Name -> where the model lies, as `load_model` takes it."""
    results: Results
    report: Path | None = None
    similarity: SimilarityReport | None = None
    address: str | None = None
    """Where the run lies in storage; `folder` is the copy of it on this machine then."""

    def __repr__(self) -> str:
        page = f", report {self.report}" if self.report else ""
        return f"Run({self.folder}: {len(self.models)} models, {len(self.results)} results{page})"


@timed()
def run(
    recipe: str | Path | Mapping[str, Any] | RecipeFile,
    *,
    out: str | Path | None = None,
    engine: EngineChoice | None = None,
    fresh: bool = False,
    progress: Progress = no_progress,
    say: Say = keep_silent,
    done: Done | None = None,
    to: Sinks | None = None,
    index: str | Path = "",
    **overrides: Any,
) -> Run:
    """Follow a recipe: make its models, measure them, write the report.

    What is in the folder already is reused where the question is the same: a model whose method,
    parameters and inputs are unchanged, a cell whose model, data and parameters are.

    Args:
        recipe: a file, the same as a mapping, or a recipe that was read.
        out: the run folder, or its address in storage (`s3://bucket/run`, docs/remote.md);
            `runs/NAME` for a file.
        engine: where models and cells are made: `serial`, `processes`, `ray` or `slurm`, or a
            mapping with its `name` and options; as the recipe says by default.
        fresh: remove what an earlier run left in the folder.
        progress: called as steps and images are done.
        say: called with one line for every model: reused, made, or made anew and why.
        done: called as cells are done, with how many are and how many there are.
        to: trackers that are told each result as it comes, beside those of the recipe (`sinks:`).
        index: an index of results that is told of each as it comes, if not that of the recipe
            (`index:`): a SQLite file, or `postgresql://user@host/database`.
        **overrides: values of the recipe to change, by their path: `seed=1` or
            `**{"data.test.limit": 100}`.

    Raises:
        PartialResultsError: some cells failed; the others are saved.
    """
    file = read(recipe, overrides)
    check(file)
    forget_datasets()
    engine = engine or file.recipe.engine
    checked_engine(engine)
    with working_copy(folder_of(file, out), lock=LOCK) as place:
        if fresh:
            clear(place.folder)
        return _follow(file, place, engine, progress, say, done, to, index)


def _follow(
    file: RecipeFile,
    place: WorkingCopy,
    engine: EngineChoice,
    progress: Progress,
    say: Say,
    done: Done | None,
    to: Any,
    index: str | Path,
) -> Run:
    folder = place.folder
    # Should the run be stopped while models are made, its folder already tells old cells from new.
    known = survey(file, folder)
    remember(file, folder, models=known.digests, cells=known.files)
    # Storage that takes nothing, or a tracker that cannot be had, is found out before hours of
    # training.
    place.push()
    asked = index or file.recipe.index
    told = prepared(asked, folder) if asked else ""
    with Feed({**file.recipe.sinks, **chosen_sinks(to)}, folder) as feed:
        with stage("make"):
            digests = make_models(file, folder, engine=engine, progress=progress, say=say)
        cells = cells_of(file.recipe, folder, told)
        remember(file, folder, models=digests, cells=cell_files(cells))
        alike = _compare_changes(file.recipe, folder)
        results = run_cells(cells, engine=engine, progress=progress, done=done, feed=feed)
    if told:
        caught_up(told, folder)
    models = {n: str(model_spec(file.recipe, n, folder).source) for n in file.recipe.model_names}
    page = _write_report(file.recipe, folder, results)
    return Run(folder, models, results, page, alike, place.url)


def preview(
    recipe: str | Path | Mapping[str, Any] | RecipeFile,
    *,
    out: str | Path | None = None,
    **overrides: Any,
) -> Survey:
    """What `run` would do: which models and cells are there, which would be made, and why."""
    file = read(recipe, overrides)
    check(file)
    forget_datasets()
    copy = WorkingCopy(folder_of(file, out))
    copy.pull()
    return survey(file, copy.folder)


def read(
    recipe: str | Path | Mapping[str, Any] | RecipeFile, overrides: Overrides = ()
) -> RecipeFile:
    """A recipe from wherever it is, with values changed.

    Paths in a file are meant from its folder; those that are not there, from where one stands.
    """
    if isinstance(recipe, RecipeFile):
        return recipe.changed(overrides) if overrides else recipe
    if isinstance(recipe, Mapping):
        text = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True)
        return RecipeFile(text, "recipe", overrides)
    return load_recipe(recipe, overrides, beside(Path(recipe)))


def folder_of(file: RecipeFile, out: str | Path | None = None) -> Path:
    """Where a run goes: as said, or by the name of its file."""
    if out is not None:
        return Path(out)
    if not file.name.endswith((".yaml", ".yml")):
        raise UserError("a recipe that is not a file needs a folder: give out=FOLDER.")
    return Path("runs") / Path(file.name).stem


def _compare_changes(recipe: Recipe, folder: Path) -> SimilarityReport | None:
    """The cosines of the changes of several models, kept as CSV and as a picture for the page."""
    block = recipe.similarity
    if block is None:
        return None
    members = {name: checkpoint(recipe, name, folder) for name in block.models}
    found = similarity(checkpoint(recipe, block.base, folder), members)
    write_atomic(folder / "similarity.csv", found.to_csv())
    write_atomic(folder / "figures" / "cosine_of_the_changes.svg", found.to_svg())
    return found


def _write_report(recipe: Recipe, folder: Path, results: list[CellResult]) -> Path | None:
    block = recipe.report
    if block is None or not results:
        return None
    return write_page(
        results,
        folder / block.out,
        title=block.title,
        subtitle=block.subtitle,
        axes=[Axes(s.across, s.up, s.title) for s in block.scatter],
        folders=[folder],
        pictures=pictures_of(results, {name: entry.source for name, entry in recipe.data.items()}),
    )


class OneModel(NamedTuple):
    """One model of a recipe; a plain value that another process understands."""

    recipe: Recipe
    name: str
    folder: Path


def make_and_measure(task: OneModel) -> None:
    """Make a model unless it is there as asked for, then measure it.

    A step for `engine.schedule`, where models should be measured as they come.
    """
    make_model(task.recipe, task.name, task.folder)
    run_cells([c for c in cells_of(task.recipe, task.folder) if c.model.name == task.name])

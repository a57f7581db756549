"""`stockpot.tune`: search on validation images, choose, and score the choice on test images."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stockpot.checkpoints.record import read_record, write_record
from stockpot.checkpoints.seen import read_seen, write_seen
from stockpot.datasets.dataset import Dataset
from stockpot.engine import pick_device
from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.run import fuse
from stockpot.lock import held_alone
from stockpot.measure.measurement import Context, Progress, no_progress
from stockpot.models.inputs import seen_in
from stockpot.report.tuned import write_tune_page
from stockpot.results.index.open import prepared
from stockpot.results.tuning import (
    TunedTrial,
    TuneResult,
    read_tuning,
    write_tuning,
)
from stockpot.stages import Spent, stage, timed
from stockpot.tune.examine import scores_on_test
from stockpot.tune.final import check_index, tell_choice
from stockpot.tune.merges import Merges
from stockpot.tune.question import Data, Member, ask, check_apart, default_point, read_data
from stockpot.tune.search import METHOD, Search
from stockpot.tune.study import (
    Pruner,
    Sampler,
    check_knobs,
    close_study,
    grid_points,
    numbered_sampler,
    open_study,
    pruner_of,
    sqlite_in,
)
from stockpot.tune.summary import (
    as_text,
    directions,
    source_text,
    trial_row,
    with_choice,
    with_selection,
)
from stockpot.types import check_seed

MODEL, PAGE = "model", "tune.html"
_PATIENCE = 3600.0
"""Seconds that another process may take to score its choice."""


@timed()
def tune(
    method: str | Sequence[str],
    members: Sequence[Member] | Mapping[str, Member],
    data: Data,
    *,
    out: str | Path,
    base: Member | None = None,
    objectives: str | Sequence[str] = "clean",
    unseen: Data = (),
    space: Mapping[str, Any] | None = None,
    trials: int = 100,
    sampler: Sampler = "tpe",
    points: int = 5,
    prune: Pruner = "none",
    prefer: str = "",
    storage: str | None = None,
    split: str = "val",
    test: Data | None = None,
    test_split: str | None = "test",
    limit: int | None = None,
    tasks: Any = None,
    measure_params: Mapping[str, Mapping[str, Any]] | None = None,
    data_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int = 256,
    index: str | Path = "",
    progress: Progress = no_progress,
    **params: Any,
) -> TuneResult:
    """Search a fusion's parameters, or the method itself, on validation images.

    Every trial is merged in memory and judged on validation images. The best one (of several
    objectives: one of the front) is written to `out/model`, and scored once on test images.
    The same call again goes on where it was stopped; several processes may share one storage.

    Args:
        method: a fusion method, or several (a list, or by comma), of which the best is searched.
        members: as for `stockpot.fuse`, as models that can be loaded.
        data: the tasks to judge by; names mean their `split`.
        out: a folder: `tune.json`, the page `tune.html`, the storage, and the chosen `model`.
        base: what the members were tuned from.
        objectives: one to three of `stockpot.tune.objectives`: clean, worst_task, unseen,
            corruption, robust, calibration, entropy, nuclear_norm, or MEASURE.METRIC.
        unseen: tasks for the objective `unseen`, which no member was made for.
        space: what is searched: parameter -> range (`0.1:0.9`, `1e-5:1e-3:log`), choices, or a
            tree of them by `members`, `depth` or globs. By default all knobs of the method, by
            its signature.
        trials: how many merges to try, those done before counted.
        sampler: tpe, cma (one objective, numbers only), random, grid (all combinations), nsga2.
        points: values of each range in a grid.
        prune: none; racing gives up a trial when the best so far is better beyond noise on the
            images seen; median and halving are Optuna's.
        prefer: of several objectives, the one by which to choose from the front; by default the
            point whose worst objective is best.
        storage: where trials are kept: a URL as for SQLAlchemy; a SQLite file in `out` by default.
        split: what the search sees.
        test: what the choice is scored on at the end, task by task; by default other images of
            the same data.
        test_split: which those are; None for no test.
        limit: at most so many validation images of each task.
        tasks: data to learn from, for methods that do.
        measure_params: parameters of the measures behind objectives, by measure.
        data_options: options of `load_dataset`.
        seed: of everything random.
        device: where models run.
        batch_size: images per forward pass.
        index: an index of results that is told how the choice did on test images, measure by
            measure as from `stockpot measure`; the result files lie in `out/results`.
        progress: told how many trials are done.
        params: parameters of the method that are not searched.
    """
    spent, folder = Spent(), Path(out)
    if trials < 1 or batch_size < 1 or points < 1:
        raise BadParameterError("tune: expected trials, points and batch_size of at least 1.")
    check_seed(seed)
    with stage("load"):
        asked = ask(
            method, members, data, base=base, objectives=objectives, unseen=unseen, space=space,
            sampler=sampler, points=points, prune=prune, split=split, limit=limit, tasks=tasks,
            measure_params=measure_params, data_options=data_options, seed=seed, params=params,
        )  # fmt: skip
        named, wanted, record = asked.members, asked.objectives, asked.record
        if prefer and prefer not in {one.name for one in wanted}:
            raise BadParameterError(f"prefer: expected one of the objectives, got {prefer!r}.")
        seen = [*asked.data, *asked.unseen]
        exam_data: list[Dataset] = []
        if test_split:
            options = data_options or {}
            exam_data = read_data(data if test is None else test, test_split, options)
            if len(exam_data) != len(asked.data):
                raise BadParameterError(
                    f"test: expected a set of images for each of {len(asked.data)} tasks, got "
                    f"{len(exam_data)}."
                )
            exam_data += read_data(unseen, test_split, options)
    check_apart(seen, exam_data)
    if index:
        check_index(exam_data, wanted)
        index = prepared(index, folder)
    place = pick_device(device)
    context = Context(device=place, batch_size=batch_size, seed=seed)
    marks = [False] * len(asked.data) + [True] * len(asked.unseen)
    merges = Merges(named, base, seen, device=place, tasks=tasks)
    search = Search(asked.spaces, params, wanted, merges, marks, context, prune)
    check_knobs(search.knobs, sampler)
    first = _first(search, sampler, points)
    total = len(first) if sampler == "grid" else trials
    ways = numbered_sampler(sampler, seed, first, len(wanted) > 1), pruner_of(prune)
    folder.mkdir(parents=True, exist_ok=True)
    question = {"digest": record.digest, **json.loads(record.model_dump_json())["parameters"]}
    study = open_study(storage or sqlite_in(folder), len(wanted), question)
    study.sampler, study.pruner = ways
    earlier = read_tuning(folder)

    def summed_up(finished: bool = False) -> TuneResult:
        rows = [trial_row(one, named, base, as_text(tasks), isinstance(members, Mapping))
                for one in study.get_trials(deepcopy=False)
                if one.state.is_finished() and METHOD in one.user_attrs]  # fmt: skip
        found = TuneResult(
            digest=record.digest, methods=asked.methods,
            members={name: source_text(one) for name, one in named.items()},
            base="" if base is None else source_text(base),
            data=[str(one) for one in seen],
            images=sum(map(len, seen)),
            objectives=directions(study, wanted),
            knobs={name: str(knob) for name, knob in search.knobs.items()},
            sampler=sampler, prune=prune, seed=seed, wanted=total, finished=finished,
            trials=rows,
            test_looks=earlier.test_looks if earlier else 0,
            stages=spent.stages(),
            **_examined(exam_data, record.digest, earlier),
        )  # fmt: skip
        return with_choice(found, prefer, 0 if sampler == "grid" else len(first))

    def told() -> None:
        found = summed_up()
        with stage("write"):
            write_tuning(folder, found)
            write_tune_page(found, folder / PAGE)
        progress("trials", len(found.trials), total)

    try:
        search.run(study, total, told)
        # Of several processes one scores the choice and writes it; the others find it done.
        with held_alone(folder / ".choice.lock", folder, wait=_PATIENCE):
            earlier = read_tuning(folder)
            result = summed_up(finished=True)
            if (chosen := result.chosen) is not None:
                result = with_selection(result, study, wanted, seen, marks, seed)
                again = earlier is not None and earlier.finished and earlier.chosen == chosen
                if not again:  # what is there was of another choice
                    result = result.model_copy(update={"test": {}})
                exam = Merges(named, base, exam_data, device=place, tasks=tasks)
                if exam_data and not result.test:
                    scores = scores_on_test(result, exam, wanted, marks, context)
                    looks = result.test_looks + 1
                    result = result.model_copy(update={"test": scores, "test_looks": looks})
                best = result.trial(chosen)
                _write_model(folder, best, named, base, tasks, str(place), seen, record)
                if index:
                    tell_choice(str(index), folder, best, exam, wanted, marks, context)
            is_done = earlier is not None and earlier.finished  # by another process, or before
            stages = earlier.stages if earlier is not None and is_done else spent.stages()
            result = result.model_copy(update={"stages": stages})
            write_tuning(folder, result)
            write_tune_page(result, folder / PAGE)
    finally:
        close_study(study)
    return result


def _examined(data: Sequence[Dataset], digest: str, earlier: TuneResult | None) -> dict[str, Any]:
    """The test images, and the scores on them that are there: of this search, and of no others."""
    known = earlier if earlier is not None and earlier.digest == digest else None
    if not data and known is not None:
        return known.model_dump(include={"test_data", "test_content", "test"})
    content = [one.fingerprint for one in data]
    scores = known.test if known is not None and known.test_content == content else {}
    return {"test_data": [str(one) for one in data], "test_content": content, "test": scores}


def _first(search: Search, sampler: Sampler, points: int) -> list[dict[str, Any]]:
    """What the first trials try: all points of a grid, or the defaults of every method."""
    if sampler == "grid":
        found: list[dict[str, Any]] = []
        for method, space in search.spaces.items():
            prefix = f"{method}." if search.several else ""
            own = grid_points(space.knobs(prefix), points)
            found += [{METHOD: method, **one} if search.several else one for one in own]
        return found
    defaults = []
    for method, space in search.spaces.items():
        point = default_point(space, f"{method}." if search.several else "")
        if point is not None:
            defaults.append({METHOD: method, **point} if search.several else point)
    return defaults


def _write_model(
    folder: Path,
    best: TunedTrial,
    members: Mapping[str, Any],
    base: Any,
    tasks: Any,
    device: str,
    data: Sequence[Any],
    asked: Any,
) -> None:
    """The chosen merge as a folder; what an earlier, shorter search chose gives way."""
    target, anew = folder / MODEL, folder / f".{MODEL}.anew"
    known = read_record(target) if target.is_dir() else None
    mark = {"digest": asked.digest, "trial": best.number}
    if known is not None and known.details.get("tuned") == mark:
        return
    shutil.rmtree(anew, ignore_errors=True)
    settings: dict[str, Any] = {"base": base, **best.params}
    if fusers.get(best.method).tags.learns:
        settings |= {"tasks": tasks, "device": device}
    if best.command:
        settings["command"] = best.command.replace("OUT", str(target))
    fuse(best.method, members, out=anew, **settings)
    seen = read_seen(anew)
    for one in data:
        seen |= seen_in("tuning", one)
    for place in (anew, *sorted(p for p in anew.iterdir() if p.is_dir())):
        made = read_record(place)
        if made is not None:
            update = {"seen": write_seen(place, seen), "details": {**made.details, "tuned": mark}}
            write_record(place, made.model_copy(update=update))
    shutil.rmtree(target, ignore_errors=True)
    anew.rename(target)

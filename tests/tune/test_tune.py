"""`stockpot.tune` from end to end, on pico models: memory equals folders, resumed equals whole."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import stockpot
from commands import invoke
from pico import make_dataset
from stockpot.checkpoints.record import read_record
from stockpot.errors import BadDataError, BadParameterError
from stockpot.report.tuned import render_tuning
from stockpot.results.index.open import open_index
from stockpot.results.tuning import TuneResult, read_tuning
from stockpot.tune import search
from task_pools import TASKS, ClipPool, make_clip_pool, random_dataset
from toy_tuning import levels, parted, told, toy

pytest.importorskip("optuna")


def test_a_grid_finds_the_known_optimum_and_scores_it_once(tmp_path: Path) -> None:
    found = toy(tmp_path)
    by_hand = {}
    seen, _ = parted()
    for scale in (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0):
        (cell,) = stockpot.measure({"m": levels(4 * scale)}, "clean", data=seen)
        by_hand[scale] = cell.scores[0].value
    assert {t.params["scale"]: t.values["clean"] for t in found.trials} == by_hand
    assert found.chosen is not None
    assert found.trial(found.chosen).params == {"scale": 0.25}
    assert found.test["clean"].value == 1.0
    assert found.test["clean"].n == 30
    assert found.test_looks == 1
    assert {"merge", "judge"} <= set(found.stages)
    longer = found.model_copy(update={"stages": {"merge": 2.0, "judge": 0.01}})
    assert "merge 2.0 s" in render_tuning(longer)
    again = toy(tmp_path)  # nothing is left to do, and the test images are left alone
    assert (again.test_looks, told(again)) == (1, told(found))
    assert read_tuning(tmp_path) == again


def test_scores_on_other_test_images_are_not_those_of_the_first(tmp_path: Path) -> None:
    _, test = parted()
    wrong = replace(test, labels=(test.labels + 1) % 4, fingerprint="wrong")
    assert toy(tmp_path).test["clean"].value == 1.0
    found = toy(tmp_path, test=wrong)  # the same choice is wrong about every image of these
    assert (found.test["clean"].value, found.test_looks) == (0.0, 2)
    unasked = toy(tmp_path, test=None, test_split=None)
    assert (unasked.test, unasked.test_data) == (found.test, found.test_data)
    assert toy(tmp_path, test=wrong).test_looks == 2


def test_what_a_method_learns_from_is_part_of_the_question(tmp_path: Path) -> None:
    seen, test = parted()
    members = {"far": levels(4.0), "near": levels(2.0)}

    def search(method: str, tasks: Any) -> TuneResult:
        space = {"scale": "0.2:0.4"} if method == "ties" else {"steps": "1,2"}
        return stockpot.tune(
            method, members, seen, base=levels(0.0), out=tmp_path / method, tasks=tasks,
            space=space, trials=1, sampler="random", test_split=None,
        )  # fmt: skip

    search("adamerging", [seen])
    with pytest.raises(BadParameterError, match="holds another search"):
        search("adamerging", [test])
    assert search("ties", [seen]).digest == search("ties", [test]).digest  # it learns nothing


def test_methods_may_have_spaces_between_them(tmp_path: Path) -> None:
    found = toy(tmp_path, method="task_arithmetic, average", points=2)
    assert found.methods == ["task_arithmetic", "average"]


def test_a_limit_of_none_is_not_all(tmp_path: Path) -> None:
    with pytest.raises(BadParameterError, match="limit: expected at least 1 image"):
        stockpot.tune(
            "ties", {"far": levels(4.0)}, "icons", base=levels(0.0), out=tmp_path, limit=0
        )


def test_an_index_is_told_the_final_results(tmp_path: Path) -> None:
    place = tmp_path / "index.db"
    with pytest.raises(BadParameterError, match="test images"):
        toy(tmp_path / "tuned", index=place, test=None, test_split=None)
    for _ in range(2):  # the second finds all of it
        found = toy(tmp_path / "tuned", index=place)
    _, test = parted()
    (cell,) = stockpot.measure({"m": levels(1.0)}, {"clean": {"per_class": False}}, data=test)
    with open_index(place) as index:
        asked = "SELECT model, data_fingerprint, metric, value FROM results ORDER BY position"
        rows = [tuple(row) for row in index.query(asked).rows]
    name, images = f"tuned-{found.chosen}", test.fingerprint
    assert rows == [(name, images, one.metric, one.value) for one in cell.scores]
    # Nothing is open any more: the trials are in one file.
    assert not list((tmp_path / "tuned").glob("tune.db-*"))


class Killed(BaseException):
    pass


def test_a_race_that_was_stopped_is_undisturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"sampler": "random", "trials": 6, "prune": "racing", "space": {"scale": "0.0:1.0"}}
    undisturbed = toy(tmp_path / "a", **how)
    real, calls = search.judge, iter(range(100))

    def dying(*words: Any) -> Any:
        if next(calls) == 4:
            raise Killed
        return real(*words)

    with monkeypatch.context() as patch:
        patch.setattr(search, "judge", dying)
        with pytest.raises(Killed):
            toy(tmp_path / "b", **how)
    resumed = toy(tmp_path / "b", **how)
    assert told(resumed) == told(undisturbed)
    assert (resumed.chosen, resumed.test) == (undisturbed.chosen, undisturbed.test)
    whole = toy(tmp_path / "c", **how | {"prune": "none"})
    assert any(t.state == "pruned" for t in resumed.trials)
    assert whole.chosen == resumed.chosen, "who was given up would not have won"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ClipPool:
    return make_clip_pool(tmp_path_factory.mktemp("pool"))


@pytest.fixture(scope="module")
def tuned(pool: ClipPool, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TuneResult]:
    """Two methods, two objectives, three tasks with heads of their own."""
    out = tmp_path_factory.mktemp("tuned")
    seen = [random_dataset(classes, seed=n) for n, classes in enumerate(TASKS.values())]
    test = [random_dataset(classes, seed=7 + n) for n, classes in enumerate(TASKS.values())]
    return (
        out,
        stockpot.tune(
            "task_arithmetic,dare", list(map(str, pool.members.values())), seen,
            base=str(pool.base), test=test, objectives="clean,calibration", trials=4, out=out,
            space={"task_arithmetic.weights": "-3:3", "scale": {"*attn*": "0.5:5", "*": "0:1"}},
        ),
    )  # fmt: skip


def test_the_command_of_a_trial_makes_its_weights(tuned: Any, tmp_path: Path) -> None:
    """What was measured in memory, what was written, and what the command makes are the same."""
    out, found = tuned
    best = found.trial(found.chosen)
    other = next(t for t in found.trials if t.method != best.method)
    for trial in (best, other):
        words = shlex.split(trial.command)
        assert words[0] == "stockpot"
        place = tmp_path / str(trial.number)
        done = invoke(*words[1:-1], place)
        assert done.exit_code == 0, done.output
    made = load_file(tmp_path / str(best.number) / "model.safetensors")
    kept = load_file(out / "model" / "model.safetensors")
    assert made.keys() == kept.keys()
    assert all(torch.equal(made[name], kept[name]) for name in made)
    # And so are those of another trial, as the search has them in memory.
    state = stockpot.fuse(other.method, found.members, base=found.base, **other.params)
    made = load_file(tmp_path / str(other.number) / "model.safetensors")
    assert made.keys() == state.keys()
    assert all(torch.equal(made[name], state[name]) for name in made)
    # Measured from its folder, the other trial scores what it scored in memory.
    seen = [random_dataset(classes, seed=n) for n, classes in enumerate(TASKS.values())]
    cells = stockpot.measure(
        {"m": tmp_path / str(other.number)}, "clean", data={str(n): d for n, d in enumerate(seen)}
    )
    assert [cell.scores[0].value for cell in cells] == other.tasks["clean"]


def test_the_folder_tells_what_was_seen(tuned: Any) -> None:
    out, found = tuned
    record = read_record(out / "model")
    assert record is not None
    assert record.seen is not None
    assert record.seen.images["tuning"] == 72, "three tasks of 24 images"
    assert found.test.keys() == {"clean", "calibration"}
    assert found.chosen in found.front


def test_the_page_shows_every_trial_and_its_command(tuned: Any) -> None:
    out, found = tuned
    page = (out / "tune.html").read_text(encoding="utf-8")
    assert page.count("<circle") >= len(found.trials)
    for trial in found.trials:
        assert f"trial {trial.number}:" in page
    assert "stockpot fuse dare" in page


def test_the_page_follows_a_search_that_goes_on(tuned: Any) -> None:
    from stockpot.report.tuned import render_tuning

    _, found = tuned
    assert "setTimeout(() => location.reload()" in render_tuning(
        found.model_copy(update={"finished": False})
    )
    assert "setTimeout(() => location.reload()" not in render_tuning(found)
    empty = found.model_copy(
        update={"trials": [], "front": [], "chosen": None, "test": {}, "finished": False}
    )
    assert "No trial has ended yet" in render_tuning(empty)


def test_what_the_search_sees_is_no_test(tmp_path: Path) -> None:
    seen, _ = parted()
    with pytest.raises(BadDataError, match="those that the search sees"):
        toy(tmp_path, test=seen)
    with pytest.raises(BadDataError, match="those that the search sees"):  # by a limit, as it were
        toy(tmp_path, test=make_dataset(60))
    with pytest.raises(BadParameterError, match="needs the single objective"):
        toy(tmp_path, objectives="calibration", prune="racing")
    with pytest.raises(BadParameterError, match="one to three"):
        toy(tmp_path, objectives="clean,clean")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("objective", ["entropy", "nuclear_norm", "clean.nll", "worst_task"])
def test_other_objectives_go_their_own_way(tmp_path: Path, objective: str) -> None:
    found = toy(tmp_path, objectives=objective, points=5, test_split=None)
    (goal,) = found.objectives
    assert goal.higher == (objective in ("nuclear_norm", "worst_task"))
    values = [trial.values[objective] for trial in found.trials]
    assert found.chosen is not None
    best = max(values) if goal.higher else min(values)
    assert found.trial(found.chosen).values[objective] == best
    assert not found.test


def test_a_recipe_tunes_measures_and_finds_it_again(pool: ClipPool, tmp_path: Path) -> None:
    recipe = {
        "version": 1,
        "data": {
            "val": {"dataset": "icons", "split": "val", "limit": 16},
            "test": {"dataset": "icons", "split": "test", "limit": 16},
        },
        "models": {
            "base": {"load": str(pool.base)},
            **{name: {"load": str(path)} for name, path in pool.members.items()},
        },
        "tune": {
            "best": {
                "method": "task_arithmetic", "models": list(pool.members), "base": "base",
                "data": "val", "test": "test", "trials": 2, "sampler": "random",
                "space": {"scale": {"members": "0:2"}},
            }
        },
        "measure": {"models": ["best"], "with": [{"measure": "clean", "data": "test"}]},
    }  # fmt: skip
    lines: list[str] = []
    done = stockpot.run(recipe, out=tmp_path, say=lines.append)
    (place,) = (tmp_path / "tune").iterdir()
    found = read_tuning(place)
    assert found is not None
    assert found.test["clean"].value == done.results[0].scores[0].value
    assert found.trials[0].params.keys() == {"scale"}
    assert len(found.trials[0].params["scale"]["members"]) == 3
    assert "trial" in lines[-1]
    lines.clear()
    stockpot.run(recipe, out=tmp_path, say=lines.append)
    assert lines == ["best: already made"]
    recipe["tune"]["best"]["space"] = {"scal": "0:1"}  # type: ignore[index]
    with pytest.raises(stockpot.UserError, match="no parameter 'scal'"):
        stockpot.run(recipe, out=tmp_path)

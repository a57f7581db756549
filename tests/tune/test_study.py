"""The trials of a search: known optima, killed and resumed, two processes and one storage."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stockpot.errors import BadParameterError
from stockpot.tune.space import Choice, Knob, Range
from stockpot.tune.study import (
    Sampler,
    check_knobs,
    grid_points,
    numbered_sampler,
    open_study,
    sqlite_in,
    suggest,
    trials_to_do,
)

pytest.importorskip("optuna")
KNOBS: dict[str, Knob] = {"x": Range(-2, 2), "y": Range(-2, 2)}


def bowl(values: dict[str, Any]) -> float:
    """Highest, with 0, at x = 0.5 and y = -1."""
    return float(-((values["x"] - 0.5) ** 2) - 2 * (values["y"] + 1) ** 2)


class Killed(BaseException):
    """What ends a process."""


def search(
    folder: Path,
    sampler: Sampler,
    total: int,
    *,
    knobs: dict[str, Knob] | None = None,
    first: list[dict[str, Any]] | None = None,
    kill_at: int = -1,
    score: Callable[[dict[str, Any]], float] = bowl,
) -> list[tuple[int, dict[str, Any], float]]:
    study = open_study(sqlite_in(folder), 1, {"digest": "toy"})
    study.sampler = numbered_sampler(sampler, 0, first or [], several=False)
    for trial in trials_to_do(study, total):
        values = suggest(trial, knobs or KNOBS)
        if trial.number == kill_at:
            raise Killed
        study.tell(trial, score(values))
    done = [t for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
    return [(t.number, dict(t.params), t.values[0]) for t in done]


@pytest.mark.parametrize("sampler", ["cma", "tpe"])
def test_killed_and_resumed_is_undisturbed(tmp_path: Path, sampler: Sampler) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    undisturbed = search(tmp_path / "a", sampler, 10)
    for kill_at in (3, 8):
        with pytest.raises(Killed):
            search(tmp_path / "b", sampler, 10, kill_at=kill_at)
    assert search(tmp_path / "b", sampler, 10) == undisturbed
    assert [number for number, _, _ in undisturbed] == list(range(10))


def test_a_kill_before_a_trial_has_an_owner_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockpot.tune.study._NAMELESS", 0.2)
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    undisturbed = search(tmp_path / "a", "random", 3)
    study = open_study(sqlite_in(tmp_path / "b"), 1, {"digest": "toy"})
    study.sampler = numbered_sampler("random", 0, [], several=False)
    study.ask()
    assert search(tmp_path / "b", "random", 3) == undisturbed


def test_cma_finds_the_bottom_of_a_bowl(tmp_path: Path) -> None:
    found = search(tmp_path, "cma", 40)
    _, best, value = max(found, key=lambda row: row[2])
    assert value > -0.05
    assert best["x"] == pytest.approx(0.5, abs=0.25)
    assert best["y"] == pytest.approx(-1, abs=0.2)


def test_a_grid_is_exhaustive(tmp_path: Path) -> None:
    knobs: dict[str, Knob] = {"x": Range(0, 1), "y": Range(-1, 0), "how": Choice(("a", "b"))}
    first = grid_points(knobs, 3)
    found = search(tmp_path, "grid", len(first), knobs=knobs, first=first)
    tried = {(values["x"], values["y"], values["how"]) for _, values, _ in found}
    assert tried == {(x, y, h) for x in (0, 0.5, 1) for y in (-1, -0.5, 0) for h in "ab"}
    assert len(found) == len(tried) == 18


def test_more_trials_go_on_from_fewer(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    search(tmp_path / "a", "random", 3)
    assert search(tmp_path / "a", "random", 6) == search(tmp_path / "b", "random", 6)


def _work(folder: str) -> None:
    search(Path(folder), "random", 12)


def test_two_processes_share_one_storage(tmp_path: Path) -> None:
    """Together they do what was asked, each trial once, and the random points are those of one."""
    search(tmp_path, "random", 1)
    here = multiprocessing.get_context("fork")
    both = [here.Process(target=_work, args=(str(tmp_path),)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert [one.exitcode for one in both] == [0, 0]
    found = search(tmp_path, "random", 12)
    (tmp_path / "alone").mkdir()
    assert len(found) == 12
    alone = {number: values for number, values, _ in search(tmp_path / "alone", "random", 12)}
    shared = {number: values for number, values, _ in found}
    assert all(alone[number] == values for number, values in shared.items() if number in alone)
    assert len({tuple(values.items()) for values in shared.values()}) == 12


def test_trials_of_two_searches_do_not_mix(tmp_path: Path) -> None:
    open_study(sqlite_in(tmp_path), 1, {"digest": "one", "space": "x"})
    with pytest.raises(BadParameterError, match="holds another search: digest"):
        open_study(sqlite_in(tmp_path), 1, {"digest": "two", "space": "x"})


def test_what_cma_cannot_do_is_said() -> None:
    with pytest.raises(BadParameterError, match="one objective"):
        numbered_sampler("cma", 0, [], several=True)
    with pytest.raises(BadParameterError, match="how is a choice"):
        check_knobs({"how": Choice(("a", "b"))}, "cma")
    with pytest.raises(BadParameterError, match="nothing to search"):
        check_knobs({}, "tpe")


def test_numbers_have_four_digits(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    search(tmp_path, "random", 5, score=lambda values: seen.append(values) or 0.0)  # type: ignore[func-returns-value]
    assert all(float(f"{v:.4g}") == v for values in seen for v in values.values())
    assert np.std([values["x"] for values in seen]) > 0

"""Searches of several processes: killed for real and resumed, side by side, on a server."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stockpot.results.tuning import TuneResult, read_tuning
from stockpot.tune import search
from toy_tuning import told, toy

pytest.importorskip("optuna")
HOW: dict[str, Any] = {"sampler": "random", "trials": 6, "space": {"scale": "0.0:1.0"}}


def started(work: Callable[..., Any], *words: Any) -> Any:
    """A process of its own that does some work."""

    def begin() -> None:
        torch.set_num_threads(1)  # the pool of threads stays with the parent
        work(*words)

    process = multiprocessing.get_context("fork").Process(target=begin)
    process.start()
    return process


def killed(out: Path, at: int) -> None:
    """A search whose process ends like a light at its so-many-th judgement."""
    real, calls = search.judge, iter(range(100))

    def dying(*words: Any) -> Any:
        if next(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*words)

    search.judge = dying
    toy(out, **HOW)


def test_after_sigkill_a_search_is_the_undisturbed_one(tmp_path: Path) -> None:
    undisturbed = toy(tmp_path / "whole", **HOW)
    for at in (2, 1):  # of the second process, which takes up the lost trial first
        process = started(killed, tmp_path / "killed", at)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    half = read_tuning(tmp_path / "killed")
    assert half is None or not half.finished
    resumed = toy(tmp_path / "killed", **HOW)
    assert told(resumed) == told(undisturbed)
    assert (resumed.chosen, resumed.front) == (undisturbed.chosen, undisturbed.front)
    assert (resumed.test, resumed.selection) == (undisturbed.test, undisturbed.selection)
    assert resumed.test_looks == undisturbed.test_looks == 1


def same_points(found: TuneResult, alone: TuneResult) -> None:
    """A trial's number says what it tries, whoever takes it."""
    assert {t.state for t in found.trials} == {"complete"}
    points = {t.number: (t.params, t.values) for t in alone.trials}
    shared = {t.number: (t.params, t.values) for t in found.trials}
    assert all(points[number] == one for number, one in shared.items() if number in points)


def test_two_processes_do_one_search_in_one_folder(tmp_path: Path) -> None:
    how = HOW | {"trials": 10}
    both = [started(lambda: toy(tmp_path / "both", **how)) for _ in range(2)]
    for one in both:
        one.join(120)
    assert [one.exitcode for one in both] == [0, 0]
    left = read_tuning(tmp_path / "both")
    assert left is not None
    assert (left.finished, left.test_looks, len(left.trials)) == (True, 1, 10), "scored once"
    found, alone = toy(tmp_path / "both", **how), toy(tmp_path / "alone", **how)
    assert found == left
    assert len(found.trials) == len(alone.trials) == 10
    same_points(found, alone)
    assert (tmp_path / "both" / "model").is_dir()


def test_a_server_holds_the_trials(postgres: str, tmp_path: Path) -> None:
    """Begun in one folder, gone on with from another: the trials are on the server."""
    import psycopg

    from postgres import database

    url = database(postgres, "tuning")
    toy(tmp_path / "first", **HOW | {"trials": 3}, storage=url)
    assert not (tmp_path / "first" / "tune.db").exists()
    found = toy(tmp_path / "second", **HOW, storage=url)
    assert told(found) == told(toy(tmp_path / "alone", **HOW))
    with psycopg.connect(url) as connection:  # its own driver sees them
        rows = connection.execute("SELECT state, count(*) FROM trials GROUP BY state").fetchall()
    assert rows == [("COMPLETE", 6)]

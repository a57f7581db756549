"""The stage clock: every moment counted once, whatever is nested, raised or beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stockpot import stages
from stockpot.stages import Clock, Spent, stage, timed, waited
from stockpot.trace import write_trace


class Hands:
    """A clock's hands that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(stages.time, "perf_counter", hands.perf_counter)
    return hands


def test_nested_stages_count_once_and_add_up_to_the_time_that_passed(hands: Hands) -> None:
    with timed(age=2.0) as clock:
        hands.now += 1
        with stage("attack"):
            hands.now += 3
            with stage("forward"):
                hands.now += 5
            hands.now += 7
        found = clock.taken()
        assert found == {"start": 2, "other": 1, "attack": 10, "forward": 5}
        with stage("forward"):
            hands.now += 4
            assert clock.taken() == {"other": 0, "forward": 4}  # what runs is cut in two
            hands.now += 2
        assert clock.taken()["forward"] == 2


def test_a_part_is_told_without_taking_anything_from_the_whole(hands: Hands) -> None:
    with timed(age=5.0) as clock:
        with stage("load"):
            hands.now += 1
        spent = Spent()
        with stage("make"):
            hands.now += 0.25
            with stage("learn"):
                hands.now += 2
                assert spent.stages() == {"make": 0.25, "learn": 2}
            hands.now += 0.5
        assert clock.taken()["learn"] == 2  # as a result does meanwhile
        with stage("learn"):
            hands.now += 1
        told = spent.told()
    assert told == {"seconds": 3.75, "stages": {"make": 0.75, "learn": 3}}


def test_without_a_clock_a_part_is_told_as_a_whole(hands: Hands) -> None:
    spent = Spent()
    with stage("learn"):
        hands.now += 2
    assert spent.told() == {"seconds": 2, "stages": {"other": 2}}


def test_waiting_for_each_item_is_a_stage_and_what_is_done_with_it_is_not(hands: Hands) -> None:
    def slow() -> Iterator[int]:
        for number in range(3):
            hands.now += 2
            yield number

    with timed() as clock:
        for _ in waited("decode", slow()):
            hands.now += 1
        assert clock.taken() == {"decode": 6, "other": 3}


def test_a_stage_ends_when_its_block_fails_and_a_function_is_a_stage_too(hands: Hands) -> None:
    @stage("write")
    def fails() -> None:
        hands.now += 2
        raise ValueError("gone")

    with timed() as clock:
        for _ in range(2):
            with pytest.raises(ValueError, match="gone"):
                fails()
        hands.now += 1
        assert clock.taken() == {"other": 1, "write": 4}


def test_other_threads_stand_in_the_trace_and_not_in_the_seconds() -> None:
    def decode() -> None:
        with stage("decode"):
            time.sleep(0.02)

    with timed(keep=True) as clock:
        worker = threading.Thread(target=decode)
        with stage("forward"):
            worker.start()
            worker.join()
        assert "decode" not in clock.taken()
    lanes = {span.name: span.lane for span in clock.spans}
    assert lanes["decode"] != lanes["forward"]


def test_a_run_inside_a_run_is_timed_by_the_outer_clock() -> None:
    with timed() as outer, timed(keep=True) as inner:
        assert inner is outer
        assert outer.keep
    with stage("load"):
        pass  # no clock runs, and nothing is counted
    assert "load" not in outer.taken()


def test_the_trace_is_in_the_trace_event_format(hands: Hands, tmp_path: Path) -> None:
    import json

    with timed(keep=True, age=1.0) as clock, stage("forward"):
        hands.now += 0.5
    path = write_trace(clock.trace(), tmp_path / "new" / "trace.json")
    document = json.loads(path.read_text())
    whole = [event for event in document["traceEvents"] if event["ph"] == "X"]
    # The complete event of the format: name, process, thread, microseconds of start and length.
    assert [(e["name"], e["ts"], e["dur"]) for e in whole] == [
        ("start", 0, 1_000_000),
        ("forward", 1_000_000, 500_000),
    ]
    assert all(isinstance(e["pid"], int) and isinstance(e["tid"], int) for e in whole)
    named = {e["tid"] for e in document["traceEvents"] if e["ph"] == "M"}
    assert {e["tid"] for e in whole} <= named
    assert document["otherData"]["seconds"] == {"start": 1, "forward": 0.5, "other": 0}


@pytest.mark.gpu
def test_queued_work_is_counted_where_it_runs() -> None:
    import torch

    device = torch.device("cuda")
    big = torch.randn(8192, 8192, device=device)
    big @ big
    begin = time.perf_counter()
    with timed() as clock:
        clock.on(device)
        with stage("forward"):
            for _ in range(20):
                out = big @ big  # returns at once
        with stage("score"):
            out.sum().item()  # waits for all of it
        found = clock.taken()
    assert found["forward"] > 5 * found["score"]
    assert sum(found.values()) == pytest.approx(time.perf_counter() - begin, rel=0.1)


def test_a_clock_on_the_cpu_stays_with_the_time_of_the_host() -> None:
    import torch

    clock = Clock()
    clock.on(torch.device("cpu"))
    assert set(clock.taken()) == {"other"}


def test_the_age_of_a_process_is_that_of_its_start() -> None:
    age = stages.process_age()
    assert age > 0
    time.sleep(0.05)
    assert 0.03 < stages.process_age() - age < 5

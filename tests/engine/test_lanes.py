"""Parts side by side: what a loop gives, in its order, and everything as it was afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from stockpot.engine import lanes
from stockpot.engine.lanes import part_size, side_by_side


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def both_there(meeting: threading.Barrier, part: int) -> tuple[int, int]:
    meeting.wait(timeout=20)  # breaks where nobody else comes
    return part, torch.get_num_threads()


def test_two_parts_run_at_a_time_with_half_of_the_threads_each() -> None:
    meeting = threading.Barrier(2)
    found = side_by_side(lambda part: both_there(meeting, part), range(4))
    assert found == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("failing", [0, 1, 5])
def test_an_error_in_a_part_is_the_callers_and_leaves_nothing_behind(failing: int) -> None:
    def work(part: int) -> int:
        if part == failing:
            raise ValueError(f"part {part}")
        return part

    with pytest.raises(ValueError, match=f"part {failing}"):
        side_by_side(work, range(6))
    assert torch.get_num_threads() == 2
    assert side_by_side(lambda part: part, range(6)) == list(range(6))


def test_modes_of_the_caller_hold_in_both_threads() -> None:
    def mode(_: int) -> tuple[bool, bool, bool]:
        meeting.wait(timeout=20)
        return (
            torch.is_inference_mode_enabled(),
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
        )

    meeting = threading.Barrier(2)
    with torch.inference_mode():
        assert side_by_side(mode, range(2)) == [(True, False, False)] * 2
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert side_by_side(mode, range(2)) == [(False, False, True)] * 2
    assert side_by_side(mode, range(2)) == [(False, True, False)] * 2


def test_inside_a_lane_there_are_no_further_ones() -> None:
    def inner(part: int) -> list[str]:
        return side_by_side(lambda _: threading.current_thread().name, range(3))

    for names in side_by_side(inner, range(2)):
        assert len(set(names)) == 1


def test_with_one_thread_or_a_counter_of_operations_everything_stays_in_this_thread() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    values = torch.ones(4, 4)
    with FlopCounterMode(display=False) as counter:
        side_by_side(lambda part: part @ part, [values] * 6)
    assert counter.get_total_flops() == 6 * 2 * 4**3
    torch.set_num_threads(1)
    own = threading.current_thread().name
    assert side_by_side(lambda _: threading.current_thread().name, range(3)) == [own] * 3


@pytest.mark.parametrize("count", [0, 1, 2, 40, 63, 64, 65, 128, 129, 150, 1000])
def test_parts_are_no_larger_than_allowed_and_both_lanes_get_some(count: int) -> None:
    size = part_size(count, 64)
    sizes = [len(part) for part in torch.arange(count).split(size)]
    assert sum(sizes) == count
    assert max(sizes) <= 64
    if count > 1:
        assert len(sizes) >= lanes.LANES
        assert max(sizes[:-1]) - min(sizes[:-1]) == 0

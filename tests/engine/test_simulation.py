"""The simulated scheduler against closed forms; foretold.py checks it against real runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stockpot.engine.simulation import Site, Work, simulate


def test_closed_forms() -> None:
    assert simulate([], Site(4)).seconds == 0
    # Equal jobs run in rounds; the last round may be short of jobs.
    took = simulate([Work(3)] * 10, Site(4))
    assert took.seconds == pytest.approx(9)
    assert took.shares["work"] == pytest.approx(30 / 36)
    assert (took.bottleneck, took.shares["idle"]) == ("idle", pytest.approx(6 / 36))
    # Two cores for four workers: as long as two workers, half of the time waiting.
    took = simulate([Work(3)] * 8, Site(4, cores=2))
    assert took.seconds == pytest.approx(12)
    assert took.shares["wait"] == pytest.approx(0.5)
    # A disk of 100 bytes per second is the limit whatever the number of workers.
    for workers in (1, 5):
        took = simulate([Work(0, reads=100)] * 20, Site(workers, disk=100))
        assert took.seconds == pytest.approx(20)
        assert took.bottleneck == "read"
    # One hand gives out at most one job in half a second.
    took = simulate([Work(1)] * 100, Site(64, dispatch=0.5))
    assert took.seconds == pytest.approx(51)
    assert took.bottleneck == "dispatch"
    # A worker starts once.
    assert simulate([Work(2)] * 6, Site(2, start=5)).seconds == pytest.approx(11)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.01, 9), min_size=1, max_size=30), st.integers(1, 8))
def test_graham_bounds(seconds: list[float], workers: int) -> None:
    """No schedule beats its work or its longest job; a greedy one is at most twice as slow."""
    took = simulate([Work(one) for one in seconds], Site(workers)).seconds
    ideal = max(sum(seconds) / workers, max(seconds))
    assert ideal - 1e-6 <= took <= (2 - 1 / workers) * ideal + 1e-6

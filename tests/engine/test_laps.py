"""Seconds of what makes a model, as its record tells them."""

from __future__ import annotations

import time

import pytest

from stockpot.engine.laps import Laps


def test_every_second_counts_once_and_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    laps = Laps()
    for name, later in (("read", 6.5), ("choose", 6.501), ("read", 9.0)):
        now[0] = later
        laps.end(name)
    assert laps.told() == {"seconds": 4.0, "stages": {"read": 4.0}}

"""Python queues work for a quarter of a second, whatever a step takes."""

from __future__ import annotations

import pytest
import torch

from stockpot.measure.together.queued import HIDES, LEAD, Queued

GPU = torch.device("cuda")


class Device:
    """A GPU that does one step after the other, while time stands still for Python."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.end = 0.0
        self.took = 0.0
        outer = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self, stream: object) -> None:
                outer.end = max(outer.end, outer.now) + outer.took
                self.at = outer.end

            def query(self) -> bool:
                return self.at <= outer.now

            def synchronize(self) -> None:
                outer.now = max(outer.now, self.at)

            def elapsed_time(self, other: Event) -> float:
                return (other.at - self.at) * 1000

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)


@pytest.mark.parametrize("took", [0.002, 0.011, 0.034, 0.2])
def test_a_gpu_has_work_for_as_long_as_it_should(
    took: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, queued = Device(monkeypatch), Queued()
    device.took = took
    for _ in range(300):
        queued.add(GPU, 0)
    left = device.end - device.now
    assert queued.seconds == pytest.approx(left, abs=1e-6)
    assert LEAD - took <= left <= max(LEAD, 3 * took) + 1e-6
    assert left >= HIDES


def test_short_steps_do_not_keep_all_their_pictures_on_the_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device, queued = Device(monkeypatch), Queued()
    device.took = 1e-5
    for _ in range(5000):
        queued.add(GPU, 0)
    assert device.end - device.now == pytest.approx(128e-5)


def test_each_model_has_a_time_of_its_own_and_waiting_for_python_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device, queued = Device(monkeypatch), Queued()
    for _ in range(40):
        for model, took in enumerate((0.01, 0.03)):
            device.took = took
            device.now += 0.001  # Python is quick
            queued.add(GPU, model)
    device.now = device.end + 5.0  # now it is not
    assert queued.seconds == 0
    for model, took in enumerate((0.01, 0.03)):
        device.took = took
        queued.add(GPU, model)
    assert queued.seconds == pytest.approx(0.04)


def test_a_processor_has_done_all_that_was_asked() -> None:
    queued = Queued()
    queued.add(torch.device("cpu"), 0)
    assert queued.seconds == 0

"""Verbs that compute take the GPU where there is one, unless they are told otherwise."""

from __future__ import annotations

import inspect

import pytest

from stockpot.harden.run import harden
from stockpot.measure.run import measure
from stockpot.season.run import season
from stockpot.tune.run import tune


@pytest.mark.parametrize("verb", [harden, measure, season, tune], ids=lambda verb: verb.__name__)
def test_a_device_that_is_not_named_is_the_best_there_is(verb: object) -> None:
    # `stockpot.harden` once trained on the processor of a machine with a GPU, and did not say so.
    assert inspect.signature(verb).parameters["device"].default == "auto"  # type: ignore[arg-type]

"""Enhancements over several trainings: what is trained anew, and verdicts on known differences."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from stockpot.recipe import load_recipe

Part = Callable[[str, str], ModuleType]


def test_a_further_training_has_seeds_of_its_own_and_the_same_pictures(part: Part) -> None:
    study = part("enhancements", "study")
    usual = load_recipe(study.RECIPE, study.WHOLE).recipe
    other = load_recipe(study.RECIPE, study.WHOLE + study.of_training(2)).recipe
    assert {entry.seed for entry in other.harden.values()} == {2}
    assert {entry.seed for entry in other.models.values() if entry.new} == {2}
    assert (other.seed, other.data, other.measure) == (usual.seed, usual.data, usual.measure)


def trainings(module: ModuleType, gaps: dict[str, list[float]]) -> list[dict[str, np.ndarray]]:
    """Three trainings in which models add so much more to mCE than their counterparts."""
    names = {name for names, _ in module.TRAINED.values() for name in names} | {"start", "size-4"}
    noise = np.random.default_rng(0).normal(0, 0.05, 400)
    return [
        {name: (1 + gaps.get(name, [0.0] * 3)[turn] + np.roll(noise, place)).astype(np.float32)
         for place, name in enumerate(sorted(names))}
        for turn in range(3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ([-0.2, -0.2, -0.2], "held"),
        ([0.2, 0.2, 0.2], "did not hold"),
        ([0.0, 0.0, 0.0], "not told apart"),
        ([-0.9, -0.9, 0.05], "not told apart"),  # one training on the other side
    ],
)
def test_every_training_must_share_a_verdict(part: Part, gaps: list[float], expected: str) -> None:
    module = part("enhancements", "again")
    (claim,) = (name for name in module.TRAINED if name.startswith("6 "))
    row = module.judged(claim, trainings(module, {"multiscale": gaps}))
    assert row[-1] == expected
    assert row[-2] == 3
    # Of several differences one that does not hold decides, and all must hold.
    (both,) = (name for name in module.TRAINED if name.startswith("5 "))
    of = {"size-8": [-0.3] * 3, "size-16": gaps}
    if expected != "not told apart" or gaps[0] == 0:
        assert module.judged(both, trainings(module, of | {"size-4": [0.0] * 3}))[-1] == expected

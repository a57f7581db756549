"""The surface study: the order of its trainings, and what its tables compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.recipe import load_recipe

ROOT = Path(__file__).parents[2]
Part = Callable[[str, str], ModuleType]


def test_whenever_time_runs_out_every_network_has_the_same_hold_outs(part: Part) -> None:
    study = part("surface", "study")
    recipe = load_recipe(ROOT / study.RECIPE, []).recipe
    ordered = study.in_rounds(list(recipe.harden))
    assert sorted(ordered) == sorted(recipe.harden)
    equal = [name for name in ordered if study.EQUAL_COMPUTE not in name]
    for end in range(len(equal) + 1):
        done = Counter(name.partition("-")[0] for name in equal[:end])
        counts = [done[name] for name in {name.partition("-")[0] for name in equal}]
        assert max(counts) - min(counts) <= 3  # the hold-outs of the round that is under way
    first = {name.split("-")[-2] for name in equal[:21]}
    assert first == {"style", "subtype", "version"}


def test_means_are_over_hold_outs_that_all_networks_have(part: Part) -> None:
    tables = part("surface", "tables")
    held = [("style", "a"), ("style", "b"), ("subtype", "0"), ("version", "noto")]
    rows = [
        {"network": network, "protocol": kind, "held out": name, "right": right, "n": 100}
        for network, right in (("shake", 60), ("unshaken", 50), ("resnet20-compute", 70))
        for kind, name in held
        if (network, name) != ("unshaken", "b")
    ]
    found = tables.from_data(rows)
    assert "style, mean of 1" in found["accuracy"]
    assert "style, mean of 2" in found["compute"]
    # 60 and 50 of 100: Wilson's intervals, half-widths added in squares, hold zero.
    assert "+10.0 [-3.7, +23.2] | not told apart" in found["findings"]


def test_results_of_another_recipe_are_not_gone_on_with(part: Part, tmp_path: Path) -> None:
    study = part("surface", "study")
    file = SimpleNamespace(raw={"version": 1, "seed": 3})
    assert study.measured(file, tmp_path) == set()
    (old,) = sorted((ROOT / "tests" / "results" / "version_1").glob("*.json"))[:1]
    write_atomic(tmp_path / "results" / old.name, old.read_text(encoding="utf-8"))
    write_atomic(tmp_path / "recipe.yaml", yaml.safe_dump(file.raw))
    assert len(study.measured(file, tmp_path)) == 1
    write_atomic(tmp_path / "recipe.yaml", yaml.safe_dump({"version": 1}))
    with pytest.raises(UserError, match="another recipe"):
        study.measured(file, tmp_path)

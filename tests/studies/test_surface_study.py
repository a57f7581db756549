"""The surface study: the order of its trainings, and what its tables compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
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


def test_a_further_training_has_seeds_of_its_own_and_the_same_pictures(part: Part) -> None:
    study = part("surface", "study")
    usual = load_recipe(ROOT / study.RECIPE, []).recipe
    other = load_recipe(ROOT / study.RECIPE, study.of_training(2, usual)).recipe
    names = study.equal_epochs(usual)
    assert len(names) == 77
    assert {other.harden[name].seed for name in names} == {2}
    assert {entry.seed for entry in other.models.values() if entry.new} == {2}
    assert (other.seed, other.data, other.measure) == (usual.seed, usual.data, usual.measure)
    left = [name for name in usual.harden if name not in names]
    assert all(other.harden[name] == usual.harden[name] for name in left)


def test_trainings_take_turns_round_by_round(part: Part) -> None:
    study = part("surface", "study")
    names = study.in_rounds(study.equal_epochs(load_recipe(ROOT / study.RECIPE, []).recipe))
    runs = [[study.Step(f"surface-{n} {name}", (), None) for name in names] for n in (1, 2)]
    ordered = study.interleaved(runs)
    rounds = [study.round_of(step.name) for step in ordered]
    assert rounds == sorted(rounds)
    assert Counter(rounds)[0] == 2 * 7 * 3
    assert study.network_of(names[0]) == "densenet40"
    assert study.interleaved(runs[:1]) == runs[0]


def answers(shares: dict[str, list[float]], held: list[str]) -> list[dict[tuple[str, str], Any]]:
    """Trainings in which networks have so many pictures right, on an edition 30 points more."""
    chance = {name: np.random.default_rng(n).random(400) for n, name in enumerate(held)}
    turns = range(len(next(iter(shares.values()))))
    return [
        {(network, name): chance[name] < share[turn] + 0.3 * name.startswith("version")
         for network, share in shares.items() for name in held}
        for turn in turns
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shaken", "expected"),
    [
        ([0.6, 0.6], "held"),
        ([0.2, 0.2], "did not hold"),
        ([0.4, 0.4], "not told apart"),
        ([0.9, 0.38], "not told apart"),  # one training on the other side
    ],
)
def test_every_training_must_share_a_verdict(
    part: Part, shaken: list[float], expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    again = part("surface", "again")
    monkeypatch.setattr(again, "KEPT", tmp_path / "again.npz")
    monkeypatch.setattr(again, "RESAMPLES", 2000)
    assert "No further training" in again.from_data([])["trainings"]
    held = ["style-fluent", "style-google", "subtype-0", "version-noto", "version-fluent"]
    found = answers({"shake": shaken, "unshaken": [0.4, 0.4], "vit": [0.1, 0.1]}, held)
    # A hold-out that one network lacks counts for none; a network without a first round is out.
    del found[1]["vit", "style-google"]
    found[0]["resnet20", "style-fluent"] = found[1]["resnet20", "style-fluent"] = np.ones(400, bool)
    again.keep(found)
    back = again.kept()
    assert set(back[0]) == {(n, h) for n in ("shake", "unshaken", "vit") for h in held
                            if h != "style-google"}  # fmt: skip
    assert all((back[t][cell] == found[t][cell]).all() for t in (0, 1) for cell in back[t])
    first = [{"network": network, "protocol": "subtype", "held out": 0.0, "right": right, "n": 100}
             for network, right in (("shake", 30), ("unshaken", 42))]  # fmt: skip
    made = again.from_data(first)
    assert made["over"] == "3 networks, 1 of style, 1 of subtype, 2 of version"
    rows = [line.strip("| ").split(" | ") for line in made["trainings"].splitlines()[2:]]
    assert [row[0][0] for row in rows] == list("123456")
    told = {row[0][0]: row[-1] for row in rows}
    assert told["1"] == told["2"] == "held" or shaken == [0.9, 0.38]
    assert told["3"] == "not told apart"
    assert told["5"] == told["6"] == expected
    assert {row[-2] for row in rows} == {"2"}
    assert [row[-3] for row in rows[-2:]] == ["-", "-12.0"]  # the first run, as far as it is known


def test_a_pair_in_opposite_order_is_found(part: Part) -> None:
    again = part("surface", "again")
    held = ["style-fluent", "subtype-0", "version-noto"]
    one, two = (answers({"vit": [share] * 2}, held) for share in (0.2, 0.6))
    crossed = [
        {("a", name): x["vit", name] for name in held}
        | {("b", name): (y if name != "subtype-0" else z)["vit", name] for name in held}
        for x, y, z in zip(answers({"vit": [0.4] * 2}, held), one, two, strict=True)
    ]
    assert again.reordered(again.Accuracies(crossed))[1::4] == ["a and b", "held"]
    alike = [dict(x) | {("b", name): y["vit", name] for name in held}
             for x, y in zip(one, two, strict=True)]  # fmt: skip
    assert again.reordered(again.Accuracies(alike))[-1] == "did not hold"


def test_verdicts_over_trainings_come_first(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    gather = part(".", "gather")
    tables = {
        "findings": [{"f": "1 x", "d": "+1", "v": "held"}, {"f": "2 y", "d": "+2", "v": "held"}],
        "trainings": [{"f": "1 x", "d": "+3", "v": "not told apart"},
                      {"f": "2 y", "d": "-", "v": "not run"}],
    }  # fmt: skip
    monkeypatch.setattr(gather, "rows", lambda study, place: tables[place])
    source = gather.Source("surface", "findings", ("f",), "d", "v", again="trainings")
    assert [row[:3] for row in gather.claims(source)] == [
        ["1 x", "+3", "not told apart"], ["2 y", "+2", "held"],
    ]  # fmt: skip

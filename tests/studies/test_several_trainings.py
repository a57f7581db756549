"""Studies that are judged over several trainings: how these are made, and what is said of them."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stockpot.models.load import load_model
from stockpot.recipe import RecipeFile
from stockpot.results.packed import pack_bits
from stockpot.results.tables import read_csv

STUDIES = Path(__file__).parents[2] / "studies"
Part = Callable[[str, str], Any]


@pytest.fixture
def trainings(part: Part) -> Any:
    return part(".", "trainings")


def seeds(file: RecipeFile) -> list[int]:
    recipe = file.recipe
    own = [entry.params.get("seed", recipe.seed) for entry in recipe.harden.values()]
    return [recipe.seed, recipe.models["new"].seed, *own]


def test_a_further_training_differs_from_the_zoos_by_its_seeds_alone(trainings: Any) -> None:
    zoo = trainings.load_recipe(trainings.RECIPE, (), trainings.only_family)
    more = [trainings.recipe_of(number) for number in (1, 2)]
    assert [seeds(file) for file in (zoo, *more)] == [
        [0, 0, 0, 1, 2, 3], [10, 10, 10, 11, 12, 13], [20, 20, 20, 21, 22, 23],
    ]  # fmt: skip
    for file in more:
        assert tuple(file.recipe.harden) == trainings.FAMILY
        assert file.recipe.measure is None
        for name, entry in file.recipe.harden.items():
            theirs = zoo.recipe.harden[name]
            assert without_seed(entry.params) == without_seed(theirs.params)
            assert (entry.method, entry.model, entry.data, entry.validation) == (
                theirs.method, theirs.model, theirs.data, theirs.validation,
            )  # fmt: skip


def without_seed(params: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key != "seed"}


def test_only_whole_trainings_count(trainings: Any, tmp_path: Path) -> None:
    assert list(trainings.sources(None)) == ["0"]
    for number in ("2", "10", "1"):
        (tmp_path / number).mkdir()
    with pytest.raises(SystemExit, match="no training"):
        trainings.sources(tmp_path)
    for number in ("10", "2"):
        (tmp_path / number / trainings.DONE).write_text("")
    (tmp_path / "made").mkdir()
    found = trainings.sources(tmp_path)
    assert list(found) == ["0", "2", "10"]
    assert found["0"]["cifar10-l2"] == "cifar10-l2"
    assert found["2"]["cifar10-l2"] == str(tmp_path / "2" / "cifar10-l2")
    asked = argparse.Namespace(trainings=tmp_path, training=["2"])
    assert list(trainings.asked_for(asked)) == ["2"]
    asked.training = ["1"]
    with pytest.raises(SystemExit, match="no whole training 1"):
        trainings.asked_for(asked)


@pytest.mark.data
def test_a_family_is_trained_and_laid_down_as_the_zoo_has_it(
    trainings: Any, tmp_path: Path
) -> None:
    small = ["data.fit.limit=32", "data.val.limit=16"]
    for name in trainings.FAMILY:
        small += [f"harden.{name}.{key}" for key in ("epochs=1", "batch_size=16", "precision=fp32")]
    place = trainings.train(tmp_path, 1, small)
    assert list(trainings.sources(tmp_path)) == ["0", "1"]
    for name in trainings.FAMILY:
        ours, theirs = load_model(str(place / name)), load_model(name)
        assert ours.classes == theirs.classes
        assert ours.state_dict().keys() == theirs.state_dict().keys()
        assert (place / name / "model.safetensors").stat().st_size < 2_000_000


def unknown_answers(better: float, seed: int) -> dict[str, Any]:
    """Networks whose `vim` is better by so much than all others, which are alike."""
    chance = np.random.default_rng(seed)
    right = chance.random(300) < 0.8
    kept: dict[str, Any] = {}
    for place in ("inside", "mnist", "fashion_mnist", "quickdraw", "icons"):
        n = 300 if place == "inside" else 200
        scores = chance.normal(float(place == "inside"), 1.0, n)
        for name in ("msp", "max_logit", "energy", "knn", "vim", "ash_s"):
            kept[f"{place}/{name}"] = scores + (
                better if name == "vim" and place == "inside" else 0.0
            )
    kept |= {"correct": right, "confidence": np.full(300, 0.9), "nll": np.ones(150),
             "nll_scaled": np.full(150, 0.5)}  # fmt: skip
    for name, size in (("lac", 1), ("aps", 2)):
        kept |= {f"covered_{name}": np.arange(150) % 10 > 0, f"size_{name}": np.full(150, size)}
    return dict.fromkeys(("nominal", "l2", "linf"), kept)


def test_unknowns_over_trainings(part: Part) -> None:
    again = part("unknowns", "again")

    def said(*better: float) -> dict[int, str]:
        found = {str(n): unknown_answers(by, n) for n, by in enumerate(better)}
        rows = again.training_rows(found, resamples=50)
        assert {len(again.difference(row).each) for row in rows} == {len(better)}
        return {
            number: again.judged_again(claim, [row for row in rows if row["claim"] == number])
            for number, claim in again.CLAIMS.items()
        }

    all_better = said(2.0, 2.0, 2.0)
    assert {n for n, told in all_better.items() if told == "held"} >= {1, 3, 6, 12, 14}
    assert said(2.0, 2.0, -0.1)[3] == "not told apart"  # one training lies on the other side
    assert said(-2.0, -2.0, -2.0)[3] == "did not hold"


def test_an_area_over_drawn_images_is_the_areas_own(part: Part) -> None:
    again = part("unknowns", "again")
    scores = np.repeat([3.0, 2.0, 2.0, 1.0], 20)
    right = np.repeat([True, False, True, False], 20)
    # Of four pairs of a right and a wrong one three are in order, and one is even.
    assert again.own_auroc(scores, right, 20).value == pytest.approx(3.5 / 4)


def test_the_unknowns_of_one_training_have_no_verdict(part: Part) -> None:
    again = part("unknowns", "again")
    rows = again.training_rows({"0": unknown_answers(1.0, 0)}, resamples=20)
    assert again.trainings_table(rows) == importlib.import_module("trainings").ALONE


def test_merges_over_trainings(part: Part) -> None:
    tables = part("merging_under_attack", "tables")
    outcomes = json.loads((STUDIES / "merging_under_attack" / "outcomes.json").read_text())
    norms = outcomes["norms"]
    n = norms["linf"]["n"]
    # In another training images made on the members do to the average what its own do.
    other = json.loads(json.dumps(norms))
    for norm in tables.NORMS:
        for maker in tables.MEMBERS:
            other[norm]["right"][maker]["average"] = pack_bits(np.zeros(n, bool))
    same = tables.from_data(outcomes, {"1": norms, "2": norms})["trainings"].splitlines()
    assert same[-1].endswith("| 240 | 3 | held |")
    assert "+5.0 +5.0 +5.0" in same[-1]
    split = tables.from_data(outcomes, {"1": norms, "2": other})["trainings"].splitlines()
    assert split[-1].endswith("| 240 | 3 | not told apart |")
    alone = tables.from_data(outcomes, {})["trainings"]
    assert alone == importlib.import_module("trainings").ALONE


def adapted(gain: int, seed: int) -> dict[str, Any]:
    """A network that is right under 8 of 15 corruptions, and so many more behind a method."""
    chance = np.random.default_rng(seed).integers(0, 3, 60)

    def cell(more: int) -> dict[str, Any]:
        return {"right": "".join(f"{c + 6 + more:x}" for c in chance), "ece": [0.1, 0.05, 0.15]}

    streams = ("single", "continual", "mixed", "continual, runs of labels")
    methods = {
        name: {stream: cell(gain if stream != "mixed" else -gain) for stream in streams}
        for name in ("bn", "tent", "sar", "eata", "roid")
    }
    return {"source": {"single": cell(0)}, **methods}


def test_adaptation_over_trainings(part: Part) -> None:
    again = part("adaptation", "again")
    table = again.trainings_table({str(n): adapted(2, n) for n in range(3)})
    lines = [line.split(" | ") for line in table.splitlines()[2:]]
    assert len(lines) == 5 * 4
    assert {line[-1].removesuffix(" |") for line in lines if line[1] == "single"} == {"helps"}
    mixed = {line[-1].removesuffix(" |") for line in lines if line[1] == "mixed"}
    assert mixed == {"harms; the stream takes help away"}
    split = again.trainings_table({"0": adapted(2, 0), "1": adapted(2, 1), "2": adapted(-2, 2)})
    assert split.count("not told apart |") == 5 * 4


def test_pools_over_trainings(part: Part) -> None:
    tables = part("label_free", "tables")
    files = [read_csv(STUDIES / "label_free" / f"{name}.csv") for name in tables.FILES[:2]]

    def more(rows: Any, **changed: float) -> Any:
        own = [row for row in rows if row["pool"] == tables.POOL]
        return [{"training": float(n), **row, **changed} for n in (1, 2) for row in own]

    # Further trainings whose estimate is never right about anything.
    estimates = [*more(files[0]), *({**row, "training": 3.0, "cot": row["truth"] + 1}
                                    for row in files[0] if row["pool"] == tables.POOL)]  # fmt: skip
    same = tables.from_data(*files, more(files[0]), more(files[1]))["trainings"].splitlines()
    other = tables.from_data(*files, estimates, more(files[1]))["trainings"].splitlines()
    line = next(n for n, text in enumerate(same) if "`cot`" in text)
    assert same[line].endswith("| 11 | 3 | helps |")
    assert other[line].endswith("| 11 | 4 | undecided |")
    assert all(text.endswith("| believable |") for text in same[-4:])
    sure = tables.from_data(*files, more(files[0]), more(files[1], stated=1.0, near=0.0))
    assert sure["trainings"].splitlines()[-1].endswith("believable |")  # not the zoo's

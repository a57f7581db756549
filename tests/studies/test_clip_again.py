"""CLIP fusion over several trainings: what is trained and merged anew, and what is said of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hand_made import clean_cell
from stockpot.datasets.load import load_dataset
from stockpot.models.load import load_for
from stockpot.recipe import RecipeFile

Part = Callable[[str, str], Any]


@pytest.fixture
def pools(part: Part) -> Any:
    return part("clip_fusion", "pools_again")


@pytest.fixture
def again(part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = part("clip_fusion", "again")
    monkeypatch.setattr(module, "KEPT", tmp_path / "again.npz")
    return module


def seeds(file: RecipeFile) -> set[int]:
    recipe = file.recipe
    own = [entry.params.get("seed", recipe.seed) for entry in recipe.harden.values()]
    return {recipe.seed, recipe.models["new-clip"].seed, *own}


def test_a_further_pool_differs_from_the_zoos_by_its_seeds_alone(pools: Any) -> None:
    zoo = pools.load_recipe(pools.TRAINED, (), pools.unmeasured)
    assert [seeds(file) for file in (zoo, pools.recipe_of(1), pools.recipe_of(2))] == [
        {0}, {10}, {20},
    ]  # fmt: skip
    other = pools.recipe_of(1).recipe
    assert tuple(other.harden) == pools.POOL
    assert (other.data, other.measure) == (zoo.recipe.data, None)
    for name, entry in other.harden.items():
        params = {key: value for key, value in entry.params.items() if key != "seed"}
        assert params == zoo.recipe.harden[name].params


def test_every_pool_is_merged_as_the_first_run_was(pools: Any) -> None:
    first = pools.load_recipe(pools.MERGED).recipe
    found = pools.merges_of({name: f"/pool/{name}" for name in pools.POOL}).recipe
    assert {entry.load for entry in found.models.values()} == {f"/pool/{n}" for n in pools.POOL}
    assert (found.data, found.measure, found.seed) == (first.data, first.measure, first.seed)
    judged = importlib.import_module("untuned").ORDER[1:-1]
    assert {*judged, *importlib.import_module("again").BESIDE} == set(found.fuse)
    for name, entry in found.fuse.items():
        assert entry == first.fuse[name]


def test_what_is_left_out_is_not_merged_and_experts_are_merged_but_not_asked(pools: Any) -> None:
    source = {name: f"/pool/{name}" for name in pools.POOL}
    found = pools.merges_of(source, (), ("wemoe", "experts")).recipe
    assert set(found.fuse) == set(pools.merges_of(source).recipe.fuse) - {"wemoe"}
    assert set(found.models) == {*pools.POOL}
    assert set(found.measure.models) == {pools.BASE, *found.fuse}


def test_only_whole_pools_count(pools: Any, tmp_path: Path) -> None:
    for number in ("10", "2", "1"):
        (tmp_path / number).mkdir()
    with pytest.raises(SystemExit, match="no pool"):
        pools.sources(tmp_path)
    for number in ("10", "2"):
        (tmp_path / number / pools.DONE).write_text("")
    assert list(pools.sources(tmp_path)) == ["0", "2", "10"]


@pytest.mark.data
def test_a_further_pool_has_its_own_text_tower_and_the_zoos_words(
    pools: Any, tmp_path: Path
) -> None:
    small = ["data.captions.limit=32"]
    for task in ("cifar10", "mnist", "fashion", "quickdraw", "icons"):
        small.append(f"data.{task}-fit.limit=32")
    for name in pools.POOL:
        small += [f"harden.{name}.{key}" for key in ("epochs=1", "batch_size=16", "precision=fp32")]
    place = pools.train(tmp_path, 1, small)
    assert list(pools.sources(tmp_path)) == ["0", "1"]
    data = load_dataset("mnist").limited(2)
    base, expert, zoos = (
        load_for(str(where), data)
        for where in (place / "clip-base", place / "clip-mnist", "clip-mnist")
    )
    assert (base.network.head == expert.network.head).all()
    assert not (base.network.head == zoos.network.head).all()
    assert base.network.prompts == zoos.network.prompts


def answers(again: Any, rights: dict[str, float], seed: int) -> Any:
    """Models that are right on such a share of 200 images of each task."""
    chance = np.random.default_rng(seed).random((5, 200))
    return {
        name: {
            task: row < rights.get(name, 0.5)
            for task, row in zip(again.EXPERT_OF, chance, strict=True)
        }
        for name in again.ORDER
    }


@pytest.mark.parametrize(
    ("average", "expected"),
    [
        ([0.7, 0.7, 0.7], "holds"),
        ([0.3, 0.3, 0.3], "the other way round"),
        ([0.9, 0.9, 0.45], "not told apart"),  # one training lies on the other side
    ],
)
def test_every_training_must_share_a_verdict(
    again: Any, average: list[float], expected: str
) -> None:
    of = {str(n): answers(again, {"average": share}, n) for n, share in enumerate(average)}
    again.keep(dict(reversed(of.items())))
    kept = again.kept()
    for one, other in zip(kept, of.values(), strict=True):
        assert all((one[m][t] == other[m][t]).all() for m in other for t in other[m])
    line = again.from_data()["trainings"].splitlines()[2]
    assert line.startswith("| clip-base < average |")
    assert line.endswith(f"| 3 | {expected} |")


def test_one_pool_alone_has_no_verdict(again: Any) -> None:
    alone = importlib.import_module("trainings").ALONE
    assert set(again.from_data().values()) == {alone}
    again.keep({"0": answers(again, {}, 0)})
    assert set(again.from_data().values()) == {alone}


def test_an_expert_answers_for_its_own_task(again: Any) -> None:
    cells = [
        clean_cell(model, task, np.full(8, again.EXPERT_OF[task] == model))
        for model in ("clip-base", *again.EXPERT_OF.values())
        for task in again.EXPERT_OF
    ]
    found = again.answers(cells)
    assert found.keys() == {"clip-base", "experts"}
    assert all(flags.all() for flags in found["experts"].values())


def test_rows_over_several_trainings_replace_those_of_the_first_run(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather = part(".", "gather")
    source = next(s for s in gather.PAPERS["fusion"] if s.again)
    first = gather.rows(source.study, source.place)
    column = source.claim[0]
    later = [{**first[0], source.verdict: "the other way round"},
             {**first[1], source.verdict: "not measured"}]  # fmt: skip
    # Where no plan came before the first run, its verdicts do not stand in.
    none = [row | {source.found: "-", source.verdict: "not run yet"} for row in first]
    assert not source.planned
    both = (first, none), ([later[0], *first[1:]], [later[0], *none[1:]])
    for table, (planned, alone) in zip(([], later), both, strict=True):
        tables = {source.place: first, source.again: table}
        monkeypatch.setattr(gather, "rows", lambda _, place, known=tables: known[place])
        assert gather.replaced(source._replace(planned=True)) == planned
        assert gather.replaced(source) == alone
        assert [row[column] for row in alone] == [row[column] for row in first]

"""Entries repeated over seeds, written out."""

from __future__ import annotations

import pytest

from stockpot.recipe import RecipeError, RecipeFile
from stockpot.recipe.variants import write_out
from stockpot.run.check import check
from stockpot.run.plan import parents, waves
from stockpot.types import Variant

TEXT = """version: 1
data:
  icons: {dataset: icons}
models:
  base: {load: icons-vit}
harden:
  start: {method: vanilla, model: base, data: icons, epochs: 0}
  tuned: {method: vanilla, model: base, data: icons, seeds: [0, 1], lr: 0.1}
  taught: {method: wise_kd, model: base, data: icons, seeds: [0, 1], teacher: mixed}
  once: {method: wise_kd, model: base, data: icons, teacher: soup}
fuse:
  mixed: {method: wise_ft, models: [start, tuned], seeds: [0, 1]}
  soup: {method: uniform_soup, models: [tuned]}
measure:
  models: [start, tuned, soup]
  with:
    - {measure: clean, data: icons}
    - {measure: cost, data: icons, models: [mixed]}
"""


def test_runs_refer_to_runs_and_soups_to_all() -> None:
    recipe = RecipeFile(TEXT, "r.yaml").recipe
    assert list(recipe.harden) == [
        "start", "tuned-s0", "tuned-s1", "taught-s0", "taught-s1", "once",
    ]  # fmt: skip
    assert recipe.harden["tuned-s1"].params == {"lr": 0.1, "seed": 1}
    assert recipe.model_meant("mixed", "taught-s1") == "mixed-s1"
    assert recipe.model_meant("soup", "once") == "soup"
    assert recipe.fuse["mixed-s0"].models == ["start", "tuned-s0"]
    assert recipe.fuse["mixed-s0"].params == {}
    assert recipe.fuse["soup"].models == ["tuned-s0", "tuned-s1"]
    assert recipe.measure is not None
    assert recipe.measure.models == ["start", "tuned-s0", "tuned-s1", "soup"]
    assert recipe.measure.with_[1].models == ["mixed-s0", "mixed-s1"]
    assert recipe.variant("mixed-s1") == Variant("mixed", 1)
    assert recipe.variant("soup") == Variant("soup")


def test_teachers_are_made_before_their_pupils() -> None:
    file = RecipeFile(TEXT, "r.yaml")
    check(file)
    made_from = parents(file.recipe)
    assert made_from["taught-s1"] == ["base", "mixed-s1"]
    groups = waves([*file.recipe.harden, *file.recipe.fuse], made_from)
    assert groups == [
        ["start", "tuned-s0", "tuned-s1"],
        ["mixed-s0", "mixed-s1", "soup"],
        ["taught-s0", "taught-s1", "once"],
    ]


def test_a_recipe_without_seeds_is_unchanged() -> None:
    plain = {"version": 1, "harden": {"a-s0": {"method": "vanilla"}}, "measure": {"models": ["a"]}}
    assert write_out(plain) == (plain, {}, [])


def test_a_label_that_is_another_entrys_name_is_refused() -> None:
    text = TEXT.replace("  once: {", "  tuned-s1: {")
    with pytest.raises(RecipeError, match=r"r\.yaml:8: harden\.tuned-s1: this name is used twice"):
        RecipeFile(text, "r.yaml")


def test_seeds_and_a_sweep_together_give_every_pair() -> None:
    text = TEXT.replace(
        "models: [start, tuned], seeds: [0, 1]",
        "models: [start, tuned], seeds: [0, 1], sweep: {alpha: [0.2, 0.8]}",
    )
    recipe = RecipeFile(text, "r.yaml").recipe
    labels = [
        "mixed-alpha=0.2-s0",
        "mixed-alpha=0.2-s1",
        "mixed-alpha=0.8-s0",
        "mixed-alpha=0.8-s1",
    ]
    assert list(recipe.fuse) == [*labels, "soup"]
    assert recipe.fuse[labels[3]].models == ["start", "tuned-s1"]
    assert recipe.fuse[labels[3]].params == {"alpha": 0.8}
    assert recipe.variant(labels[3]) == Variant("mixed", 1, {"alpha": 0.8})


def test_complaints_still_name_the_line() -> None:
    with pytest.raises(RecipeError, match=r"r\.yaml:8: harden\.tuned-s0\.model: no model"):
        RecipeFile(TEXT.replace("tuned: {method: vanilla, model: base", "tuned: {method: vanilla, model: bas"), "r.yaml")  # fmt: skip  # noqa: E501
    wrong = TEXT.replace("seeds: [0, 1], lr", "seeds: many, lr")
    with pytest.raises(RecipeError, match="seeds"):
        check(RecipeFile(wrong, "r.yaml"))


def test_a_scatter_names_measured_data() -> None:
    block = "report: {scatter: [{across: [icons], up: [icons]}, {across: [ikons], up: [icons]}]}\n"
    with pytest.raises(RecipeError, match=r"r\.yaml:19: report\.scatter\.1\.across\.0: 'ikons'"):
        check(RecipeFile(TEXT + block, "r.yaml"))
    block = "report: {scatter: {across: [icons], up: [ikons]}}\n"
    with pytest.raises(RecipeError, match=r"r\.yaml:19: report\.scatter\.up\.0: 'ikons'"):
        check(RecipeFile(TEXT + block, "r.yaml"))


def test_models_are_made_in_waves_and_only_what_is_missing(
    tmp_path, toy_file, pico_vit, monkeypatch
) -> None:
    from stockpot.engine.serial import Serial
    from stockpot.run import make
    from stockpot.run.make import make_models

    text = f"""version: 1
data:
  toy: {{dataset: arrays, path: {toy_file}}}
models:
  base: {{load: {pico_vit}}}
harden:
  tuned: {{method: vanilla, model: base, data: toy, epochs: 1, batch_size: 8, seeds: [0, 1]}}
  taught: {{method: wise_kd, model: base, data: toy, epochs: 1, batch_size: 8, teacher: soup}}
fuse:
  soup: {{method: uniform_soup, models: [tuned]}}
"""
    sent: list[list[str]] = []

    class Watched(Serial):
        def run(self, function, jobs):
            sent.append([job.verdict.name for job in jobs])
            yield from super().run(function, jobs)

    monkeypatch.setattr(make, "chosen_engine", lambda name: Watched())
    file = RecipeFile(text, "r.yaml")
    make_models(file, tmp_path / "run", engine="elsewhere")
    assert sent == [["tuned-s0", "tuned-s1"]]  # fusions and single models are made here
    made = {path.name for path in (tmp_path / "run" / "models").iterdir()}
    assert made == {"tuned-s0", "tuned-s1", "soup", "taught"}
    make_models(file, tmp_path / "run", engine="elsewhere")
    assert len(sent) == 1

"""Recipes: what is wrong is said with its line."""

from __future__ import annotations

import pytest

from stockpot.recipe import RecipeError, RecipeFile, json_schema, load_recipe

GOOD = """\
version: 1
data:
  test: {dataset: icons}
models:
  a: {load: icons-resnet}
  b: {load: icons-vit}
measure:
  with:
    - {measure: clean, data: test}
report: {title: Two}
"""


def test_a_good_recipe_is_read() -> None:
    recipe = RecipeFile(GOOD, "r.yaml").recipe
    assert recipe.model_names == ["a", "b"]
    assert recipe.measure is not None
    assert recipe.measure.with_[0].measure == "clean"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("report:", "reprot:"), r"r\.yaml:10: reprot: unknown key\. Did you mean report\?"),
        (("data: test}", "data: tset}"), r"r\.yaml:9: .*no data named 'tset'.*Did you mean test"),
        (("version: 1", "version: 2"), r"r\.yaml:1: version: .*got 2"),
        (("{load: icons-vit}", "{}"), r"r\.yaml:6: models\.b: expected exactly one of"),
        (("title: Two", "titel: Two"), r"r\.yaml:10: report\.titel: unknown key.*title"),
        (("  b: {", "  b: {{"), r"r\.yaml:\d: not YAML"),
        (("dataset: icons", "dataset: icons, limit: 0"), r"r\.yaml:3: data\.test\.limit"),
    ],
)
def test_faults_are_named_with_their_line(change: tuple[str, str], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        RecipeFile(GOOD.replace(*change), "r.yaml")


def test_overrides_reach_any_depth() -> None:
    file = RecipeFile(GOOD, "r.yaml", ["seed=3", "data.test.limit=8", "measure.with.0.top=3"])
    assert file.recipe.seed == 3
    assert file.recipe.data["test"].limit == 8
    assert file.recipe.measure is not None
    assert file.recipe.measure.with_[0].params == {"top": 3}


def test_overrides_are_checked() -> None:
    with pytest.raises(RecipeError, match="expected KEY=VALUE"):
        RecipeFile(GOOD, "r.yaml", ["seed"])
    with pytest.raises(RecipeError, match="unknown key"):
        RecipeFile(GOOD, "r.yaml", ["sed=3"])


def test_a_missing_file_is_suggested(tmp_path) -> None:
    (tmp_path / "demo.yaml").write_text(GOOD)
    with pytest.raises(RecipeError, match=r"Did you mean demo\.yaml"):
        load_recipe(tmp_path / "dmeo.yaml")


def test_models_made_from_themselves_are_refused() -> None:
    from stockpot.run.plan import build_order

    text = GOOD.replace(
        "measure:",
        "fuse:\n  x: {method: average, models: [y, a]}\n  y: {method: average, models: [x, b]}\n"
        "measure:",
        1,
    )
    with pytest.raises(RecipeError, match=r"x -> y -> x"):
        build_order(RecipeFile(text, "r.yaml"))


def test_schema_names_methods() -> None:
    schema = json_schema({"MeasureEntry": {"clean": {"top": {"type": "integer"}}}})
    entry = schema["$defs"]["MeasureEntry"]
    assert entry["properties"]["measure"]["enum"] == ["clean"]
    assert entry["allOf"][0]["then"]["properties"] == {"top": {"type": "integer"}}


@pytest.mark.parametrize("name", ["x/y", "../../away", ".hidden"])
def test_a_model_that_is_made_has_a_name_for_a_folder(name: str) -> None:
    made = f'fuse:\n  "{name}": {{method: average, models: [a, b]}}\n'
    with pytest.raises(RecipeError, match=r"r\.yaml:12: fuse\..*that of a folder"):
        RecipeFile(GOOD + made, "r.yaml")


@pytest.mark.parametrize("members", ["[a, b, a]", "[line, line-alpha=0.5]"])
def test_a_member_that_stands_twice_is_refused(members: str) -> None:
    made = "fuse:\n  line: {method: wise_ft, models: [a, b], sweep: {alpha: [0.2, 0.5]}}\n"
    made += f"  soup: {{method: average, models: {members}}}\n"
    with pytest.raises(RecipeError, match=r"r\.yaml:13: fuse\.soup\.models: .* stands here twice"):
        RecipeFile(GOOD + made, "r.yaml")

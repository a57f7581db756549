"""What can be known before training is said before training, with the file and the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import invoke
from stockpot.recipe import RecipeError, RecipeFile
from stockpot.run.check import check

RECIPE = """version: 1
data:
  icons: {dataset: icons, split: test, limit: 4}
  folder: {dataset: imagefolder, path: PICTURES, split: test}
  train: {dataset: icons, split: train, limit: 8}
models:
  plain: {load: icons-vit-plain}
  colour: {load: icons-vit-colour}
  own: {load: "FACTORY:make", weights: WEIGHTS}
harden:
  tough: {method: adversarial, model: plain, data: train, norm: linf, eps: 8/255}
  taught: {method: wise_kd, model: plain, data: train, teacher: colour}
fuse:
  moved: {method: task_arithmetic, models: [colour], base: plain, scale: 0.5}
  fisher: {method: fisher, models: [plain, colour], data: icons}
season:
  best: {method: grid, models: [plain, colour], data: icons, shots: 2}
measure:
  with:
    - {measure: corruption, data: icons, corruptions: "fog,snow", severities: "1,3",
       baseline: plain}
    - {measure: adversarial, data: icons, norms: "linf,l2", eps: "8/255,0.5"}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    (tmp_path / "pictures" / "test" / "cat").mkdir(parents=True)
    (tmp_path / "weights.pt").write_bytes(b"")
    (tmp_path / "factory.py").write_text("")
    text = RECIPE.replace("PICTURES", str(tmp_path / "pictures"))
    text = text.replace("WEIGHTS", str(tmp_path / "weights.pt"))
    return text.replace("FACTORY", str(tmp_path / "factory.py"))


MISTAKES = {
    "no base": ("base: plain, ", "", 14, "fuse.moved: task_arithmetic: needs a base"),
    "no base of a pair": (
        "method: task_arithmetic, models: [colour], base: plain, scale: 0.5",
        "method: wise_ft, models: [colour]", 14, "fuse.moved: wise_ft: expected exactly 2 models",
    ),
    "three models of a pair": (
        "method: task_arithmetic, models: [colour], base: plain, scale: 0.5",
        "method: slerp, models: [colour, own], base: plain", 14, "exactly 2 models",
    ),
    "a base that is not there": ("base: plain", "base: plan", 14, "fuse.moved.base"),
    "a corruption": ("fog,snow", "fogg,snow", 20, "Did you mean fog"),
    "a severity": ('"1,3"', "7", 20, "severities"),
    "severities of text": ('"1,3"', "high", 20, "severities"),
    "a norm of training": ("norm: linf", "norm: l3", 11, "norm"),
    "a radius of training": ("eps: 8/255}", "eps: big}", 11, "eps"),
    "a norm of a measure": ('"linf,l2"', "l3", 22, "norm"),
    "a radius of a measure": ('"8/255,0.5"', "big", 22, "eps"),
    "a split": ("icons, split: test", "icons, split: tset", 3, "data.icons.split"),
    "a split of a folder": (
        "PICTURES, split: test", "PICTURES, split: train", 4, "data.folder.split",
    ),
    "a folder of data": ("path: PICTURES", "path: PICTURES-gone", 4, "data.folder.path"),
    "a dataset": ("dataset: icons, split: train", "dataset: ./gone, split: train", 5, "data.train"),
    "an option of data": ("split: train, limit", "stile: noto, limit", 5, "data.train"),
    "a name of the zoo": (
        "icons-vit-colour", "icons-vit-color", 8, "Did you mean icons-vit-colour",
    ),
    "a zoo prefix": ("icons-vit-colour", "zoo:icons-vit-color", 8, "models.colour.load"),
    "a path of a model": ("icons-vit-colour", "runs/none/such", 8, "no model at 'runs/none/such'"),
    "a file of weights": ("weights: WEIGHTS", "weights: WEIGHTS-gone", 9, "models.own.weights"),
    "a factory": ("FACTORY:make", "gone.py:make", 9, "models.own.load"),
    "a teacher": ("teacher: colour", "teacher: color", 12, "harden.taught.teacher"),
    "a baseline": ("baseline: plain", "baseline: plian", 21, "measure.with.0.baseline"),
    "what was learned": ("data: icons}\nseason", "load: ./gone}\nseason", 15, "fuse.fisher.load"),
    "a parameter of a fusion": ("scale: 0.5", "scale: much", 14, "fuse.moved.scale"),
    "a parameter of seasoning": ("shots: 2", "shots: 2, ties: coin", 17, "season.best"),
}  # fmt: skip


def test_a_recipe_without_mistakes_passes(recipe: str) -> None:
    check(RecipeFile(recipe, "r.yaml"))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_before_training(mistake: str, recipe: str, tmp_path: Path) -> None:
    before, after, line, words = MISTAKES[mistake]
    for word, name in (
        ("PICTURES", "pictures"),
        ("WEIGHTS", "weights.pt"),
        ("FACTORY", "factory.py"),
    ):
        before, after = (part.replace(word, str(tmp_path / name)) for part in (before, after))
    assert before in recipe
    with pytest.raises(RecipeError) as told:
        check(RecipeFile(recipe.replace(before, after, 1), "r.yaml"))
    message = str(told.value)
    assert message.startswith(f"r.yaml:{line}: ")
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize("words", [("validate",), ("run", "--dry-run"), ("run",)])
def test_commands_check_first(words: tuple[str, ...], recipe: str, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(recipe.replace("base: plain, ", ""))
    out = () if words[0] == "validate" else ("-o", tmp_path / "run")
    told = invoke(words[0], path, *words[1:], *out)
    assert told.exit_code == 1
    assert f"{path}:14: fuse.moved" in told.output
    assert not (tmp_path / "run").exists()


def test_two_fusions_cannot_save_to_one_file(recipe: str) -> None:
    entry = "  fisher: {method: fisher, models: [plain, colour], data: icons"
    two = f"{entry}, save: learned}}\n{entry.replace('  fisher', '  again')}, save: learned}}\n"
    with pytest.raises(RecipeError, match="another fusion saves to 'learned'"):
        check(RecipeFile(recipe.replace(f"{entry}}}\n", two), "r.yaml"))

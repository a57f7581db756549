"""The study of robust fine-tuning: its rule of choice and its contrasts, on hand-made results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from hand_made import clean_cell
from stockpot.results.contrast import Contrasts, minus
from stockpot.results.groups import answers
from stockpot.results.schema import CellResult

Part = Callable[[str, str], ModuleType]
REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "studies" / "robust_finetuning" / "former"


def cell(model: str, data: str, right: int, n: int = 100, seed: int | None = None) -> CellResult:
    return clean_cell(model, data, np.arange(n) < right, "val", seed=seed)


def test_rates_are_chosen_inside_and_beta_on_both_sides(part: Part) -> None:
    choose = part("robust_finetuning/former", "study").choose

    results = [cell(f"vanilla-{rate}", "inside", right)
               for rate, right in (("1e-4", 60), ("3e-4", 70), ("1e-3", 65))]  # fmt: skip
    results += [cell("photo-vanilla-1e-3", "photo", 80), cell("photo-vanilla-1e-4", "photo", 70)]
    results += [cell("drawing-vanilla-1e-4", "drawing", 50)]
    for beta, inside, outside in ((2, 70, 40), (6, 66, 46), (20, 50, 50)):
        results.append(cell(f"object-3e-4-{beta}", "inside", inside))
        results += [cell(f"object-3e-4-{beta}", data, outside) for data in ("shuffled", "reversed")]
        # At another rate everything is better, which must not matter.
        results.append(cell("object-1e-3-20", "inside", 99))
    chosen = choose(results)
    assert chosen.rates == {"": 0.0003, "photo-": 0.001, "drawing-": 0.0001}
    assert chosen.beta == 6  # (66 + 46) / 2 is the best mean
    entries = {
        "foundation": {"method": "contrastive", "lr": 1.0},
        "zero-shot": {"method": "vanilla", "epochs": 0},
        "vanilla": {"method": "vanilla", "epochs": 3},
        "photo-object": {"method": "counterfactual", "epochs": 3, "beta": 1},
    }
    assert chosen.overrides(entries, "") == [
        "harden.vanilla.lr=0.0003", "harden.photo-object.lr=0.001", "harden.photo-object.beta=6",
    ]  # fmt: skip


def test_a_contrast_is_the_weighted_sum_of_means_over_runs_and_sets() -> None:

    runs = ((0, "x", 80), (1, "x", 84), (0, "y", 60), (1, "y", 64))
    results = [cell("photo-a", data, right, seed=seed) for seed, data, right in runs]
    results += [cell("photo-b", "x", 70), cell("photo-b", "y", 50), cell("c", "x", 1)]
    scores = Contrasts(answers(results), "photo-")
    found = scores.of(minus("a", "b"), ["x", "y"])
    assert found.value == pytest.approx(0.72 - 0.6)
    assert found.low < found.value < found.high
    assert found.verdict == "held"
    assert scores.of({"a": 1, "b": -1, "a-missing": 0}, ["x"]) is None
    assert scores.of(minus("b", ("a", "b")), ["x"]).value == pytest.approx(0.7 - (0.82 + 0.7) / 2)
    assert scores.of(minus("a", "a"), ["x"]) == (0, 0, 0)


def test_pictures_of_one_object_count_as_one_image(part: Part) -> None:
    by_object = part("robust_finetuning/former", "tables").by_object

    found = by_object([cell("a", "inside", 6, n=12), cell("a", "photo", 6, n=12)])["a"]["a"]
    assert found["inside"].tolist() == [1, 0.5, 0]
    assert len(found["photo"]) == 12


def test_what_is_tuned_is_what_the_recipes_train() -> None:
    import yaml

    tuning, main, domains = (
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (
            FOLDER / "tuning.yaml",
            REPOSITORY / "recipes" / "robust_finetuning.yaml",
            REPOSITORY / "recipes" / "robust_finetuning_domains.yaml",
        )
    )
    chosen = {"lr", "beta", "seeds"}

    def same(tried: dict, used: dict) -> bool:
        return {k: v for k, v in tried.items() if k not in chosen} == {
            k: v for k, v in used.items() if k not in chosen
        }

    assert tuning["harden"]["foundation"] == main["harden"]["foundation"]
    assert same(tuning["harden"]["vanilla-1e-4"], main["harden"]["vanilla"])
    assert same(tuning["harden"]["object-3e-4-20"], main["harden"]["object-single"])
    assert same(tuning["harden"]["photo-vanilla-1e-3"], main["harden"]["photo-vanilla"])
    for name in ("mixed", "train", "photos"):
        assert tuning["data"][name] == main["data"][name]
    limit = {"limit": domains["data"]["train"]["limit"]}
    assert tuning["data"]["drawings"] | limit == domains["data"]["train"]
    assert not [n for n, data in tuning["data"].items() if data.get("split", "test") == "test"]

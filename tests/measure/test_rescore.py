"""Scores from saved outcomes are the measure's own; what is not saved stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

from commands import invoke
from pico import CLASSES, make_classifier, make_dataset
from stockpot.errors import UserError
from stockpot.measure.rescore import rescore, rescored
from stockpot.measure.run import measure
from stockpot.results.schema import CellResult
from stockpot.results.store import read_result

OLD = Path(__file__).parents[1] / "results" / "version_1"
TWO = {"corruptions": ("contrast", "fog"), "severities": (1, 3)}
MEASURES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "clean": ({}, {"accuracy"}),
    "corruption": (TWO | {"baseline": "none"}, {"accuracy", "error", "mce", "relative_ce"}),
    "adversarial": (
        {"norms": "linf,l2", "eps": ("1/255", "0.1"), "steps": 2},
        {"accuracy", "robust_accuracy", "union_accuracy"},
    ),
    "shift": (
        {"line": (1.0, 0.0)},
        {"accuracy", "outside_accuracy", "gap", "mean_outside_accuracy", "effective_robustness"},
    ),
    "surface": ({}, {"accuracy"}),
    "dynamic": (
        {"generator": "colour", "oracle": "none", "budget": 2},
        {"accuracy", "coverage", "perturbed_accuracy", "fmr", "matched_fmr"},
    ),
    "oracle_audit": (
        {"generator": "colour", "budget": 2},
        {"accuracy", "reconstruction_accuracy", "searched_accuracy"},
    ),
}


class Guess(nn.Module):
    """Right now and then."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weights = nn.Parameter(torch.randn(outputs, 3 * 15 * 16, generator=generator))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return (pixels[:, :, 1:].flatten(1) - 0.5) @ self.weights.T


def measured(name: str, folder: Path) -> CellResult:
    params, _ = MEASURES[name]
    if name == "shift":
        # A set of another size: its outcomes must not be read at the size of the data.
        far = {"dataset": "imagefolder", "path": str(folder), "classes": list(CLASSES)}
        params = {**params, "outside": {"far": far}}
        other = make_dataset(21)
        for row, (image, label) in enumerate(
            zip(other.images.pixels, other.labels.tolist(), strict=True)  # type: ignore[attr-defined]
        ):
            (folder / CLASSES[label]).mkdir(exist_ok=True)
            picture = Image.fromarray(image.permute(1, 2, 0).numpy())
            picture.save(folder / CLASSES[label] / f"{row}.png")
    model = make_classifier(Guess(4))
    return measure(model, {name: params}, data=make_dataset(60))[0]


def spoilt(result: CellResult, metrics: set[str]) -> CellResult:
    """The same answers, with other numbers in the scores that stand on them."""
    wrong = {"value": 0.123, "ci_low": 0.0, "ci_high": 0.2}
    scores = [
        score.model_copy(update=wrong) if score.metric in metrics else score
        for score in result.scores
    ]
    return result.model_copy(update={"scores": scores})


@pytest.mark.parametrize("name", MEASURES)
def test_scores_come_back_from_outcomes_alone(name: str, tmp_path: Path) -> None:
    result = measured(name, tmp_path)
    same, computed, changes = rescored(result)
    assert not changes
    assert same == result
    assert computed > 0
    metrics = MEASURES[name][1]
    assert metrics <= {score.metric for score in result.scores}
    again, _, changes = rescored(spoilt(result, metrics))
    assert again.scores == result.scores
    assert len(changes) == sum(score.metric in metrics for score in result.scores)
    assert "scored anew" in again.notes[-1]


def test_an_interval_of_a_share_is_made_anew_where_outcomes_do_not_say(tmp_path: Path) -> None:
    result = measured("clean", tmp_path)
    narrow = {"ci_low": 0.3, "ci_high": 0.3}
    scores = [
        score.model_copy(update=narrow) if score.metric in ("class_accuracy", "nll") else score
        for score in result.scores
    ]
    again, _, changes = rescored(result.model_copy(update={"scores": scores}))
    assert len(changes) == 4  # the classes; losses are not saved, and their interval stays
    assert again.score("class_accuracy") == result.score("class_accuracy")
    assert again.score("nll").ci_low == 0.3


def test_what_is_divided_by_a_measured_baseline_stays(tmp_path: Path) -> None:
    result = measured("corruption", tmp_path)
    params = {**result.key.params, "baseline": "some-model"}
    other = result.model_copy(update={"key": result.key.model_copy(update={"params": params})})
    again, _, changes = rescored(spoilt(other, {"mce", "error"}))
    assert all(change.startswith("error") for change in changes)
    assert again.score("mce").value == 0.123
    assert again.score("error") == result.score("error")


class TestCommand:
    def test_files_of_version_1_are_rewritten_only_where_a_score_changed(
        self, tmp_path: Path
    ) -> None:
        folder = tmp_path / "run" / "results"
        shutil.copytree(OLD, folder)
        before = {path: path.read_bytes() for path in folder.glob("*.json")}
        assert invoke("rescore", tmp_path / "run").exit_code == 0
        assert {path: path.read_bytes() for path in folder.glob("*.json")} == before
        path = next(path for path in before if "--clean--" in path.name)
        document = json.loads(before[path])
        right = document["scores"][0]["value"]
        document["scores"][0]["value"] = 0.0
        path.write_text(json.dumps(document))
        done = invoke("rescore", tmp_path / "run")
        assert done.exit_code == 0
        assert "1 changed" in done.output
        assert "accuracy: 0 [" in done.output
        assert read_result(path).score("accuracy").value == right
        assert [other.read_bytes() for other in before if other != path] == [
            text for other, text in before.items() if other != path
        ]

    def test_results_without_outcomes_are_refused_or_left(self, tmp_path: Path) -> None:
        for path in OLD.glob("*.json"):
            document = json.loads(path.read_bytes())
            if "--clean--" in path.name:
                document["outcomes"] = {}
            (tmp_path / path.name).write_text(json.dumps(document))
        done = invoke("rescore", tmp_path)
        assert done.exit_code == 0
        assert "left as it is, no outcomes" in done.output
        clean = next(tmp_path.glob("*--clean--*"))
        with pytest.raises(UserError, match="none of 1 results has saved outcomes"):
            rescore(clean)
        assert invoke("rescore", clean).exit_code == 1

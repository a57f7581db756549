"""The scores of a dynamic evaluation: published counts, corner cases, exports and comparisons."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.generators.colour import ColourGenerator
from stockpot.dynamic.oracles import networks
from stockpot.dynamic.task import Rules
from stockpot.errors import UserError
from stockpot.measure.dynamic.outcomes import Outcomes, curve, headline
from stockpot.measure.dynamic.transfer import transfer_matrix
from stockpot.measure.measurement import Context
from stockpot.measure.run import measure
from stockpot.report.page import render
from stockpot.report.sections.galleries import galleries
from stockpot.results.agreement import fmr_table
from stockpot.results.schema import CellResult, Score

SMALL: dict[str, Any] = {"generator": "colour", "budget": 4, "step": 0.1}


class Linear(nn.Module):
    """A seeded linear classifier of the toy pictures."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(4, 768, generator=generator) / 8)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return (pixels.flatten(1) - 0.5) @ self.weight.T


class Fixed(nn.Module):
    """Always says the same class."""

    def __init__(self, label: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(10.0 * torch.eye(4)[label])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.bias.expand(len(pixels), 4) + 0 * pixels.flatten(1)[:, :1]


def counted(groups: list[tuple[int, int, int, int]]) -> Outcomes:
    """Outcomes from counts: (images, correct as they are, validated, right when perturbed)."""
    parts = {"labels": [], "correct": [], "validated": [], "withstood": []}
    for label, (n, correct, validated, withstood) in enumerate(groups):
        rows = np.arange(n)
        parts["labels"].append(np.full(n, label))
        parts["correct"].append(rows < correct)
        parts["validated"].append(rows < validated)
        parts["withstood"].append(rows < withstood)
    joined = {name: np.concatenate(values) for name, values in parts.items()}
    n = len(joined["labels"])
    return Outcomes(
        **joined,
        covered=joined["validated"],
        known=joined["validated"],
        reconstructed=joined["validated"],
        perturbed=joined["validated"],
        moved=joined["validated"],
        model_queries=np.full(n, 5),
        oracle_queries=np.full(n, 4),
        accepted=joined["validated"].astype(np.int64) * 3,
        fooled_at=np.where(joined["withstood"], -1, 1),
        flips=np.zeros(n),
    )


def score(scores: list[Score], metric: str, **condition: Any) -> Score:
    return next(
        s for s in scores if s.metric == metric and condition.items() <= s.condition.items()
    )


def test_matched_fmr_uses_the_same_images_above_and_below() -> None:
    # Ten images, five validated; right about the first four as they are, the first two perturbed.
    found = counted([(10, 4, 5, 2)])
    scores = headline(found, {}, Rules(budget=3), 0)
    assert score(scores, "fmr").value == pytest.approx((2 / 5) / (4 / 10))
    assert score(scores, "matched_fmr").value == pytest.approx(2 / 4)


def test_the_curve_of_fooled_images_only_rises() -> None:
    found = counted([(10, 10, 8, 3)])
    values = [s.value for s in curve(found, {}, 50)]
    assert values == sorted(values)
    assert values[0] == 0
    assert values[-1] == 5 / 8


def run(network: nn.Module, oracle: nn.Module | None = None, **params: Any) -> CellResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "load_for", lambda *a, **k: make_classifier(oracle))
        settings = {"oracle": "classifier", "oracle_params": {"model": "judge"}}
        settings = settings if oracle is not None else {"oracle": "none"}
        chosen = {**SMALL, **settings, **params}
        return measure(make_classifier(network), {"dynamic": chosen}, data=make_dataset(24))[0]


def test_an_oracle_that_refuses_everything_gives_coverage_zero() -> None:
    data = make_dataset(24)
    result = run(Linear(), ReadsLabel(4), rule="margin:1")
    assert result.score("coverage").value in (0.0, 1.0)
    labelled = int((data.labels == 3).sum()) / 24
    half = run(Linear(), Fixed(3))
    assert half.score("coverage").value == labelled
    none = run(Linear(), Fixed(3), rule="margin:1")
    assert none.score("coverage").value == 0.0
    assert none.score("validation_rate").value == 0.0
    assert any("accepted no image" in note for note in none.notes)
    with pytest.raises(KeyError):
        none.score("fmr")
    assert none.pictures == []


def test_a_model_that_cannot_be_moved_keeps_its_accuracy() -> None:
    result = run(Fixed(2))
    assert result.score("perturbed_accuracy").value == result.score("accuracy").value
    assert result.score("fmr").value == 1.0
    assert any("on trust" in note for note in result.notes)


def test_reading_a_generator_counts_as_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(self: ColourGenerator, device: torch.device) -> ColourGenerator:
        time.sleep(0.1)
        return self

    monkeypatch.setattr(ColourGenerator, "to", slowly)
    assert run(Linear(), budget=2).cost.stages["load"] >= 0.1


def test_a_search_lowers_the_accuracy_of_a_linear_model() -> None:
    result = run(Linear(), budget=20)
    start = run(Linear(), budget=1)
    assert start.score("perturbed_accuracy").value == start.score("accuracy").value
    assert result.score("perturbed_accuracy").value < start.score("accuracy").value


def test_the_model_under_test_is_no_oracle() -> None:
    with pytest.raises(UserError, match="shares 100 %"):
        run(Linear(), Linear())
    forced = run(Linear(), Linear(), force=True)
    assert any("forced" in note for note in forced.notes)
    # Its own mistakes are refused, so it is right about all that is left.
    assert forced.score("perturbed_accuracy").value == 1.0


def test_results_carry_pictures_and_the_page_shows_them() -> None:
    result = run(Linear(), pictures=3, budget=20)
    assert len(result.pictures) == 3
    facts = result.pictures[0].facts
    assert facts["label"] in CLASSES
    assert {"before", "after", "oracle", "steps"} <= facts.keys()
    again = CellResult.model_validate_json(result.model_dump_json())
    assert again.pictures == result.pictures
    (gallery,) = galleries([result])
    assert len(gallery.exhibits) == 3
    page = render([result], title="t")
    assert page.count("data:image/png;base64,") == 3
    assert "Made against the model" in page


def test_an_exported_benchmark_measures_later_models(tmp_path: Path) -> None:
    folder = tmp_path / "hard"
    result = run(Linear(), export=str(folder), budget=20)
    about = json.loads((folder / "provenance.json").read_text())
    assert about["images"] == 24
    assert about["generator"] == "colour"
    with (folder / "labels.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["label"] for row in rows} == set(CLASSES)
    # The same model on the exported pictures has its perturbed accuracy again.
    later = measure(make_classifier(Linear()), "clean", data=str(folder))[0]
    assert later.score("accuracy").value == result.score("perturbed_accuracy").value
    # People fill in the sheet, and their answers are an oracle.
    sheet = folder / "review.csv"
    filled = [{**row, "answer": row["label"]} for row in csv.DictReader(sheet.open(newline=""))]
    with sheet.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(filled[0]))
        writer.writeheader()
        writer.writerows(filled)
    judged = measure(
        make_classifier(Linear()),
        {
            "dynamic": {
                **SMALL,
                "budget": 1,
                "oracle": "human",
                "oracle_params": {"path": str(folder)},
            }
        },
        data=str(folder),
    )[0]
    assert judged.score("coverage").value == 1.0
    with pytest.raises(UserError, match="exists already"):
        run(Linear(), export=str(folder))


def test_transfer_has_each_models_own_accuracy_on_the_diagonal(tmp_path: Path) -> None:
    made, models = {}, {}
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        result = run(Linear(seed), export=str(folder), budget=20)
        made[f"m{seed}"] = load_dataset(str(folder))
        models[f"m{seed}"] = make_classifier(Linear(seed))
        models[f"m{seed}"].result = result
    table = transfer_matrix(models, made, make_dataset(24), Context())
    for place, name in enumerate(models):
        own = models[name].result
        expected = own.score("perturbed_accuracy").value / own.score("accuracy").value
        assert table.fmr[place, place] == pytest.approx(expected)
        assert table.low[place, place] <= expected <= table.high[place, place]
    assert table.n == [24, 24]


def test_an_fmr_table_gives_the_fmr() -> None:
    result = run(Linear(), budget=10)
    table = fmr_table(result)
    means = table.mean(axis=0)
    assert (means[0] / means[1]) / means[2] == pytest.approx(result.score("fmr").value)


def test_wrong_names_are_said_in_one_line() -> None:
    with pytest.raises(UserError, match=r"no generator named 'vqgn'.*vqgan"):
        run(Linear(), generator="vqgn")
    with pytest.raises(UserError, match="no oracle named 'cliip'"):
        measure(
            make_classifier(Linear()), {"dynamic": {**SMALL, "oracle": "cliip"}},
            data=make_dataset(4),
        )  # fmt: skip


def test_a_search_that_sees_another_model_says_so() -> None:
    class Coarse(Linear):
        """Right in full precision; in bfloat16 its answers are turned round."""

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            logits = super().forward(pixels)
            return -logits if torch.is_autocast_enabled(pixels.device.type) else logits

    assert not any("not to be trusted" in note for note in run(Coarse()).notes)
    notes = run(Coarse(), precision="bf16").notes
    assert any("use precision=fp32" in note for note in notes)


def test_the_penalty_of_a_sparse_mask_decides_what_moves() -> None:
    pytest.importorskip("sklearn")
    common = {"budget": 20, "sparse": "settled", "sparse_images": 24}
    some = run(Linear(), **common, sparse_penalty=1e-3)
    empty = run(Linear(), **common, sparse_penalty=1e6)
    assert some.score("mask_sparsity").value < 0.5
    assert not any("sparse mask is empty" in note for note in some.notes)
    assert some.score("perturbed_accuracy").value < some.score("accuracy").value
    # With an empty mask the images stay as they are, and so does the accuracy.
    assert empty.score("mask_sparsity").value == 1
    assert any("sparse mask is empty" in note for note in empty.notes)
    assert empty.score("perturbed_accuracy").value == empty.score("accuracy").value
    assert "penalty 1e+06" in empty.convention

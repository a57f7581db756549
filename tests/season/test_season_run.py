"""`stockpot.season` end to end: files, protocols, records, and errors in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import stockpot
from pico import make_dataset
from season.toys import linear_member, norm_member, toy_images
from stockpot.errors import UserError
from stockpot.models.load import load_model
from stockpot.results.statistics import wilson
from stockpot.season import seasoners
from stockpot.season.run import season
from stockpot.season.seasoned import Seasoned


@pytest.fixture
def two_vits(pico_vit: Path, tmp_path: Path) -> list[Path]:
    other = load_model(pico_vit)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return [pico_vit, other.save(tmp_path / "other")]


def test_a_soup_is_saved_and_loads(two_vits: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "deep" / "soup"
    result = stockpot.season("wise_ft", two_vits, make_dataset(), shots=20, out=out)
    again = load_model(out).eval()
    pixels = torch.rand(2, 3, 16, 16)
    with torch.inference_mode():
        assert torch.equal(again(pixels), result.model.eval()(pixels))
    record = json.loads((out / "stockpot.json").read_text())
    details = record["details"]
    assert tuple(details["members"].values()) == result.weights
    data = next(one for one in record["inputs"] if one["role"] == "data")
    assert data["fingerprint"] == make_dataset().fingerprint
    assert details["scores"]["soup"]["value"] == result.accuracy.value
    assert details["selected_on"] == list(result.selected_on)
    assert set(details["stages"]) <= {"load", "choose", "judge", "decode", "score", "other"}
    assert 0 < sum(details["stages"].values()) <= details["seconds"] + 0.02
    assert [path.name for path in out.parent.iterdir()] == ["soup"]
    with pytest.raises(UserError, match="exists already"):
        stockpot.season("uniform", two_vits, make_dataset(), shots=0, out=out)


def test_a_score_is_the_models_own_with_wilsons_interval() -> None:
    members = [linear_member(seed) for seed in (1, 2, 3)]
    images = toy_images(80, members[2], noise=0.2)
    result = season("greedy", members, images, shots=30)
    held_out = images.take(result.held_out)
    with torch.inference_mode():
        right = int((result.model(held_out.images.pixels).argmax(1) == held_out.labels).sum())
    low, high, method = wilson(right, 50)
    assert result.accuracy.value == right / 50
    assert (result.accuracy.ci_low, result.accuracy.ci_high) == (low, high)
    assert result.accuracy.ci_method == method
    assert list(result.member_accuracy) == list(result.members)


@pytest.mark.parametrize("method", sorted(set(seasoners.names()) - {"uniform"}))
def test_every_method_tells_how_far_it_is(method: str) -> None:
    members = [linear_member(seed) for seed in (1, 2)]
    told: dict[str, list[tuple[int, int]]] = {}

    def progress(what: str, done: int, total: int) -> None:
        told.setdefault(what, []).append((done, total))

    source = toy_images(20, members[0]) if method == "label_free" else None
    found = season(
        method, members, toy_images(40, members[1]), source=source, shots=20, batch_size=8,
        progress=progress,
    )  # fmt: skip
    *looking, scoring = told
    assert looking
    assert scoring == "scoring"
    # Both members and the soup on twenty images that were held out, in batches of eight.
    assert [done for done, _ in told[scoring]] == [8, 16, 20, 28, 36, 40, 48, 56, 60]
    assert {total for _, total in told[scoring]} == {60}
    for steps in told.values():
        assert [done for done, _ in steps] == sorted({done for done, _ in steps})
        assert {steps[-1][0]} == {total for _, total in steps}
    if found.matrix is not None:
        assert told["trying soups"][-1] == 2 * (found.matrix.correct.size,)


def test_the_leaky_protocol_scores_on_what_was_seen() -> None:
    members = [linear_member(seed) for seed in (1, 2)]
    images = toy_images(60, members[1], noise=0.3)
    honest = season("grid", members, images, shots=20)
    leaky = season("grid", members, images, shots=20, protocol="leaky")
    assert leaky.weights == honest.weights
    assert (honest.accuracy.n, leaky.accuracy.n) == (40, 60)
    seen = round(float(honest.matrix.accuracy().max()) * 20)
    assert round(leaky.accuracy.value * 60) == round(honest.accuracy.value * 40) + seen
    assert leaky.accuracy.condition["protocol"] == "leaky"


def test_a_full_matrix_covers_all_images_and_changes_no_choice() -> None:
    members = [norm_member(seed) for seed in (1, 2)]
    images = toy_images(60, members[1], noise=0.3)
    part = season("grid", members, images, shots=20)
    full = season("grid", members, images, shots=20, full_matrix=True)
    assert full.weights == part.weights
    assert full.matrix.correct.shape == (len(part.matrix.weights), 60)
    assert np.array_equal(full.matrix.correct[:, list(full.selected_on)], part.matrix.correct)
    chosen = full.matrix.best(list(full.selected_on))
    assert full.matrix.correct[chosen, list(full.held_out)].mean() == full.accuracy.value


def test_batches_do_not_matter() -> None:
    members = [norm_member(seed) for seed in (1, 2, 3)]
    images = toy_images(60, members[1], noise=0.3)
    params = {"shots": 20, "low": 0.0, "high": 1.0}
    one, many = (season("grid", members, images, batch_size=b, **params) for b in (60, 7))
    assert one.weights == many.weights
    assert one.accuracy == many.accuracy


def test_errors_say_what_to_do() -> None:
    members = [linear_member(seed) for seed in (1, 2, 3)]
    images = toy_images(20)
    with pytest.raises(UserError, match="Did you mean grid"):
        season("gird", members, images)
    with pytest.raises(UserError, match="unknown parameter"):
        season("grid", members, images, stepp=0.1)
    with pytest.raises(UserError, match="held out"):
        season("grid", members, images, shots=20)
    with pytest.raises(UserError, match="shots=0"):
        season("grid", members, images, shots=0)
    with pytest.raises(UserError, match="two members"):
        season("wise_ft", members, images, shots=5)
    with pytest.raises(UserError, match="source="):
        season("label_free", members, images, shots=5)
    with pytest.raises(UserError, match="protocol"):
        season("uniform", members, images, shots=5, protocol="hopeful")
    with pytest.raises(UserError, match="does not know"):
        season("uniform", members, make_dataset(classes=("x", "y")), shots=5)


def test_the_precision_is_chosen_and_recorded(two_vits: list[Path]) -> None:
    def grid(**precision: Any) -> Seasoned:
        settings: dict[str, Any] = {"low": 0.0, "high": 1.0, "step": 0.5, **precision}
        return season("grid", two_vits, make_dataset(24), shots=12, **settings)

    usual, full, half = grid(), grid(precision="fp32"), grid(precision="bf16")
    assert [one.record.details["precision"] for one in (usual, full, half)] == [
        "fp32", "fp32", "bf16",
    ]  # fmt: skip
    # What a device decides is no part of the question, so that soups of before are found again.
    assert "precision" not in usual.record.parameters
    assert half.record.parameters["precision"] == "bf16"
    losses = [one.matrix.loss for one in (usual, full, half) if one.matrix is not None]
    assert np.array_equal(losses[0], losses[1])
    # Rounded to 8 bits in every layer: other losses, near to the exact ones.
    assert not np.array_equal(losses[1], losses[2])
    np.testing.assert_allclose(losses[1], losses[2], rtol=0.05, atol=0.05)
    for wrong, words in (("tf32", "NVIDIA"), ("fp8", "expected one of auto, fp32, tf32, bf16")):
        with pytest.raises(UserError, match=words):
            grid(precision=wrong)

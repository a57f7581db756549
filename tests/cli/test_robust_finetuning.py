"""Robust fine-tuning as a user does it: harden, interpolate, measure, report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pico import make_dataset
from processes import error_of, stockpot
from stockpot.models.dual_encoder import new_dual_encoder
from stockpot.models.preprocess import Preprocess
from stockpot.results.store import load_results
from stockpot.types import ImageSize
from towers import CLASSES, SMALL


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pico CLIP and a toy dataset of 16 px pictures."""
    folder = tmp_path_factory.mktemp("finetuning")
    side = ImageSize(16, 16)
    new_dual_encoder(
        folder / "clip",
        prompts=tuple((f"a photo of a {name}.",) for name in CLASSES),
        preprocess=Preprocess(side, side),
        seed=0,
        projection_dim=8,
        vocabulary=300,
        vision={**SMALL, "patch_size": 4},
        text=SMALL,
    )
    data = make_dataset(classes=CLASSES)
    pixels = data.images.pixels.permute(0, 2, 3, 1).numpy()
    np.savez(
        folder / "toy.npz", images=pixels, labels=data.labels.numpy(), classes=np.array(CLASSES)
    )
    return folder


def test_harden_counterfactual_from_a_dual_encoder(place: Path) -> None:
    done = stockpot(
        "harden", "counterfactual", place / "clip", "--data", place / "toy.npz", "-p", "epochs=1",
        "-p", "batch_size=8", "-p", "mask=object", "-p", "fill=multi", "-p", "holdout=0.2",
        "-p", "keep=best", "-p", "schedule=cosine_cycle", "-o", place / "tuned",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    measured = stockpot(
        "measure", place / "tuned", "--data", place / "toy.npz", "--with", "clean", "-o",
        place / "measured",
    )  # fmt: skip
    assert measured.returncode == 0, measured.stderr
    drawn = stockpot(
        "explain", place / "tuned", "--data", place / "toy.npz", "--count", "3", "-o",
        place / "relevance.png",
    )  # fmt: skip
    assert drawn.returncode == 0, drawn.stderr
    with Image.open(place / "relevance.png") as page:
        assert page.size == (2 * (128 + 6) + 6, 3 * (128 + 6) + 22)
    wrong = stockpot(
        "harden", "counterfactual", place / "clip", "--data", place / "toy.npz", "-p", "fill=both",
        "-o", place / "never",
    )  # fmt: skip
    assert "fill" in error_of(wrong)


RECIPE = """version: 1
device: cpu
data:
  toy: {{dataset: arrays, path: {place}/toy.npz}}
models:
  clip: {{load: {place}/clip}}
harden:
  zero-shot: {{method: vanilla, model: clip, data: toy, epochs: 0}}
  vanilla: &tuned
    {{method: vanilla, model: clip, data: toy, epochs: 1, batch_size: 8, seeds: [0, 1]}}
  no-mask: {{<<: *tuned, method: counterfactual, mask: none}}
  taught: {{<<: *tuned, method: wise_kd, teacher: wise}}
fuse:
  wise: {{method: wise_ft, models: [zero-shot, vanilla], seeds: [0, 1]}}
  soup: {{method: uniform_soup, models: [vanilla]}}
measure:
  models: [zero-shot, vanilla, no-mask, taught, wise, soup]
  with: [{{measure: clean, data: toy, per_class: false}}]
report: {{title: Tuned, scatter: {{across: [toy], up: [toy]}}}}
"""


def test_a_recipe_with_seeds_teachers_and_a_scatter(place: Path) -> None:
    (place / "recipe.yaml").write_text(RECIPE.format(place=place), encoding="utf-8")
    run = place / "run"
    done = stockpot("run", place / "recipe.yaml", "-o", run)
    assert done.returncode == 0, done.stderr
    names = {cell.key.model for cell in load_results(run)}
    assert names == {
        "zero-shot", "vanilla-s0", "vanilla-s1", "no-mask-s0", "no-mask-s1", "taught-s0",
        "taught-s1", "wise-s0", "wise-s1", "soup",
    }  # fmt: skip
    page = (run / "report.html").read_text(encoding="utf-8")
    assert 'id="scatter"' in page
    assert page.count('r="8.5"') >= 6
    again = stockpot("report", run, "-o", place / "again.html")
    assert again.returncode == 0, again.stderr
    text = (place / "again.html").read_text(encoding="utf-8")
    assert 'id="scatter"' in text  # as the recipe in the folder asks for
    assert "<title>Tuned" in text

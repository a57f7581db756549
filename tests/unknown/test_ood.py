"""Foreign images: the measure, its intervals, and what it must not be fooled by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import norm
from torch import Tensor, nn

import stockpot
from pico import CLASSES, make_classifier, make_dataset
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.errors import BadDataError, BadParameterError, UserError
from stockpot.measure.chosen_data import read_sets
from stockpot.measure.measurement import Context
from stockpot.measure.unknown.detection import Sample, detection, mean_detection
from stockpot.measure.unknown.detectors import ALL, LOGITS_ALONE, principal_dimension
from stockpot.measure.unknown.ood import ood
from stockpot.measure.unknown.penultimate import Penultimate

FOREIGN = ("eel", "fox", "gnu", "hen")


class Headed(nn.Module):
    """Features of eight numbers, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.before, self.fc = nn.Linear(768, 8), nn.Linear(8, 4)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / 8

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.before(pixels.flatten(1)).relu())
        return logits


def foreign(n: int = 30, level: int = 0) -> Dataset:
    data = make_dataset(n, classes=FOREIGN)
    pixels = next(data.batches(n)).images
    return replace(data, images=TensorImages((pixels // 4 + level).to(torch.uint8)), name="foreign")


def test_every_detector_runs_and_the_result_says_how() -> None:
    model, data = make_classifier(Headed()), make_dataset(24)
    params = {
        "near": {"dark": foreign()},
        "far": {"light": foreign(20, 180), "grey": foreign(20, 90)},
        "train": make_dataset(60),
        "k": 5,
    }
    (result,) = stockpot.measure(model, {"ood": params}, data=data, device="cpu")
    found = {
        score.condition["detector"] for score in result.scores if "detector" in score.condition
    }
    assert found == set(ALL)
    for part in ("openood-1.5", "knn k=5", "vim dim=4 of 8", "ash_b percentile 90", "input of the"):
        assert part in result.convention
    # Of several sets the mean counts each equally, and the images of all are drawn anew.
    sets = [result.score("auroc", detector="vim", set=name) for name in ("light", "grey")]
    mean = result.score("far_auroc", detector="vim")
    assert mean.value == pytest.approx((sets[0].value + sets[1].value) / 2)
    assert mean.ci_low <= mean.value <= mean.ci_high
    # Other images in a set are another question.
    other = {**params, "near": {"dark": foreign(29)}}
    (again,) = stockpot.measure(model, {"ood": other}, data=data, device="cpu")
    assert again.key.params["near"] != result.key.params["near"]


def test_training_images_are_those_of_the_same_dataset(tmp_path) -> None:
    """The train split with the data's own options, and all of it: a limit is for what is scored."""
    for split, count in (("train", 9), ("test", 4)):
        for row, pixels in enumerate(next(make_dataset(2 * count).batches(2 * count)).images):
            place = tmp_path / split / CLASSES[row % 2] / f"{row}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(place)
    (result,) = stockpot.measure(
        make_classifier(Headed()),
        {"ood": {"far": {"dark": foreign()}, "k": 5}},
        data=str(tmp_path),
        data_options={"limit": 5},
        device="cpu",
    )
    assert result.data.n == 5
    assert "training features of 18 images" in result.convention


def test_features_are_what_the_last_layer_reads() -> None:
    network = Headed()
    looking = Penultimate(make_classifier(network), make_dataset(6), Context(batch_size=4))
    seen = list(looking.batches(make_dataset(6), ""))
    pixels = next(make_dataset(6).batches(6)).images.float() / 255
    wanted = network.before(pixels.flatten(1)).relu()
    features = torch.cat([part.features for part in seen if part.features is not None])
    torch.testing.assert_close(features, wanted)
    assert looking.head is not None
    torch.testing.assert_close(looking.head.logits(features), network.fc(wanted))


def test_a_model_without_a_linear_head() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.levels = nn.Parameter(torch.linspace(0, 1, 4))

        def forward(self, pixels: Tensor) -> Tensor:
            return -(pixels.mean(dim=(1, 2, 3))[:, None] - self.levels).abs()

    model, data = make_classifier(Mean()), make_dataset(12)
    found = ood(model, data, Context(), far={"x": foreign()})
    told = {str(s.condition["detector"]) for s in found.scores if "detector" in s.condition}
    assert told == set(LOGITS_ALONE)
    assert any(note.startswith("left out: knn, vim, ash_p") for note in found.notes)
    found = ood(model, data, Context(), far={"x": foreign()}, detectors=("energy",))
    told = {str(s.condition["detector"]) for s in found.scores if "detector" in s.condition}
    assert told == {"energy"}
    assert not any("left out" in note for note in found.notes)
    with pytest.raises(BadParameterError, match="knn need the features"):
        ood(model, data, Context(), far={"x": foreign()}, detectors=("knn",))


def test_images_of_known_classes_are_told_of() -> None:
    model, data = make_classifier(Headed()), make_dataset(12)
    mixed = replace(foreign(), classes=("Bee", "fox", "gnu", "hen"))
    asked = {"far": {"mixed": mixed}, "detectors": ("msp",)}
    found = ood(model, data, Context(), **asked)
    assert found.scores[1].n == 12 + 22  # 8 of 30 are bees
    assert (found.flags[0].name, found.flags[0].count) == ("known_classes", 8)
    kept = ood(model, data, Context(), overlap="keep", **asked)
    assert (kept.scores[1].n, kept.flags) == (42, found.flags)
    with pytest.raises(BadDataError, match="nothing foreign is left"):
        ood(model, data, Context(), far={"same": make_dataset(8)}, detectors=("msp",))
    # Numbers do not say what a class shows: a digit is not the tenth class.
    numbered = make_classifier(Headed(), tuple("0123"))
    digits = replace(foreign(), classes=tuple("0123"))
    assert not ood(numbered, data, Context(), far={"d": digits}, detectors=("msp",)).flags


def test_outputs_that_are_no_numbers_earn_nothing() -> None:
    class Silent(nn.Module):
        """Sure of its own images, and says nothing of dark ones."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(4))

        def forward(self, pixels: Tensor) -> Tensor:
            mean = pixels.mean(dim=(1, 2, 3))
            return torch.where(mean[:, None] < 0.3, torch.nan, 5.0 * self.weight[0])

    model = make_classifier(Silent())
    found = ood(model, make_dataset(12), Context(), far={"dark": foreign()}, detectors=("msp",))
    assert found.scores[1].value == 0.0


def test_a_perfect_detector_on_few_images_is_not_certain() -> None:
    found = detection(Sample(np.arange(5.0) + 9), Sample(np.arange(4.0)), seed=0)
    assert found.values["auroc"] == 1.0
    assert found.values["fpr95"] == found.values["fpr95_in"] == 0.0
    assert found.intervals["auroc"].low == pytest.approx(4 / (4 + 1.959964**2))


def test_intervals_hold_what_they_promise() -> None:
    """Normal scores a deviation apart: the true AUROC is known."""
    truth = norm.cdf(1 / np.sqrt(2))
    held = 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        inside, outside = generator.normal(1, 1, 40), generator.normal(0, 1, 30)
        interval = detection(Sample(inside), Sample(outside), seed=seed).intervals["auroc"]
        held += interval.low <= truth <= interval.high
    assert held >= 33  # 38 are meant; fewer than 33 has a chance below 1 %


def test_copies_of_an_image_tell_nothing_new() -> None:
    generator = np.random.default_rng(0)
    inside, outside = generator.normal(1, 1, 30), generator.normal(0, 1, 30)
    alone = detection(Sample(inside), Sample(outside), seed=0).intervals["auroc"]
    names = np.repeat(np.arange(30), 5)
    copied = [Sample(np.repeat(part, 5), names) for part in (inside, outside)]
    together = detection(*copied, seed=0).intervals["auroc"]
    assert (together.low, together.high) == pytest.approx((alone.low, alone.high))
    loose = [Sample(part.scores) for part in copied]
    wrong = detection(*loose, seed=0).intervals["auroc"]
    assert wrong.high - wrong.low < 0.7 * (alone.high - alone.low)
    assert mean_detection([detection(*copied, seed=0)]).intervals["auroc"] == together


def test_the_rule_for_the_principal_space() -> None:
    assert [principal_dimension(width) for width in (64, 512, 768, 2048)] == [32, 256, 512, 1000]


def test_sets_are_read_from_what_people_write(tmp_path) -> None:
    assert read_sets("mnist, icons") == {"mnist": "mnist", "icons": "icons"}
    folder = {"dataset": str(tmp_path / "photos"), "limit": 3}
    assert read_sets(["a/b/", folder]) == {"b": "a/b/", "photos": folder}
    with pytest.raises(BadParameterError, match="two sets are called 'b'"):
        read_sets("a/b,c/b")


def test_mistakes_are_told_before_any_work() -> None:
    data = make_dataset(8)
    model = make_classifier(Headed())
    with pytest.raises(UserError, match="expected sets of other images in near or far"):
        stockpot.measure(model, "ood", data=data, device="cpu")
    with pytest.raises(UserError, match="detector"):
        stockpot.measure(model, {"ood": {"detectors": "mps"}}, data=data)
    # Images in memory have no other splits to take training features from.
    with pytest.raises(UserError, match=r"train.*unknown"):
        stockpot.measure(model, {"ood": {"far": {"x": foreign()}}}, data=data, device="cpu")
    with pytest.raises(UserError, match="k: expected at most"):
        ood(model, data, Context(), far={"x": foreign()}, train=make_dataset(4), k=5)

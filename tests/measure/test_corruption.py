"""The corruption measure: closed forms, stored folders, defences, files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from stockpot.corrupt import BENCHMARK, EXTRA
from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.ranges import chosen_corruptions, chosen_severities
from stockpot.corrupt.stored.files import write_array, write_pictures
from stockpot.datasets.dataset import TensorImages
from stockpot.defend.defended import Defended
from stockpot.errors import UserError
from stockpot.measure.corruption import corruption
from stockpot.measure.corruption_scores import Grid, grid_scores
from stockpot.measure.grids import CorruptedBatches
from stockpot.measure.mce import Baseline
from stockpot.measure.measurement import Context
from stockpot.measure.run import measure

FEW = {"corruptions": ("contrast", "gaussian_noise"), "severities": (1, 5)}


def find(scores, metric: str, **condition):
    return next(
        s for s in scores if s.metric == metric and condition.items() <= s.condition.items()
    )


def test_scores_by_hand() -> None:
    # Four images; two corruptions at two severities; the baseline errs 0.5 and 0.8, clean 0.25.
    right = {
        ("contrast", 1): [1, 1, 1, 0],
        ("contrast", 2): [1, 0, 0, 0],
        ("fog", 1): [1, 1, 1, 1],
        ("fog", 2): [1, 1, 0, 0],
    }
    grid = Grid(
        np.array([1, 1, 1, 1], dtype=bool),
        {cell: np.array(flags, dtype=bool) for cell, flags in right.items()},
    )
    other = Baseline("b", {"contrast": {1: 0.4, 2: 0.6}, "fog": {1: 0.7, 2: 0.9}}, clean=0.25)
    scores = grid_scores(grid, other, seed=0).scores
    assert find(scores, "error", corruption="contrast", severity=2).value == 0.75
    assert find(scores, "ce", corruption="contrast").value == pytest.approx(0.5 / 0.5)
    assert find(scores, "ce", corruption="fog").value == pytest.approx(0.25 / 0.8)
    assert find(scores, "mce").value == pytest.approx((1.0 + 0.3125) / 2)
    assert find(scores, "relative_ce", corruption="fog").value == pytest.approx(0.25 / 0.55)
    assert find(scores, "relative_mce").value == pytest.approx((0.5 / 0.25 + 0.25 / 0.55) / 2)
    assert find(scores, "mean_corruption_accuracy").value == pytest.approx(1 - 0.375)
    assert find(scores, "mce").condition["baseline"] == "b"
    assert find(scores, "mce").ci_low < find(scores, "mce").value < find(scores, "mce").ci_high


def test_a_model_is_its_own_baseline(perfect, toy_data, pico_vit: Path) -> None:
    (result,) = measure(
        {"a": pico_vit}, {"corruption": {**FEW, "baseline": str(pico_vit)}}, data=toy_data
    )
    assert result.score("mce").value == pytest.approx(1.0)
    assert result.score("mce").condition["baseline"] == "pico-vit"
    assert result.convention == "mce:pico-vit:2-of-15x2"


def test_cells_are_what_corrupt_makes(toy_data) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
    model = make_classifier(network)
    found = corruption(model, toy_data, Context(batch_size=7, seed=5), **FEW, baseline="none")
    assert isinstance(toy_data.images, TensorImages)
    changed = corrupt(toy_data.images.pixels, "gaussian_noise", 5, seed=5 << 32)
    expected = model(changed).argmax(1) == toy_data.labels
    assert (found.outcomes["gaussian_noise:5"] == expected.numpy()).all()


def test_a_family_is_asked_for_by_its_name(toy_data) -> None:
    """Its mean runs over its own ten, and its name stands in the convention."""
    model = make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)))
    found = corruption(
        model, toy_data, Context(), corruptions="cifar-10-c-bar", severities=3, baseline="none"
    )
    assert found.convention == "mce:none:CIFAR-10-C-bar:10-of-10x1"
    errors = [s.value for s in found.scores if s.metric == "error"]
    assert len(errors) == 10
    assert find(found.scores, "mce").value == pytest.approx(np.mean(errors))
    assert len(chosen_corruptions("imagenet-c-bar")) == 10


def test_severities_between_whole_ones(toy_data, tmp_path: Path) -> None:
    """Measured on the fly and from a folder alike, and named as what they are."""
    model = make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)))
    chosen = {"corruptions": ("contrast", "brightness"), "severities": "2,2.5", "baseline": "none"}
    found = corruption(model, toy_data, Context(), **chosen)
    for name in chosen["corruptions"]:
        for severity in (2, 2.5):
            write_pictures(toy_data, tmp_path, name, severity, format="png")
    assert (tmp_path / "contrast" / "2.5").is_dir()
    stored = corruption(model, toy_data, Context(), **chosen, folder=str(tmp_path))
    assert list(found.outcomes) == list(stored.outcomes)
    assert "contrast:2.5" in found.outcomes
    for name, flags in found.outcomes.items():
        assert (stored.outcomes[name] == flags).all()
    assert found.convention == "mce:none:2-of-15x2"
    assert find(found.scores, "error", corruption="contrast", severity=2.5)


@pytest.mark.parametrize("batch", [1, 13, 64])
def test_batch_size_changes_nothing(toy_data, batch: int) -> None:
    model = make_classifier(ReadsLabel(4))
    whole = corruption(model, toy_data, Context(batch_size=40), **FEW)
    again = make_classifier(ReadsLabel(4))
    again.network.levels.data += 1e-9  # another model to the cache, the same to the eye
    parts = corruption(again, toy_data, Context(batch_size=batch), **FEW)
    assert parts.scores == whole.scores


def test_names_and_severities() -> None:
    assert chosen_corruptions("benchmark") == BENCHMARK
    assert chosen_corruptions("all") == BENCHMARK + EXTRA
    assert chosen_corruptions("noise,fog,fog") == (*BENCHMARK[:3], "fog")
    assert chosen_severities("1-3,5") == (1, 2, 3, 5)
    assert chosen_severities(4) == (4,)
    with pytest.raises(UserError, match="Did you mean fog"):
        chosen_corruptions("fgo")
    for wrong in ("0-5", "6", "a", ""):
        with pytest.raises(UserError, match="severities"):
            chosen_severities(wrong)


def test_one_model_behind_two_defences_is_two_models(perfect) -> None:
    # Both have the same weights under the same names; the second shows the network black pictures.
    data = make_dataset(12)
    as_it_is = Defended(perfect, "as it is", lambda pixels: pixels)
    black = Defended(perfect, "black", lambda pixels: 0 * pixels)
    asked = {"corruption": {**FEW, "baseline": "none"}}
    (first,) = measure({"a": as_it_is}, asked, data=data)
    (second,) = measure({"b": black}, asked, data=data)
    assert first.outcome("correct").all()
    assert (second.outcome("correct") == (data.labels == 0).numpy()).all()
    assert first.key.model_fingerprint != second.key.model_fingerprint


def test_foreign_baselines_are_noted(toy_data) -> None:
    found = corruption(make_classifier(ReadsLabel(4)), toy_data, Context(), **FEW)
    assert any("AlexNet's errors on ImageNet" in note for note in found.notes)
    assert any("cifar constants at 16x16" in note for note in found.notes)


@pytest.mark.parametrize("layout", ["arrays", "pictures"])
def test_stored_sets_give_the_same_numbers(layout: str, tmp_path: Path) -> None:
    data = make_dataset(n=12, size=16)
    for name in FEW["corruptions"]:
        if layout == "arrays":
            write_array(data, tmp_path, name, seed=3)
        else:
            for severity in FEW["severities"]:
                write_pictures(data, tmp_path, name, severity, seed=3, format="png")
    model = make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)))
    fresh = corruption(model, data, Context(seed=3), **FEW, baseline="none")
    stored = corruption(model, data, Context(seed=3), **FEW, baseline="none", folder=str(tmp_path))
    assert {k: v.tolist() for k, v in stored.outcomes.items()} == {
        k: v.tolist() for k, v in fresh.outcomes.items()
    }
    assert [s.value for s in stored.scores] == pytest.approx([s.value for s in fresh.scores])
    assert any("layout" in note for note in stored.notes)


def test_missing_parts_of_a_stored_set_are_named(tmp_path: Path) -> None:
    data = make_dataset(n=12)
    write_array(data, tmp_path, "contrast")
    model = make_classifier(ReadsLabel(4))
    with pytest.raises(UserError, match=r"no fog: .*nor fog\.npy.*contrast"):
        corruption(model, data, Context(), corruptions="fog", folder=str(tmp_path))
    part = data.take(range(4, 12))  # not what a limit takes
    with pytest.raises(UserError, match="12 images, the clean data 8"):
        corruption(model, part, Context(), corruptions="contrast", folder=str(tmp_path))


def checksums(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_written_sets_are_stable_and_resume(tmp_path: Path) -> None:
    data = make_dataset(n=9, size=32)
    for run in ("one", "two"):
        write_array(data, tmp_path / run, "shot_noise", seed=1)
        write_pictures(data, tmp_path / run, "snow", 2, seed=1)
    assert checksums(tmp_path / "one") == checksums(tmp_path / "two")
    pictures = sorted((tmp_path / "one" / "snow").rglob("*.JPEG"))
    assert len(pictures) == 9
    assert {path.parent.name for path in pictures} == set(CLASSES)
    pictures[4].unlink()
    assert write_pictures(data, tmp_path / "one", "snow", 2, seed=1) == 1
    assert checksums(tmp_path / "one") == checksums(tmp_path / "two")
    values = np.load(tmp_path / "one" / "shot_noise.npy")
    assert values.shape == (45, 32, 32, 3)
    labels = np.load(tmp_path / "one" / "labels.npy")
    assert labels.tolist() == data.labels.tolist() * 5
    assert isinstance(data.images, TensorImages)
    third = corrupt(data.images.pixels, "shot_noise", 3, seed=1 << 32).permute(0, 2, 3, 1)
    assert torch.equal(torch.from_numpy(values[18:27]), third)


def test_defences_are_measured_like_models(toy_data) -> None:
    models = {"plain": make_classifier(ReadsLabel(4))}
    (plain,) = measure(models, "clean", data=toy_data)
    (crops,) = measure(
        models, "clean", data=toy_data, model_options={"defend": {"ten_crop": {"crop": 1.0}}}
    )
    assert crops.score("accuracy").value == plain.score("accuracy").value == 1.0
    assert "ten_crop" in crops.model.source
    assert crops.key != plain.key
    with pytest.raises(UserError, match="Did you mean clahe"):
        measure(models, "clean", data=toy_data, model_options={"defend": "clhae"})


def test_pictures_are_made_once_for_all_models_and_only_while_there_is_room() -> None:
    made: list[str] = []

    def make(name: str):
        made.append(name)
        return torch.zeros(10, dtype=torch.uint8)

    kept = CorruptedBatches(room=25)
    for _ in range(2):
        for place in ("a", "b", "c"):
            if kept.find("set", place) is None:
                kept.keep(place, make(place))
    assert made == ["a", "b", "c", "c"]  # two fit
    assert kept.find("other set", "a") is None


def test_kept_pictures_change_no_score(perfect, toy_data, monkeypatch) -> None:
    context = Context(torch.device("cpu"), 16, 0)
    monkeypatch.setattr("stockpot.measure.grids._PICTURES", CorruptedBatches())
    monkeypatch.setattr("stockpot.measure.grids._KEPT", {})
    first = corruption(perfect, toy_data, context, **FEW)
    monkeypatch.setattr("stockpot.measure.grids._KEPT", {})
    calls: list[str] = []

    def counted(*given, **options):
        calls.append(given[1])
        return corrupt(*given, **options)

    monkeypatch.setattr("stockpot.measure.grids.corrupt", counted)
    again = corruption(perfect, toy_data, context, **FEW)
    assert not calls
    assert again.scores == first.scores
    corruption(perfect, toy_data, Context(torch.device("cpu"), 16, 1), **FEW)
    assert calls  # another seed is another set

"""Seasoning on ImageNet's sets in their public layouts, with a family of 1000-class models."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from imagenet_suite import reader, shared_suite
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.natural.classes import imagenet_classes, subset
from stockpot.errors import UserError
from stockpot.results.statistics import wilson
from stockpot.season.draws import draw
from stockpot.season.matrix import Matrix
from stockpot.season.run import season


def on(name: str, **options) -> Dataset:
    return load_dataset(name, path=shared_suite(), **options)


def family(wrong=(), classes=None):
    return {"a": reader(wrong, classes), "b": reader(wrong, classes)}


@pytest.mark.parametrize("name", ["imagenet", "imagenet_a", "imagenet_r", "imagenet_v2",
                                  "imagenet_real", "objectnet", "cue_conflict"])  # fmt: skip
@pytest.mark.parametrize("named", ["words", "wnids"])
def test_a_model_that_reads_every_picture_is_right_on_every_set(name: str, named: str) -> None:
    ids = tuple(each.wnid for each in imagenet_classes())
    data = on(name)
    found = season(
        "uniform", family(classes=ids if named == "wnids" else None), data, shots=2, batch_size=7
    )
    assert found.accuracy.value == 1.0
    assert found.accuracy.n == len(data) - 2
    assert found.record.parameters["class_space"] == (
        "subset" if name in ("imagenet_a", "imagenet_r", "objectnet", "cue_conflict") else "all"
    )


def test_subsets_are_scored_among_their_own_classes() -> None:
    # Every answer is the next of the 1000 classes, and none of these is one of the 200: among
    # all outputs the model is wrong, among the 200 its scores are all equal but for chance.
    places = [place for place in subset("a")[::40] if place + 1 not in subset("a")]
    data = on("imagenet_a")
    wnids = {imagenet_classes()[place].wnid for place in places}
    rows = [row for row, name in enumerate(data.columns["file"]) if name.split("/")[0] in wnids]
    data = data.take(rows)
    usual, strict = (
        season("uniform", family(wrong=places), data, shots=0, class_space=space)
        for space in ("usual", "all")
    )
    assert "best of those" in usual.record.details["classes"]
    assert "best of all" in strict.record.details["classes"]
    assert strict.accuracy.value == 0.0
    # Equal columns: the first of the 200 is taken, which is right for its own pictures alone.
    first = float(np.mean([label == 0 for label in data.labels.tolist()]))
    assert usual.accuracy.value == first


def test_several_accepted_labels_are_right() -> None:
    # `real.json` accepts the class three on; a model that says the next one is wrong there.
    data = on("imagenet_real")
    assert data.accepted is not None
    found = season("grid", family(wrong=[0, 25]), data, shots=5, low=0.0, high=1.0)
    held = set(found.held_out)
    missed = [row for row, label in enumerate(data.labels.tolist()) if label in (0, 25)]
    assert found.accuracy.value == 1 - len(held & set(missed)) / len(held)


def test_all_of_imagenet_c_is_one_set() -> None:
    data = on("imagenet_c")
    assert len(data) == 2 * 2 * 40  # saturate is one of the four extra ones
    assert Counter(data.columns["corruption"]) == {"gaussian_noise": 80, "fog": 80}
    assert Counter(data.columns["severity"]) == {"1": 80, "5": 80}
    assert len(set(data.groups or ())) == 40
    few = on("imagenet_c", corruptions="all", severities=5, originals=6)
    assert Counter(few.columns["corruption"]) == {"gaussian_noise": 6, "fog": 6, "saturate": 6}
    assert len(set(few.groups or ())) == 6
    with pytest.raises(UserError, match="snow"):
        on("imagenet_c", corruptions="fog,snow")


def test_shots_are_drawn_over_all_corruptions_and_no_original_leaks() -> None:
    data = on("imagenet_c")
    groups = np.array(data.groups)
    for seed in range(3):
        rows, others = draw(data, 10, seed)
        cells = Counter((data.columns["corruption"][row], data.columns["severity"][row])
                        for row in rows.tolist())  # fmt: skip
        assert sorted(cells.values()) == [2, 2, 3, 3]
        assert len(set(groups[rows])) == 10
        assert not set(groups[rows]) & set(groups[others])
        assert len(others) == 4 * 30
    assert draw(data, 10, 0)[0].tolist() != draw(data, 10, 1)[0].tolist()
    with pytest.raises(UserError, match="40 originals"):
        draw(data, 40, 0)


def test_intervals_on_imagenet_c_count_an_original_once() -> None:
    # The model reads the place alone: all copies of an image are right or wrong together.
    found = season("uniform", family(wrong=range(0, 500, 25)), on("imagenet_c"), shots=8)
    right = round(found.accuracy.value * 32)
    want = wilson(right, 32)
    assert (found.accuracy.n, 0 < right < 32) == (128, True)
    assert found.accuracy.ci_low == pytest.approx(want.low, abs=1e-9)
    assert found.accuracy.ci_high == pytest.approx(want.high, abs=1e-9)
    assert found.accuracy.ci_method == "wilson-95:32-groups"


def test_experiments_on_the_matrix_keep_copies_together(tmp_path: Path) -> None:
    # Each soup is right about one original in all of its copies, and about nothing else: whoever
    # is chosen on one copy scores on another only if copies leak.
    groups = np.repeat(np.arange(6), 5)
    correct = groups[None, :] == np.arange(6)[:, None]
    matrix = Matrix(np.eye(6), correct, np.zeros((6, 30), np.float32), groups)
    matrix.save(tmp_path / "m.npz")
    again = Matrix.read(tmp_path / "m.npz")
    assert again.originals == 6
    assert again.few_shot(1, held_out=5, draws=12).tolist() == [0.0] * 12
    with pytest.raises(UserError, match="of 2 to 6"):
        again.few_shot(2, held_out=5)
    grid = season("grid", family(), on("imagenet_c"), shots=8, step=1.0, low=0.0, high=1.0)
    assert grid.matrix is not None
    assert grid.matrix.originals == 8

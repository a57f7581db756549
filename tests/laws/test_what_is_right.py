"""What is right is the same for everyone: measures, soups, training, transfer and oracles.

One model that is always right, and one that is always wrong, for every kind of label
(`label_worlds`). A new measure, seasoner or oracle needs a row here.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from laws.label_worlds import SIDE, WORLDS, World
from pico import make_classifier, make_dataset
from stockpot.attack.threat import parse_threats
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.oracle import Oracle, Setting
from stockpot.dynamic.oracles import oracles
from stockpot.dynamic.oracles.ensemble import EnsembleOracle
from stockpot.dynamic.oracles.human import COLUMNS, digest
from stockpot.dynamic.oracles.networks import NetworkOracle
from stockpot.errors import BadDataError
from stockpot.fuse.learning.learner import learned_files
from stockpot.fuse.run import fuse
from stockpot.harden.loop import Step, train
from stockpot.harden.selection import scores
from stockpot.measure import measures
from stockpot.measure.dynamic import measure as dynamic_measure
from stockpot.measure.dynamic.transfer import transfer_matrix
from stockpot.measure.measurement import Context, Measurement
from stockpot.measure.transfer import transfer
from stockpot.pool.family import read_pool
from stockpot.score.scorer import scorer_for
from stockpot.season import seasoners
from stockpot.season.criteria import judge
from stockpot.season.evaluate import logits_of
from stockpot.season.robust import evaluate_under
from stockpot.season.run import season
from stockpot.season.shots import read_shots

TINY = "1/255000"  # no attack of this size changes an answer
MEASURES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "clean": ({}, ("accuracy", "class_accuracy")),
    "corruption": (
        {"corruptions": ("brightness",), "severities": (1,), "baseline": "none"},
        ("accuracy",),
    ),
    "adversarial": (
        {"norms": "linf,l2", "eps": (TINY, TINY), "steps": 3},
        ("accuracy", "robust_accuracy", "union_accuracy"),
    ),
    "shift": ({}, ("accuracy", "outside_accuracy", "mean_outside_accuracy")),
    "surface": ({"unseen": ("new",)}, ("accuracy", "group_accuracy", "unseen_accuracy")),
    "stream": (
        {"severity": 0, "attacked": 0, "batch": 5},
        ("accuracy",),
    ),
    "shape_bias": ({}, ("accuracy",)),
    "dynamic": (
        {"generator": "colour", "oracle": "none", "budget": 1},
        ("accuracy", "class_accuracy"),
    ),
    "audit": ({"eps": "1/255", "budget": 150}, ("accuracy",)),
    "oracle_audit": ({"generator": "colour", "budget": 1}, ("accuracy",)),
    "ood": ({"far": {"elsewhere": make_dataset(8, classes=("no", "such"))}}, ("accuracy",)),
    "calibration": ({"held_out": "content"}, ("accuracy",)),
    "label_free": ({"source": "content"}, ("accuracy",)),
    "conformal": ({"methods": ("lac",)}, ("accuracy",)),
    "selective": ({"coverages": (0.5, 1.0)}, ("accuracy", "selective_accuracy")),
    "certified": (
        {"sigma": 1e-6, "n": 6, "n0": 1, "alpha": 0.05, "step": 1.0},
        ("smoothed_accuracy", "certified_accuracy"),
    ),
}
ELSEWHERE = {
    *("cost", "factors", "imagenet_variants", "object_masks", "perturbation", "published"),
}
"""Measures that say nothing of right and wrong, or bring their own data (tests/measure)."""
SEASONERS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "greedy": {},
    "grid": {"step": 0.5, "low": 0.0, "high": 1.0},
    "wise_ft": {"alphas": (0.0, 0.5, 1.0)},
    "learned": {"steps": 2},
    "gradient": {"steps": 2},
    "racing": {"low": 0.0, "high": 1.0},
    "label_free": {"step": 0.5, "low": 0.0, "high": 1.0},
    "coda": {"labels": 2},
}
by_world = pytest.mark.parametrize("world", WORLDS.values(), ids=list(WORLDS))
OTHERWISE_NAMED = {
    "numbered classes", "numbered labels", "words", "ids by first word", "ids by words",
}  # fmt: skip
KINDS = {name: world for name, world in WORLDS.items() if name not in OTHERWISE_NAMED}
"""Without the worlds that differ from another only in how names find each other: whoever scores
asks one function for that (`scorer_for`), and every measure is asked about all worlds."""
by_kind = pytest.mark.parametrize("world", KINDS.values(), ids=list(KINDS))
by_truth = pytest.mark.parametrize("truth", [True, False], ids=["right", "wrong"])


def pictures(world: World, truth: bool) -> Dataset:
    return world.data(world.right if truth else world.wrong)


def values(result: Measurement, metric: str) -> list[float]:
    found = [score.value for score in result.scores if score.metric == metric]
    assert found, metric
    return found


def test_every_entry_has_a_row() -> None:
    assert sorted({*MEASURES, *ELSEWHERE}) == measures.names()
    assert sorted(SEASONERS) == seasoners.names()
    assert sorted(ORACLES) == oracles.names()


@by_truth
@pytest.mark.parametrize("name", MEASURES)
@by_world
def test_measures_agree(world: World, name: str, truth: bool) -> None:
    data = pictures(world, truth)
    params, metrics = MEASURES[name]
    if name == "shift":
        params = {"outside": {"elsewhere": data}}
    result = measures.get(name)(world.model(), data, Context(batch_size=5), **params)
    for metric in metrics:
        assert values(result, metric) == pytest.approx([float(truth)] * len(values(result, metric)))
    assert result.outcomes["correct"].all() == truth
    assert result.outcomes["correct"].any() == truth


@pytest.mark.parametrize("space", ["all", "subset"])
@by_kind
def test_both_readings_of_the_class_space_call_a_sure_answer_right(
    world: World, space: str
) -> None:
    for name in ("clean", "corruption", "adversarial", "dynamic"):
        params, metrics = MEASURES[name]
        for truth in (True, False):
            result = measures.get(name)(
                world.model(), pictures(world, truth), Context(), class_space=space, **params
            )
            assert set(values(result, metrics[0])) == {float(truth)}, name


@by_truth
@pytest.mark.parametrize("name", SEASONERS)
@by_kind
def test_seasoners_agree(world: World, name: str, truth: bool) -> None:
    data = pictures(world, truth)
    found = season(
        name,
        [world.model(), world.model()],
        data,
        source=pictures(world, True),
        shots=6,
        batch_size=4,
        **SEASONERS[name],
    )
    assert found.accuracy.value == float(truth)
    assert found.ensemble_accuracy.value == float(truth)
    assert [score.value for score in found.member_accuracy.values()] == [float(truth)] * 2
    if found.matrix is not None:
        assert found.matrix.correct.all() == found.matrix.correct.any() == truth


@by_truth
@by_kind
def test_soups_under_attack_agree(world: World, truth: bool) -> None:
    place = torch.device("cpu")
    pool = read_pool([world.model(), world.model()], place)
    shots = read_shots(pictures(world, truth), pool.model, device=place, batch_size=5)
    soups = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    threats = parse_threats(["linf", "l2"], (TINY, TINY))
    for matrix in evaluate_under(pool, soups, shots, threats, steps=2).values():
        assert matrix.correct.all() == matrix.correct.any() == truth


@by_truth
@pytest.mark.parametrize("name", ["greedy_soup", "learned_soup"])
@by_kind
def test_fused_soups_agree(world: World, name: str, truth: bool, tmp_path: Path) -> None:
    """Held-out images: all right, or all wrong, whatever the soup."""
    members = {"a": world.model(), "b": world.model()}
    params = {} if name == "greedy_soup" else {"epochs": 1}
    kept = tmp_path / "learned"
    fuse(name, members, tasks=pictures(world, truth), batch_size=5, save=str(kept), **params)
    facts = json.loads(learned_files(str(kept))[1].read_text())["facts"]
    if name == "greedy_soup":
        assert facts["accuracy"] == float(truth)
        assert facts["members"] == {"a": float(truth), "b": float(truth)}
    else:
        # The loss of one sure answer out of many is next to nothing, that of another is not.
        assert all(loss < 0.1 if truth else loss > 1 for loss in facts["loss"])


@by_truth
@by_kind
def test_the_choice_among_epochs_agrees(world: World, truth: bool) -> None:
    found = scores(world.model(), pictures(world, truth), f"linf:{TINY},l2:{TINY}")
    assert found == {"accuracy": float(truth), "robust": float(truth)}


@by_world
def test_training_learns_what_is_right(world: World) -> None:
    """A table of outputs, all equal at first: after training it answers what the world calls right.

    The pictures that training shows spell the output of the first label: with several labels one
    has to be learned.
    """
    data = world.data(world.right)
    scorer = scorer_for(world.model_classes, data)
    if scorer.mapping.groups:
        with pytest.raises(BadDataError, match="one output for each class"):
            train(world.model(), data, plainly, epochs=1)
        return
    shown = world.data(scorer.targets.tolist())
    model = make_classifier(Learns(len(world.model_classes)), world.model_classes, SIDE)
    train(model, shown, plainly, epochs=40, batch_size=12, lr=0.3, augmentations=(), warmup=0.0)
    result = measures.get("clean")(model, shown, Context())
    assert values(result, "accuracy") == [1.0]


class Learns(nn.Module):
    """A row of outputs for each output that a picture may spell."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.table = nn.Embedding(outputs, outputs)
        nn.init.zeros_(self.table.weight)

    def forward(self, pixels: Tensor) -> Tensor:
        levels = (pixels[:, :, :2].mean(dim=(1, 3)) * 255 / 8).round().long()
        spelled = levels[:, 0] * 32 + levels[:, 1]
        rows: Tensor = self.table(spelled.clamp(max=len(self.table.weight) - 1))
        return rows


def plainly(step: Step) -> Tensor:
    return F.cross_entropy(step.model(step.pixels), step.labels)


@by_world
def test_criteria_without_labels_call_the_same_source_images_right(world: World) -> None:
    """ATC foretells the accuracy on the source itself: 1 for the reader, or 0."""
    place = torch.device("cpu")
    for truth in (True, False):
        shots = read_shots(pictures(world, truth), world.model(), device=place, batch_size=5)
        logits = logits_of(world.model(), shots)
        ensemble = logits.softmax(dim=1)
        found = judge("atc", logits, shots.scorer, logits, ensemble)
        assert found.score == float(truth)


@by_kind
def test_images_of_a_search_keep_their_labels(world: World) -> None:
    """What a search writes to a folder is scored like the data it came from."""
    models = {"a": world.model(), "b": world.model()}
    params = {"generator": "colour", "oracle": "none", "budget": 1}
    for truth in (True, False):
        found = transfer(models, data=pictures(world, truth), search="dynamic", **params)
        assert [score.value for cell in found for score in cell.scores] == [float(truth)] * 6


@by_kind
def test_published_sets_agree(world: World, tmp_path: Path) -> None:
    for truth in (True, False):
        folder = tmp_path / str(truth)
        params = {"generator": "colour", "oracle": "none", "budget": 1, "export": str(folder)}
        measures.get("dynamic")(world.model(), pictures(world, truth), Context(), **params)
        found = load_dataset(str(folder))
        result = measures.get("published")(world.model(), found, Context())
        for metric in ("accuracy", "perturbed_accuracy"):
            assert values(result, metric) == [float(truth)]


@by_world
def test_transfer_agrees(world: World) -> None:
    model, right, wrong = world.model(), pictures(world, True), pictures(world, False)
    found = transfer_matrix({"m": model}, {"right": right, "wrong": wrong}, right, Context())
    assert found.fmr.tolist() == [[1.0], [0.0]]


def people(world: World, truth: bool, folder: Path) -> Oracle:
    """A sheet on which every picture is answered with a class that is right, or one that is not."""
    data = pictures(world, truth)
    answers = [
        {int(number) for number in text.split()}
        for text in (world.accepted or map(str, world.labels))
    ]
    with (folder / "review.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for row, image in enumerate(next(data.batches(len(data))).images):
            known = max(answers[row])
            other = min(set(range(len(world.data_classes))) - answers[row])
            said = world.data_classes[known if truth else other]
            mark = {"file": f"{row}.png", "sha256": digest(image.float() / 255), "label": ""}
            writer.writerow(mark | {"answer": said})
    made: Oracle = oracles.get("human")(Setting(data.classes), path=str(folder))
    return made


def network(world: World, truth: bool, folder: Path) -> Oracle:
    return NetworkOracle(world.model(), Setting(world.data_classes), "reader")


def several(world: World, truth: bool, folder: Path) -> Oracle:
    return EnsembleOracle([network(world, truth, folder)] * 3, "abstain")


ORACLES = {"zero_shot": network, "classifier": network, "ensemble": several, "human": people}


class Blind(nn.Module):
    """The model under test here: its answers do not matter."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.1, 0.9, outputs))

    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.mean(dim=(1, 2, 3))[:, None] * self.weight


@by_truth
@pytest.mark.parametrize("name", [name for name in ORACLES if name != "zero_shot"])
@by_kind
def test_oracles_agree(
    world: World, name: str, truth: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ORACLES[name](world, truth, tmp_path)
    stub = SimpleNamespace(get=lambda name: lambda setting, **params: made)
    monkeypatch.setattr(dynamic_measure, "oracles", stub)
    model = world.model()
    model.network = Blind(len(world.model_classes))
    result = measures.get("dynamic")(
        model, pictures(world, truth), Context(), generator="colour", budget=1, force=True
    )
    assert values(result, "coverage") == [float(truth)]


def test_an_attack_must_make_every_accepted_label_wrong() -> None:
    """Between two accepted classes nothing is gained; beyond both of them there is."""

    class Slope(nn.Module):
        """Class 0 below a brightness of 0.45, class 1 up to 0.55, class 2 above, and never 3."""

        def __init__(self) -> None:
            super().__init__()
            self.centres = nn.Parameter(torch.tensor([0.4, 0.5, 0.6, 5.0]))

        def forward(self, pixels: Tensor) -> Tensor:
            return -10 * (pixels.mean(dim=(1, 2, 3))[:, None] - self.centres).abs()

    world = WORLDS["several labels"]
    model = world.model()
    model.network = Slope()
    data = world.data(world.right)
    grey = torch.full((12, 3, 16, 16), 112, dtype=torch.uint8)  # 0.44, which is class 0

    def robust(accepted: Sequence[str], eps: str) -> float:
        asked = replace(
            data,
            images=TensorImages(grey),
            labels=torch.zeros(12, dtype=torch.long),
            columns={"accepted": tuple(accepted)},
        )
        result = measures.get("adversarial")(
            model, asked, Context(), norms="linf", eps=eps, steps=10
        )
        assert values(result, "accuracy") == [1.0]
        return values(result, "robust_accuracy")[0]

    one, two = ["0"] * 12, ["0 1"] * 12
    assert robust(one, "0.05") == 0.0  # class 1 is near
    assert robust(two, "0.05") == 1.0  # and as right as class 0
    assert robust(two, "0.15") == 0.0  # class 2 is not
    assert robust([*one[:6], *two[:6]], "0.05") == 0.5


def test_losses_are_those_of_the_accepted_probability() -> None:
    world = WORLDS["several labels"]
    data = world.data(world.right)
    scorer = scorer_for(world.model_classes, data)
    logits = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    shares = logits.double().softmax(dim=1).numpy()
    expected = [
        -np.log(sum(shares[row, int(number)] for number in data.columns["accepted"][row].split()))
        for row in range(12)
    ]
    assert scorer.losses(logits, torch.arange(12)).tolist() == pytest.approx(expected, rel=1e-5)


def test_a_picture_for_which_nothing_is_right_is_refused() -> None:
    world = WORLDS["several labels"]
    data = world.data(world.right)
    broken = replace(data, columns={"accepted": ("", *data.columns["accepted"][1:])})
    with pytest.raises(BadDataError, match="row 0"):
        measures.get("clean")(world.model(), broken, Context())

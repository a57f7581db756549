"""Laws of every oracle. A new oracle needs a row here, or the first test fails."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

import stockpot
import stockpot.measure.dynamic.measure as dynamic_measure
from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from stockpot.checkpoints.record import read_record
from stockpot.checkpoints.resolve import zoo_folder
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.kinship import refuse_kin, shared_weights
from stockpot.dynamic.oracle import Oracle, Setting, parse_rule
from stockpot.dynamic.oracles import networks, oracles
from stockpot.dynamic.oracles.human import COLUMNS, digest
from stockpot.dynamic.oracles.networks import NetworkOracle
from stockpot.errors import UserError
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize
from towers import two_towers

SETTING = Setting(CLASSES)


def pixels(n: int = 8) -> torch.Tensor:
    return next(make_dataset(n).batches(n)).images.float() / 255


def reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any name stand for the classifier that reads the label."""
    monkeypatch.setattr(networks, "load_for", lambda *a, **k: make_classifier(ReadsLabel(4)))


def filled_sheet(folder: Path) -> str:
    data = make_dataset(8)
    with (folder / "review.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for row, image in enumerate(pixels()):
            label = CLASSES[int(data.labels[row])]
            mark = {"file": f"{row}.png", "sha256": digest(image), "label": label}
            writer.writerow(mark | {"answer": label})
    return str(folder)


def params(name: str, folder: Path) -> dict[str, Any]:
    one = {"oracle": "classifier", "model": "reader"}
    return {
        "classifier": {"model": "reader"},
        "zero_shot": {"model": "reader"},
        "ensemble": {"members": [one, one, one]},
        "human": {"path": filled_sheet(folder)},
    }[name]


@pytest.fixture(params=oracles.names())
def oracle(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Oracle:
    reader(monkeypatch)
    monkeypatch.setattr(networks, "takes_classes", lambda source: True)
    made: Oracle = oracles.get(request.param)(SETTING, **params(request.param, tmp_path))
    return made


def test_one_that_knows_accepts_every_label_and_no_other(oracle: Oracle) -> None:
    labels = make_dataset(8).labels
    shares = oracle.judge(pixels())
    assert shares.shape == (8, 4)
    assert (shares >= 0).all()
    assert torch.allclose(shares.sum(dim=1), torch.ones(8), atol=1e-5)
    rule = parse_rule("argmax")
    assert rule.accepts(shares, labels).all()
    assert not rule.accepts(shares, (labels + 1) % 4).any()


def test_judging_needs_no_gradient_and_does_not_depend_on_the_batch(oracle: Oracle) -> None:
    images = pixels().requires_grad_(True)
    whole = oracle.judge(images)
    assert not whole.requires_grad
    assert torch.equal(oracle.judge(images[3:4])[0], whole[3])
    assert oracle.name


@pytest.mark.parametrize(
    ("data", "model"),
    [*networks.EXPERTS.items(), ("a folder of mine", "clip-base"), ("", "clip-base")],
)
def test_the_zoos_expert_for_the_data_judges_where_none_is_named(
    monkeypatch: pytest.MonkeyPatch, data: str, model: str
) -> None:
    asked: list[str] = []
    known = make_classifier(ReadsLabel(4))
    monkeypatch.setattr(networks, "load_for", lambda name, *_, **__: asked.append(name) or known)
    made: Oracle = oracles.get("zero_shot")(replace(SETTING, data=data))
    assert asked == [model]
    assert made.name == f"zero_shot({model})"


def test_every_expert_was_trained_on_its_data() -> None:
    for data, name in networks.EXPERTS.items():
        folder = zoo_folder(name)
        assert folder, name
        record = read_record(folder)
        assert record is not None
        assert record.details["data"]["name"] == data


def test_an_unknown_class_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reader(monkeypatch)
    with pytest.raises(UserError, match=r"oracle classifier\(reader\) cannot judge.*zebra"):
        oracles.get("classifier")(Setting((*CLASSES, "zebra")), model="reader")


@pytest.mark.parametrize(
    ("rule", "accepted"),
    [
        ("argmax", [True, False, False]),
        ("top-2", [True, True, False]),
        ("margin:0.3", [True, False, False]),
        ("margin:0.5", [False, False, False]),
        ("top-3", [True, True, False]),
    ],
)
def test_rules_by_hand(rule: str, accepted: list[bool]) -> None:
    # Sure of class 0, second of class 0, and an abstention; the label is always 0.
    shares = torch.tensor([[0.6, 0.2, 0.2], [0.3, 0.5, 0.2], [0.0, 0.0, 0.0]])
    found = parse_rule(rule).accepts(shares, torch.zeros(3, dtype=torch.long))
    assert found.tolist() == accepted
    assert str(parse_rule(rule)) == rule


@pytest.mark.parametrize("text", ["best", "top-0", "top-x", "margin:2", "margin:"])
def test_unknown_rules_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="argmax, top-K"):
        parse_rule(text)


def test_ensembles_vote_average_or_abstain() -> None:
    from stockpot.dynamic.oracles.ensemble import EnsembleOracle

    class Fixed:
        networks = ()

        def __init__(self, *rows: list[float]) -> None:
            self.name, self.rows = "fixed", torch.tensor(rows)

        def judge(self, images: torch.Tensor) -> torch.Tensor:
            return self.rows

    members = [
        Fixed([0.9, 0.1], [0.4, 0.6]),
        Fixed([0.8, 0.2], [0.9, 0.1]),
        Fixed([0.6, 0.4], [0.4, 0.6]),
    ]
    images = pixels(2)
    vote = EnsembleOracle(members, "vote").judge(images)
    assert torch.allclose(vote, torch.tensor([[1.0, 0.0], [1 / 3, 2 / 3]]))
    mean = EnsembleOracle(members, "margin").judge(images)
    assert torch.allclose(mean, torch.tensor([[2.3 / 3, 0.7 / 3], [1.7 / 3, 1.3 / 3]]))
    careful = EnsembleOracle(members, "abstain").judge(images)
    assert torch.allclose(careful, torch.tensor([[2.3 / 3, 0.7 / 3], [0.0, 0.0]]))


def test_people_abstain_from_what_they_have_not_seen(tmp_path: Path) -> None:
    oracle = oracles.get("human")(SETTING, path=filled_sheet(tmp_path))
    assert (oracle.judge(pixels() * 0.9) == 0).all()
    sheet = tmp_path / "review.csv"
    sheet.write_text(sheet.read_text().replace(",ant\n", ",\n").replace(",bee\n", ",zebra\n"))
    with pytest.raises(UserError, match="zebra"):
        oracles.get("human")(SETTING, path=str(sheet))


def test_kin_are_refused_unless_forced() -> None:
    model = two_towers()
    kin = networks.NetworkOracle(model, Setting(model.classes), "kin")
    assert shared_weights(model, kin.networks) == 1.0
    with pytest.raises(UserError, match="shares 100 % of the weights"):
        refuse_kin(model, kin, force=False)
    assert "forced" in refuse_kin(model, kin, force=True)
    stranger = make_classifier(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4)))
    assert shared_weights(stranger, kin.networks) == 0.0
    assert refuse_kin(stranger, kin, force=False) == ""


class Rim(torch.nn.Module):
    """The first class where the rim of a picture is bright, the second where it is dark."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        bright = pixels[:, :, :2].mean(dim=(1, 2, 3)) - 0.5
        return torch.stack([bright, -bright, *[torch.full_like(bright, -9)] * 2], dim=1)


@pytest.mark.parametrize("cropped", [False, True])
def test_an_oracle_cuts_nothing_more_from_a_picture_that_was_cropped(cropped: bool) -> None:
    """As networks of ImageNet have it: a short side of 20, of which 16 in the middle are taken."""
    size = ImageSize(16, 16)
    judge = make_classifier(Rim())
    judge.preprocess = Preprocess(size, 20, (0.0,) * 3, (1.0,) * 3, "bilinear")
    seen = torch.zeros(1, 3, 24, 24)  # what a larger network sees
    seen[:, :, :3] = 1
    oracle = NetworkOracle(judge, replace(SETTING, cropped=cropped), "rim")
    assert int(oracle.judge(seen).argmax()) == (0 if cropped else 1)
    assert judge.preprocess.resized == 20  # the classifier itself stays as it is


def test_pictures_of_files_come_cropped_and_those_of_one_size_do_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for label in range(4):
        (tmp_path / CLASSES[label]).mkdir()
        Image.new("RGB", (16, 16), (60 * label,) * 3).save(tmp_path / CLASSES[label] / "a.png")
    asked: list[Setting] = []

    def noted(setting: Setting, **_: Any) -> Oracle:
        asked.append(setting)
        return NetworkOracle(make_classifier(ReadsLabel(4)), setting, "noted")

    monkeypatch.setattr(dynamic_measure, "oracles", SimpleNamespace(get=lambda name: noted))
    for data in (make_dataset(4), load_dataset("imagefolder", path=tmp_path)):
        stockpot.measure(
            {"m": make_classifier(ReadsLabel(4))},
            {"dynamic": {"generator": "colour", "budget": 1, "force": True}},
            data=data, out=tmp_path / f"out-{len(asked)}",
        )  # fmt: skip
    assert [setting.cropped for setting in asked] == [False, True]

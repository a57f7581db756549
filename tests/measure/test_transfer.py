"""Transfer: twins share every weakness, and what an attack cannot reach stays right."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from commands import invoke
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.errors import UserError
from stockpot.measure.run import measure
from stockpot.measure.transfer import matrix, shares, transfer
from stockpot.results.store import load_results


class Blind(ReadsLabel):
    """Right, and without a gradient that an attack could follow to reach it."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return super().forward((pixels * 255 / 40).round() * 40 / 255)


def test_the_matrix_of_known_models(tmp_path: Path) -> None:
    """Levels are 40 apart: a move of 30 reaches the next one's half, and one of 15 does not."""
    models = {"one": ReadsLabel(4), "twin": ReadsLabel(4), "rounded": Blind(4)}
    chosen: dict[str, nn.Module] = {name: make_classifier(net) for name, net in models.items()}
    results = transfer(chosen, data=make_dataset(), out=tmp_path, eps="30/255", steps=5,
                       method="pgd", restarts=1)  # fmt: skip
    found = matrix(results)
    table = shares(found)
    assert found.makers == found.viewers == list(models)
    assert [score.value for score in found.clean] == [1, 1, 1]
    assert table[0, 0] == table[0, 1] == table[1, 0] == table[1, 1] < 1  # twins
    weak = transfer(chosen, data=make_dataset(), eps="15/255", steps=5, method="pgd")
    assert (shares(matrix(weak)) == 1).all()
    again = matrix(load_results(tmp_path))
    assert sorted(again.viewers) == sorted(models)
    assert again.scores[0][again.viewers.index("twin")].value == table[0, 1]


def test_a_dynamic_search_gives_the_perturbed_accuracy_on_the_diagonal() -> None:
    models = {"one": make_classifier(ReadsLabel(4)), "rounded": make_classifier(Blind(4))}
    settings = {"generator": "colour", "oracle": "none", "budget": 8}
    table = shares(matrix(transfer(models, data=make_dataset(), search="dynamic", **settings)))
    for place, (name, model) in enumerate(models.items()):
        (alone,) = measure({name: model}, {"dynamic": settings}, data=make_dataset())
        assert table[place, place] == pytest.approx(alone.score("perturbed_accuracy").value)


def test_one_model_is_not_enough() -> None:
    with pytest.raises(UserError, match="two models or more"):
        transfer([make_classifier(ReadsLabel(4))], data=make_dataset())


def test_the_command(tmp_path: Path) -> None:
    words = ["transfer", "icons-nominal", "icons-linf", "--data", "icons", "--limit", 6,
             "-p", "steps=1", "-o", tmp_path, "--plot", tmp_path / "t.svg", "--json"]  # fmt: skip
    shown = invoke(*words)
    assert shown.exit_code == 0, shown.output
    cells = json.loads(shown.output[shown.output.index("[{") : shown.output.rindex("]") + 1])
    assert [cell["key"]["model"] for cell in cells] == ["icons-nominal", "icons-linf"]
    assert len(cells[0]["scores"]) == 3
    ElementTree.parse(tmp_path / "t.svg")
    assert len(list((tmp_path / "results").glob("*.json"))) == 2
    assert invoke("transfer", "icons-linf", "--data", "icons").exit_code == 1
    assert invoke(*words[:5], "--with", "magic").exit_code == 1

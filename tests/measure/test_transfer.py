"""Transfer: twins share every weakness, and what an attack cannot reach stays right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from commands import invoke
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.errors import BadParameterError, UserError
from stockpot.measure.run import measure
from stockpot.measure.transfer import matrix, shares, transfer
from stockpot.results.samples_file import samples_path
from stockpot.results.store import load_results, read_result, result_files


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
    none = transfer(chosen, data=make_dataset(), makers=["twin"], eps="30/255", steps=5,
                    method="pgd", restarts=1)  # fmt: skip
    assert matrix(none).makers == ["twin"]
    assert shares(matrix(none)).tolist() == [table[1].tolist()]
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


@pytest.mark.parametrize("search", ["adversarial", "dynamic"])
def test_records_say_what_each_image_was_taken_for(tmp_path: Path, search: str) -> None:
    """The flags of the scores, and answers that are the label exactly where the flag says so."""
    models = {"one": make_classifier(ReadsLabel(4)), "rounded": make_classifier(Blind(4))}
    settings: dict[str, Any] = {"eps": "30/255", "steps": 5, "method": "pgd"}
    if search == "dynamic":
        settings = {"generator": "colour", "oracle": "none", "budget": 8}
    data = make_dataset()
    transfer(models, data=data, search=search, out=tmp_path, log_samples=True, **settings)  # type: ignore[arg-type]
    for file in result_files(tmp_path):
        cell, kept = read_result(file), pq.read_table(samples_path(file)).to_pylist()
        assert {row["record"] for row in kept} == {"correct", "transfer:one", "transfer:rounded"}
        own = {row["name"]: row["label"] for row in kept if row["record"] == "correct"}
        for record in cell.outcomes:
            rows = [row for row in kept if row["record"] == record]
            assert [row["correct"] for row in rows] == cell.outcome(record).tolist()
            assert all((row["prediction"] == row["label"]) == row["correct"] for row in rows)
            # Made images bear the names of those that they were made of.
            assert all(own[row["name"]] == row["label"] for row in rows)
        wrong = [row for row in kept if not row["correct"]]
        assert wrong or cell.key.model == "rounded"
        ball = ("linf", "30/255") if search == "adversarial" else (None, None)
        assert {(row["norm"], row["eps"]) for row in kept if row["record"] != "correct"} == {ball}
    with pytest.raises(BadParameterError, match="log_samples"):
        transfer(models, data=data, log_samples=True)
    with pytest.raises(UserError, match="no model named 'oen'"):
        transfer(models, data=data, makers=["oen"])


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

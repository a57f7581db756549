"""The precision of forward passes is part of a question, of its answer, and of no attack."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models.test_forward_passes import Greedy, small
from pico import make_classifier, make_dataset
from stockpot.measure.run import measure
from stockpot.recipe import load_recipe
from stockpot.results.schema import CellKey, CellResult
from stockpot.results.store import ResultStore, digest
from stockpot.run.plan import cells_of

ASKED = {
    "model": "m", "measure": "clean", "data": "d", "params": {"top": 5}, "seed": 1,
    "model_fingerprint": "a" * 8, "data_fingerprint": "b" * 8,
}  # fmt: skip


def test_questions_of_before_are_questions_in_full_precision() -> None:
    assert digest(CellKey(**ASKED)) == "941b6df585a6"  # as before keys had a precision
    others = [
        CellKey(**ASKED, precision="tf32"),
        CellKey(**ASKED, precision="bf16"),
        CellKey(**ASKED, compiled=True),
        CellKey(**ASKED, precision="bf16", compiled=True),
    ]
    assert len({digest(key) for key in others} | {"941b6df585a6"}) == 5


def test_another_precision_is_another_question(tmp_path: Path) -> None:
    model, data = small(), make_dataset(24)
    given = {"data": data, "out": tmp_path, "device": "cpu"}
    (half,) = measure(model, "clean", precision="bf16", **given)
    (full,) = measure(model, "clean", **given)
    assert len(list(ResultStore(tmp_path / "results"))) == 2
    assert (half.forward.precision, full.forward.precision) == ("bf16", "fp32")
    assert half.score("nll").value != full.score("nll").value
    assert any("passes in bf16" in note for note in half.notes)
    assert not any("passes" in note for note in full.notes)
    (again,) = measure(model, "clean", precision="fp32", **given)
    assert again == full
    assert CellResult.model_validate_json(half.model_dump_json()) == half


def test_a_result_without_passes_opens(tmp_path: Path) -> None:
    (result,) = measure(small(), "clean", data=make_dataset(8), device="cpu")
    old = result.model_dump()
    for key in ("precision", "compiled"):
        del old["key"][key]
    del old["forward"]
    opened = CellResult.model_validate(old)
    assert opened.key == result.key
    assert opened.forward is None


def test_attacks_know_no_precision_but_their_own() -> None:
    model, data = small(), make_dataset(8)
    asked = {"adversarial": {"steps": 2, "norms": "linf"}}
    (fast,) = measure(model, asked, data=data, precision="bf16", device="cpu")
    (plain,) = measure(model, asked, data=data, device="cpu")
    assert fast.key == plain.key
    assert fast.outcomes == plain.outcomes
    assert fast.forward is None


@pytest.mark.parametrize("asked", ["clean", "corruption", "adversarial"])
@pytest.mark.parametrize("size", [16, "auto"])
def test_a_cell_survives_a_lack_of_memory(asked: str, size: int | str) -> None:
    params = {
        "clean": {},
        "corruption": {"corruptions": "brightness", "severities": "1", "baseline": "none"},
        "adversarial": {"steps": 1, "norms": "linf"},
    }[asked]
    data = make_dataset(24)
    torch.manual_seed(len(str(size)))  # a grid of the same weights would be remembered
    tight = make_classifier(Greedy(room=5))
    (found,) = measure(tight, {asked: params}, data=data, batch_size=size, device="cpu")
    roomy = make_classifier(Greedy(room=24))
    roomy.load_state_dict(tight.state_dict())
    (meant,) = measure(roomy, {asked: params}, data=data, batch_size=24, device="cpu")
    assert found.outcomes == meant.outcomes
    assert any("out of memory: the batch was halved to 4 images" in note for note in found.notes)
    assert not any("memory" in note for note in meant.notes)


def test_a_recipe_says_how_its_cells_are_run(tmp_path: Path) -> None:
    text = """
version: 1
precision: bf16
compile: true
batch_size: auto
data: {icons: {dataset: icons, limit: 4}}
models: {a: {load: icons-nominal}}
measure: {with: [{measure: clean, data: icons}]}
"""
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    (cell,) = cells_of(load_recipe(path).recipe, tmp_path)
    assert (cell.batch_size, cell.precision, cell.compile) == ("auto", "bf16", True)
    assert (cell.key().precision, cell.key().compiled) == ("bf16", True)

"""Ensembles: made, loaded, measured and attacked like any other model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

import stockpot
from commands import invoke
from dual_encoders import make_clip, make_expert
from pico import make_dataset
from run_recipes import pico_model
from stockpot.checkpoints.record import read_record
from stockpot.errors import BadParameterError, UserError
from stockpot.fuse.run import fuse
from stockpot.models.load import identify
from stockpot.tune.merges import Merges


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("members")
    return {name: pico_model(place / name, seed) for seed, name in enumerate("abc")}


def logits(folder: Path, **options: Any) -> Tensor:
    with torch.no_grad():
        return stockpot.load_model(folder, **options)(make_dataset(6).images.pixels)  # type: ignore[attr-defined]


CASES: list[tuple[dict[str, Any], Any]] = [
    ({}, lambda z: z.softmax(2).mean(0).log()),
    ({"combine": "logits"}, lambda z: z.mean(0)),
    ({"combine": "max"}, lambda z: z.max(0).values),
    (
        {"weights": [1, 0, 3]},
        lambda z: (0.25 * z[0].softmax(1) + 0.75 * z[2].softmax(1)).log(),
    ),
    (
        {"combine": "logits", "weights": [2, -1, 1], "normalize": False},
        lambda z: 2 * z[0] - z[1] + z[2],
    ),
]


@pytest.mark.parametrize(("params", "formula"), CASES, ids=[str(case[0]) for case in CASES])
def test_the_answers_are_combined(
    params: dict[str, Any], formula: Any, members: dict[str, Path], tmp_path: Path
) -> None:
    out = fuse("ensemble", members, out=tmp_path / "out", **params)
    each = torch.stack([logits(path) for path in members.values()]).double()
    torch.testing.assert_close(logits(out).double(), formula(each), rtol=1e-5, atol=1e-6)


def test_members_that_are_the_same_answer_as_one(members: dict[str, Path], tmp_path: Path) -> None:
    same = {name: pico_model(tmp_path / name, 0) for name in ("x", "y")}
    out = fuse("ensemble", same, out=tmp_path / "out", combine="logits")
    torch.testing.assert_close(logits(out), logits(members["a"]))


def test_the_order_of_members_does_not_matter(members: dict[str, Path], tmp_path: Path) -> None:
    forward = fuse("ensemble", members, out=tmp_path / "forward")
    backward = fuse("ensemble", dict(reversed(members.items())), out=tmp_path / "backward")
    torch.testing.assert_close(logits(forward), logits(backward))
    assert identify(forward) != identify(fuse("ensemble", members, out=tmp_path / "w",
                                              weights=[1, 2, 3]))  # fmt: skip


def test_experts_of_a_dual_encoder_answer_with_the_datas_head(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip")
    pool = [make_expert(clip, tmp_path / f"m{seed}", seed=seed) for seed in range(2)]
    out = fuse("ensemble", pool, base=clip, out=tmp_path / "out", combine="logits")
    classes = ("ant", "bee", "cat")
    each = torch.stack([logits(path, classes=classes) for path in pool])
    torch.testing.assert_close(logits(out, classes=classes), each.mean(0))


def test_recipe_command_line_and_python_give_one_ensemble(
    members: dict[str, Path], tmp_path: Path
) -> None:
    made = fuse("ensemble", members, out=tmp_path / "python", weights=[1, 2, 1])
    words = [*map(str, members.values()), "-p", "weights=1,2,1", "-o", str(tmp_path / "command")]
    assert invoke("fuse", "ensemble", *words).exit_code == 0
    recipe = {
        "version": 1,
        "data": {"toy": {"dataset": "icons", "limit": 2}},
        "models": {name: {"load": str(path)} for name, path in members.items()},
        "fuse": {"all": {"method": "ensemble", "models": list(members), "weights": [1, 2, 1]}},
        "measure": {"models": ["all"], "with": [{"measure": "cost", "data": "toy", "repeats": 3}]},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    done = invoke("run", tmp_path / "recipe.yaml", "-o", tmp_path / "run")
    assert done.exit_code == 0, done.output
    (followed,) = (tmp_path / "run").glob("models/all")
    assert identify(made) == identify(tmp_path / "command") == identify(followed)


def test_an_ensemble_is_measured_by_its_right_answers(
    members: dict[str, Path], tmp_path: Path
) -> None:
    data = make_dataset(24)
    out = fuse("ensemble", members, out=tmp_path / "out")
    (result,) = stockpot.measure({"all": str(out)}, "clean", data=data)
    shares = torch.stack([
        stockpot.load_model(path)(data.images.pixels).softmax(1)  # type: ignore[attr-defined]
        for path in members.values()
    ])  # fmt: skip
    want = (shares.mean(0).argmax(1) == data.labels).double().mean()
    assert result.scores[0].value == pytest.approx(float(want))
    # Its gradient is whole, so that an attack has what it follows.
    pixels = (data.images.pixels[:2].float() / 255).requires_grad_()  # type: ignore[attr-defined]
    stockpot.load_model(out)(pixels)[:, 0].sum().backward()
    assert pixels.grad is not None
    assert (pixels.grad.flatten(1).norm(dim=1) > 0).all()


def test_what_an_ensemble_cannot_be(members: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(BadParameterError, match="not a state dict"):
        fuse("ensemble", members)
    with pytest.raises(BadParameterError, match="at least 0"):
        fuse("ensemble", members, weights=[1, -1, 1], out=tmp_path / "out")
    with pytest.raises(BadParameterError, match="one value per parameter"):
        fuse("ensemble", members, weights={"*bias": [1, 2, 3], "*": [1, 1, 1]}, out=tmp_path / "b")
    out = fuse("ensemble", members, out=tmp_path / "ok")
    with pytest.raises(UserError, match="Copy its folder"):
        stockpot.load_model(out).save(tmp_path / "again")
    record = read_record(out)
    assert record is not None
    assert record.parameters["combine"] == "probabilities"


def test_a_search_makes_ensembles_in_passing(members: dict[str, Path]) -> None:
    data = make_dataset(6)
    pool = Merges(dict(members), None, [data], device=torch.device("cpu"))
    asked = {"combine": "logits", "weights": [0, 1, 0]}
    with torch.no_grad(), pool.merged("ensemble", asked) as (model,):
        got = model(data.images.pixels)  # type: ignore[attr-defined]
    torch.testing.assert_close(got, logits(members["b"]))

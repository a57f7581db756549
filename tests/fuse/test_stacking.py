"""Layers of models one upon the other, without a recipe of another program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import stockpot
from commands import invoke
from dual_encoders import make_clip
from merge_recipes import write_models
from stockpot.checkpoints.record import read_record
from stockpot.errors import BadParameterError
from stockpot.fuse.run import fuse

RECORDED = Path(__file__).parents[1] / "oracles" / "data" / "fuse" / "mergekit_recipes.safetensors"


def test_the_stack_is_mergekits(tmp_path: Path) -> None:
    made = write_models(tmp_path)
    out = tmp_path / "out"
    words = ["passthrough", str(made["A"]), str(made["B"]), "-p", "layers=0-2,2-3", "-o", str(out)]
    assert invoke("fuse", *words).exit_code == 0
    got = load_file(out / "model.safetensors")
    for key, values in load_file(RECORDED).items():
        case, _, name = key.partition("/")
        if case == "stacked" and name != "layers":
            assert torch.equal(got[name], values), name
    assert json.loads((out / "config.json").read_text())["num_hidden_layers"] == 5
    record = read_record(out)
    assert record is not None
    assert record.parameters["layers"] == ["0-2", "2-3"]


def test_a_stacked_network_is_run_layer_after_layer(tmp_path: Path) -> None:
    """Layers 2 to 5 and then 0 to 1 of one ViT, called by hand in that order."""
    out = fuse("passthrough", ["icons-vit"], layers=["2-5", "0-1"], out=tmp_path / "out")
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    plain, got = stockpot.load_model("icons-vit"), stockpot.load_model(out)
    layers = plain.network.model.vit.layers  # type: ignore[union-attr]
    order = [2, 3, 4, 5, 0, 1]
    reordered = torch.nn.ModuleList([layers[number] for number in order])  # type: ignore[index]
    plain.network.model.vit.layers = reordered  # type: ignore[union-attr]
    with torch.no_grad():
        torch.testing.assert_close(got(pixels), plain(pixels))
    assert sum(1 for _ in got.network.model.vit.layers) == 6  # type: ignore[union-attr]


def test_of_a_dual_encoder_the_vision_tower_is_stacked(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip")
    before = json.loads((clip / "config.json").read_text())
    out = fuse("passthrough", [clip], layers=["0", "0-1"], out=tmp_path / "out")
    after = json.loads((out / "config.json").read_text())
    assert after["vision_config"]["num_hidden_layers"] == 3
    assert after["text_config"] == before["text_config"]
    model = stockpot.load_model(out, classes=("ant", "bee"))
    assert torch.isfinite(model(torch.rand(1, 3, 16, 16))).all()


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (["0-6"], "icons-vit has no layer 6 in vit.encoder.layer: expected numbers from 0 to 5"),
        (["3-1"], "expected the first and the last, such as 0-5"),
        ([124], "icons-vit has no layer 124"),  # what YAML makes of 2:4
    ],
)
def test_layers_that_cannot_be(layers: list[str], message: str) -> None:
    with pytest.raises(BadParameterError, match=message):
        fuse("passthrough", ["icons-vit"], layers=layers)


def test_members_that_do_not_fit() -> None:
    for settings, message in (
        ({"layers": ["0-1"]}, "a span for each of 2 members, got 1"),
        ({"base": "icons-vit"}, "leave out the base"),
    ):
        with pytest.raises(BadParameterError, match=message):
            fuse("passthrough", ["icons-vit", "icons-vit-plain"], **settings)
    with pytest.raises(BadParameterError, match="one stack of layers"):
        fuse("passthrough", [{"a": torch.ones(2)}, {"a": torch.ones(2)}])

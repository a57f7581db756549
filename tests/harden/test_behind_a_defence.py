"""Training behind a defence, and what a model says of the corruptions that its training held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stockpot
from commands import invoke
from pico import make_dataset
from stockpot.checkpoints.record import Record, read_record, write_record
from stockpot.defend.clahe import equalise_colour
from stockpot.defend.defended import Defended
from stockpot.errors import BadParameterError
from stockpot.harden.run import harden
from stockpot.harden.trained_on import held_corruptions, trained_on
from stockpot.measure.run import measure
from stockpot.models.load import load_model
from stockpot.report.page import render

SHORT: dict[str, Any] = {"epochs": 1, "batch_size": 40, "augmentations": (), "lr": 0.01}


def kept(folder: Path) -> Record:
    record = read_record(folder)
    assert record is not None
    return record


def test_the_step_is_taken_on_the_changed_pixels(pico_vit: Path, tmp_path: Path) -> None:
    """One step by hand, on pixels that CLAHE has changed."""
    data = make_dataset()
    made = harden(
        "nominal", pico_vit, data, defend={"clahe": {"clip": 4.0}}, out=tmp_path / "m",
        optimizer="sgd", momentum=0.0, weight_decay=0.0, warmup=0.0, schedule="constant", clip=0.0,
        **SHORT,
    )  # fmt: skip
    byhand = load_model(pico_vit)
    (batch,) = data.batches(40)
    pixels = equalise_colour(batch.images.float() / 255, 4.0, 8)
    F.cross_entropy(byhand(pixels), batch.labels).backward()
    saved = dict(load_model(tmp_path / "m").network.named_parameters())
    for name, weight in byhand.network.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(saved[name], weight - 0.01 * weight.grad, msg=name)
    assert isinstance(made, Defended)
    assert kept(tmp_path / "m").parameters["defend"] == {"clahe": {"clip": 4.0, "tiles": 8}}


def test_a_recipe_reaches_it_and_the_model_is_measured_behind_it(
    pico_vit: Path, toy_file: Path, tmp_path: Path
) -> None:
    recipe = {
        "version": 1,
        "device": "cpu",
        "data": {"toy": {"dataset": str(toy_file)}},
        "models": {
            "plain": {"load": str(pico_vit)},
            "equalised": {"load": str(pico_vit), "defend": "clahe"},
        },
        "harden": {
            # From the model's own entry, from its own key, from its parent's record, and not.
            "given": {"method": "nominal", "model": "equalised", "data": "toy"},
            "asked": {"method": "nominal", "model": "plain", "data": "toy", "defend": ["clahe"]},
            "further": {"method": "nominal", "model": "asked", "data": "toy"},
            "without": {"method": "nominal", "model": "equalised", "data": "toy", "defend": "none"},
        },
        "measure": {"with": [{"measure": "clean", "data": "toy"}]},
    }
    for entry in recipe["harden"].values():  # type: ignore[attr-defined]
        entry |= {"epochs": 1, "batch_size": 40}
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    results = {cell.key.model: cell for cell in stockpot.run(path, out=tmp_path / "run").results}
    for name in ("given", "asked", "further"):
        assert "clahe" in kept(tmp_path / "run" / "models" / name).parameters["defend"]
        assert "clahe" in results[name].model.source
        assert "defend" in results[name].key.model_options
    assert "defend" not in kept(tmp_path / "run" / "models" / "without").parameters
    assert "clahe" not in results["without"].model.source
    models = tmp_path / "run" / "models"
    assert kept(models / "given").digest == kept(models / "asked").digest
    assert kept(models / "given").digest != kept(models / "without").digest
    (bare,) = measure(
        {"bare": str(models / "given")}, "clean", data=str(toy_file),
        model_options={"defend": "none"},
    )  # fmt: skip
    assert "clahe" not in bare.model.source


def test_the_command_takes_it_and_mistakes_are_told_before_the_training(
    pico_vit: Path, toy_file: Path, tmp_path: Path
) -> None:
    words = ("harden", "nominal", pico_vit, "--data", toy_file, "-p", "epochs=0", "--device", "cpu")
    done = invoke(*words, "--defend", "clahe", "-o", tmp_path / "m")
    assert done.exit_code == 0, done.output
    assert list(kept(tmp_path / "m").parameters["defend"]) == ["clahe"]
    wrong = invoke(*words, "--defend", "clhae", "-o", tmp_path / "x")
    assert "Did you mean clahe" in wrong.output
    assert not (tmp_path / "x").exists()
    with pytest.raises(BadParameterError, match="ten_crop averages"):
        harden("nominal", pico_vit, make_dataset(), defend="ten_crop", **SHORT)


@pytest.mark.parametrize(
    ("method", "parameters", "expected"),
    [
        ("nominal", {"augmentations": ["flip", "crop"]}, set()),
        ("nominal", {"augmentations": ["randaugment"]}, {"brightness", "contrast", "saturate"}),
        ("augmix", {}, {"contrast"}),
        ("stability", {}, {"gaussian_noise"}),
        ("dynamic_augment", {"generator": "vqgan"}, set()),
        ("dynamic_augment", {"generator": "warp"}, {"elastic_transform"}),
        (
            "dynamic_augment",
            {"generator": "mixture", "generator_params": {"corruptions": ["fog", "snow"]}},
            {"fog", "snow"},
        ),
        (
            "dynamic_augment",
            {"generator": "mixture"},
            {"gaussian_noise", "defocus_blur", "fog", "contrast", "pixelate", "jpeg_compression"},
        ),
    ],
)
def test_what_a_training_holds(method: str, parameters: dict, expected: set[str]) -> None:
    assert set(held_corruptions(method, parameters)) == expected


def test_the_record_says_so_and_the_report_marks_the_model(pico_vit: Path, tmp_path: Path) -> None:
    data = make_dataset()
    harden(
        "dynamic_augment", pico_vit, data, out=tmp_path / "seen", generator="mixture",
        generator_params={"corruptions": "fog"}, **SHORT | {"epochs": 0},
    )  # fmt: skip
    assert kept(tmp_path / "seen").trained_on == {"fog": "generator mixture"}
    # A further training without it, and a soup with it, have seen it all the same.
    harden("nominal", tmp_path / "seen", data, out=tmp_path / "more", **SHORT | {"epochs": 0})
    assert kept(tmp_path / "more").trained_on == {"fog": "generator mixture"}
    stockpot.fuse("average", [tmp_path / "seen", pico_vit], out=tmp_path / "soup")
    assert trained_on(tmp_path / "soup") == {"fog": "generator mixture"}
    # Records of before name no corruptions; they follow from the method and its parameters.
    record = kept(tmp_path / "seen")
    write_record(tmp_path / "seen", record.model_copy(update={"trained_on": {}}))
    assert trained_on(tmp_path / "seen") == {"fog": "generator mixture"}
    models = {"plain": str(pico_vit), "soup": str(tmp_path / "soup")}
    asked = {"baseline": "none", "severities": 1, "corruptions": ["fog", "contrast"]}
    results = measure(models, {"corruption": asked}, data=data)
    note = "trained on corruptions that are measured here: fog (by generator mixture)"
    assert [note in cell.notes for cell in results] == [False, True]
    page = render(results, title="t")
    assert f"soup: {note}" in page
    assert "soup †" in page
    assert "plain †" not in page
    assert page.count("†</span>") == 1  # its one number under fog

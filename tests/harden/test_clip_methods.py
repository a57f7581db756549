"""Lipsum-FT, CaRot and function-space regularisation: their penalties by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from PIL import Image

from pico import make_classifier, make_dataset
from stockpot.errors import UserError
from stockpot.harden.finetune.carot import Calibrated, carot, crookedness, self_gap
from stockpot.harden.finetune.function_space import AsBefore, function_space, output_gap
from stockpot.harden.finetune.lipsum_ft import RandomTexts, energy_gap, lipsum_ft
from stockpot.harden.loop import Step
from stockpot.models.classifier import Classifier
from stockpot.models.fine_tuned import with_trained_head
from towers import dual, two_towers


def step(model: Classifier, number: int = 0) -> Step:
    data = make_dataset(8)
    pixels = torch.cat([batch.images for batch in data.batches(8)]).float() / 255
    return Step(model, pixels, data.labels, torch.Generator().manual_seed(2), number)


def moved(model: Classifier) -> Classifier:
    """The same model, some steps later."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.sin(torch.arange(weight.numel()).view_as(weight)))
    return model


def test_the_change_of_image_text_products_by_hand() -> None:
    features, before = (
        torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        torch.tensor([[0.0, 1.0], [0.0, 1.0]]),
    )
    texts = torch.tensor([[2.0, 0.0], [0.0, 4.0], [1.0, 1.0]])
    # The first image moved by (1, -1): 2, -4 and 0; the second stayed. 20 / (2 x 3), halved.
    assert float(energy_gap(features, before, texts)) == pytest.approx(20 / 6 / 2)


def test_lipsum_begins_without_a_penalty_and_draws_whole_texts() -> None:
    model = dual("clip")
    with_trained_head(model)
    method, plain = lipsum_ft(texts=5, length=4), lipsum_ft(weight=0.0)
    assert isinstance(method, RandomTexts)
    for objective in (method, plain):
        objective.begin(model, make_dataset(8), None)
    torch.testing.assert_close(method(step(model)), plain(step(model)))
    tokens, mask = method.random_texts(torch.Generator().manual_seed(0))
    tokenizer = method.tower.network.tokenizer
    assert tokens.shape == (5, 6)
    assert mask.all()
    assert set(tokens[:, 0].tolist()) == {tokenizer.bos_token_id}
    assert set(tokens[:, -1].tolist()) == {tokenizer.eos_token_id}
    assert not set(tokens[:, 1:-1].flatten().tolist()) & set(tokenizer.all_special_ids)
    moved(model)
    assert (method(step(model)) > plain(step(model))).item()
    names = [name for name, _ in model.named_parameters()]
    assert not [name for name in names if "text" in name]  # the text tower is no part of it


def test_lipsum_needs_a_text_tower() -> None:
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4))
    with pytest.raises(UserError, match="needs the dual encoder itself"):
        lipsum_ft().begin(make_classifier(flat), make_dataset(8), None)


def test_orthogonality_and_self_distillation_by_hand() -> None:
    assert float(crookedness(torch.eye(3)[:2])) == 0  # orthogonal rows
    assert float(crookedness(torch.tensor([[1.0, 1.0], [0.0, 1.0]]))) == 3  # [[1, 1], [1, 0]]
    # One image prefers the first caption by 1/4 : 3/4; the answer is even: both directions.
    advice = torch.tensor([[0.0, math.log(3)], [0.0, math.log(3)]])
    by_image = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert float(self_gap(torch.zeros(2, 2), advice)) == pytest.approx(by_image)
    # A column of equal advice is even among images, so the other direction adds nothing.
    assert float(self_gap(advice, advice)) == pytest.approx(0, abs=1e-6)


def test_carot_s_average_follows_the_model_by_its_decay() -> None:
    model = two_towers()
    method = carot(decay=0.75, every=2)
    assert isinstance(method, Calibrated)
    method.begin(model, make_dataset(8), None)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    # Against itself nothing is to be learned.
    plain = carot(distillation=0.0)(step(model))
    torch.testing.assert_close(method(step(model)), plain, rtol=1e-5, atol=1e-5)
    moved(model)
    method(step(model, 1))
    name = "network.model.visual_projection.weight"
    assert torch.equal(method.average.state_dict()[name], before[name])
    method(step(model, 2))
    expected = 0.75 * before[name] + 0.25 * model.state_dict()[name]
    torch.testing.assert_close(method.average.state_dict()[name], expected)


def test_distances_of_outputs_by_hand() -> None:
    now, before = torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]])
    assert float(output_gap(now, before, "squared")) == 1.0  # (0 + 4) / 2, halved
    even = [0.5 * math.log(0.5 / p) for p in (1 / (1 + math.e**2), 1 / (1 + math.e**-2))]
    assert float(output_gap(now, before, "kl")) == pytest.approx(sum(even))


def test_function_space_compares_on_other_images(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        for index in range(5):
            Image.new("RGB", (16, 16), (index * 40, 0, 90)).save(tmp_path / name / f"{index}.png")
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4))
    model = make_classifier(flat)
    here, there = function_space(), function_space(images=str(tmp_path))
    assert isinstance(there, AsBefore)
    for objective in (here, there):
        objective.begin(model, make_dataset(8), None)
    plain = function_space(weight=0.0)(step(model))
    torch.testing.assert_close(here(step(model)), plain)
    torch.testing.assert_close(there(step(model)), plain)
    with torch.no_grad():
        flat[1].bias.add_(torch.tensor([2.0, 0.0, 0.0, 0.0]))  # moves every answer alike
    plain = function_space(weight=0.0)(step(model))
    for objective in (here, there):
        torch.testing.assert_close(objective(step(model)) - plain, torch.tensor(0.5))
    with torch.no_grad():
        flat[1].weight[0, 512:] += 1.0  # blue only, of which the other images have another mean
    assert not torch.allclose(here(step(model)), there(step(model)), rtol=1e-3)

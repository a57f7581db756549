"""Episodic adaptation: each picture is answered by its own views, and nothing stays of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dual_encoders import make_clip
from pico import make_classifier
from stockpot.defend.adapt.adapting import Adapting
from stockpot.defend.adapt.losses import marginal_entropy
from stockpot.defend.defended import defend
from stockpot.defend.episodic.crops import crops
from stockpot.defend.episodic.tpt import Prompt
from stockpot.defend.episodic.zero import voted
from stockpot.errors import BadParameterError, UserError
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_model
from stockpot.models.text_head import make_head

VOTES = json.loads((Path(__file__).parents[1] / "oracles/data/zero_votes.json").read_text())
CLASSES = ("cat", "dog", "red_car")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    folder = make_clip(tmp_path_factory.mktemp("clip") / "tiny")
    return load_model(folder, classes=CLASSES).eval()


def shown(count: int = 2, side: int = 32) -> Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("row", range(len(VOTES)))
def test_votes_are_those_of_the_authors_program(row: int) -> None:
    # github.com/FarinaMatteo/zero on random logits of ten views, of which four vote; of the first
    # five pictures the votes are level.
    found = voted(torch.tensor(VOTES[row]["logits"]), 0.4)
    assert np.allclose(found.exp().numpy(), VOTES[row]["votes"], atol=1e-3)


def test_views_are_the_picture_and_parts_of_it() -> None:
    picture = shown(1)[0]
    views = crops(picture, 20, torch.Generator().manual_seed(0))
    assert views.shape == (20, 3, 32, 32)
    assert torch.equal(views[0], picture)
    assert float(views.min()) >= float(picture.min()) - 1e-6
    assert float(views.max()) <= float(picture.max()) + 1e-6
    plain = crops(torch.full((3, 9, 9), 0.25), 4, torch.Generator().manual_seed(0))
    assert torch.allclose(plain, torch.full_like(plain, 0.25))


def test_zero_asks_any_model_and_keeps_nothing() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 4))
    model = defend(make_classifier(network), "zero", views=8)
    assert isinstance(model, Adapting)
    first = model(shown())
    model(shown(1))
    model.reset()
    assert torch.equal(model(shown()), first)
    # Two votes of eight views, or three after a tie; only the picture itself where one is asked.
    assert set(first.exp().sum(1).round().tolist()) <= {2.0, 3.0}
    alone = defend(make_classifier(network), "zero", views=1)
    assert torch.equal(alone(shown()).argmax(1), make_classifier(network)(shown()).argmax(1))


def test_marginal_entropy_by_hand() -> None:
    # Shares (.5, .5) and (.9, .1) have the mean (.7, .3).
    logits = torch.tensor([[0.0, 0.0], [np.log(9.0), 0.0]])
    expected = -(0.7 * np.log(0.7) + 0.3 * np.log(0.3))
    assert float(marginal_entropy(logits)) == pytest.approx(expected, abs=1e-6)


def test_prompts_begin_as_words(clip: Classifier) -> None:
    prompt, network = Prompt(clip, "a photo of a"), clip.network
    said = tuple((f"a photo of a {name}.",) for name in ("cat", "dog", "red car"))
    usual = make_head(network.model, network.tokenizer, said)
    assert torch.allclose(prompt.head(prompt.given), usual, atol=1e-6)
    assert not torch.allclose(prompt.head(-prompt.given), usual, atol=1e-3)
    # Nothing hangs on the tower afterwards.
    assert torch.allclose(make_head(network.model, network.tokenizer, said), usual)
    with pytest.raises(BadParameterError, match="context: expected words that can be tuned"):
        Prompt(clip, "")


def test_a_step_of_the_words_makes_the_sure_views_agree(clip: Classifier) -> None:
    views = {"views": 10, "share": 0.5}
    still = defend(clip, "tpt", lr=1e-12, **views)(shown())
    prompt = Prompt(clip, "a photo of a")
    with torch.no_grad():
        usual = prompt.logits(clip.features(shown()), prompt.given)
    assert torch.allclose(still, usual, atol=1e-4)
    tuned = defend(clip, "tpt", lr=0.05, **views)
    assert isinstance(tuned, Adapting)
    found = tuned(shown())
    assert not torch.allclose(found, usual, atol=1e-3)
    # The same view for all: then it is the picture's own entropy that a step lowers.
    own = defend(clip, "tpt", lr=0.01, views=1, share=1.0)(shown(1))
    assert float(marginal_entropy(own)) < float(marginal_entropy(usual[:1]))
    tuned.reset()
    assert torch.equal(tuned(shown()), found)
    assert all(a is not b for a, b in zip(tuned.parameters(), clip.parameters(), strict=True))


def test_tpt_wants_a_dual_encoder() -> None:
    with pytest.raises(UserError, match="tpt: expected a dual encoder such as CLIP"):
        defend(make_classifier(nn.Linear(1, 1)), "tpt")

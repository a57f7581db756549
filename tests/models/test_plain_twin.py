"""Models that transformers has loaded are asked by plain networks over the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stockpot.models.classifier import Classifier
from stockpot.models.forward.making import Making
from stockpot.models.forward.options import Forward
from stockpot.models.forward.passes import Passes
from stockpot.models.forward.plain_twin import plain_twin
from stockpot.models.huggingface import new_huggingface
from stockpot.models.plain import vit
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

CLASSES = ("ant", "bee", "cat")
SIDE = ImageSize(32, 32)
VIT = {
    "image_size": 32, "patch_size": 8, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip
RESNET = {
    "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2], "layer_type": "basic",
}  # fmt: skip
KINDS = {"vit": VIT, "resnet": RESNET, "small_resnet": RESNET}


def new(kind: str, **more: Any) -> Classifier:
    settings = KINDS[kind] | more
    made = new_huggingface(
        kind, classes=CLASSES, preprocess=Preprocess(SIDE, SIDE), seed=0, **settings
    )
    return made.eval()


def pictures(count: int = 20) -> Tensor:
    draws = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, *SIDE), generator=draws, dtype=torch.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_twin_answers_alike_from_the_same_memory(kind: str) -> None:
    model = new(kind)
    twin = plain_twin(model)
    assert twin is not None
    with torch.inference_mode():
        assert torch.equal(twin(pictures()), model(pictures()))
    own = {value.data_ptr() for value in (*model.parameters(), *model.buffers())}
    assert {value.data_ptr() for value in (*twin.parameters(), *twin.buffers())} <= own


def hooked(model: Classifier) -> None:
    model.network.model.register_forward_hook(lambda *_: None)  # type: ignore[union-attr,operator]


def hooked_around(model: Classifier) -> None:
    model.network.register_forward_hook(lambda *_: None)


def other_layer(model: Classifier) -> None:
    class Own(nn.Linear):
        pass

    head = model.network.model.classifier  # type: ignore[union-attr]
    head.__class__ = Own  # type: ignore[union-attr,assignment]


def training(model: Classifier) -> None:
    model.train()


@pytest.mark.parametrize("change", [hooked, hooked_around, other_layer, training])
def test_what_somebody_has_changed_has_none(change: Any) -> None:
    model = new("vit")
    change(model)
    assert plain_twin(model) is None


def test_settings_that_are_not_understood_have_none() -> None:
    assert plain_twin(new("vit", hidden_act="relu")) is None


def test_a_vit_in_memory_is_packed_like_one_in_a_folder() -> None:
    model = new("vit")
    making = Making(model, Forward())
    with torch.inference_mode():
        made = making.made(pictures())
        assert made is not None
        expected = model(pictures())
    assert "packed" in making.steps
    assert torch.allclose(made.answers, expected, atol=1e-5)


def test_a_twin_that_answers_otherwise_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = vit.ViT.forward

    def wrong(self: Any, *given: Any, **named: Any) -> Any:
        answer = forward(self, *given, **named)
        return answer._replace(logits=-answer.logits)

    monkeypatch.setattr(vit.ViT, "forward", wrong)
    model = new("vit")
    run = Passes(model)
    with torch.inference_mode():
        assert torch.allclose(run(pictures()), model(pictures()), atol=1e-5)

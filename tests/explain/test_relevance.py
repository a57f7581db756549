"""Relevance against what it is defined to be."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pico import make_classifier
from stockpot.errors import UserError
from stockpot.explain.attention import Tower, Watch, attending, find_tower
from stockpot.explain.grad_cam import grad_cam, watching_maps
from stockpot.explain.overlay import colour, overlay, sheet
from stockpot.explain.relevance import (
    enlarged,
    explain_forward,
    normalised,
    propagate,
    rollout,
    target_score,
    weighted,
)
from stockpot.explain.run import explain
from towers import FAMILIES

by_family = pytest.mark.parametrize("family", FAMILIES)


def pictures(n: int = 3, size: int = 16) -> torch.Tensor:
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(4))


def test_one_layer_of_attention_worked_out_on_paper() -> None:
    """One head, a class token and two patches, a score linear in the class token's output.

    Row 0 of the attention is (0.2, 0.5, 0.3), the values are 1, 4 and -2, the score is the mixed
    value of the class token: gradient (1, 4, -2) on row 0 and 0 elsewhere. Positive parts of
    gradient x attention: (0.2, 2.0, 0). R = I + that, so the patches have relevance 2.0 and 0.
    """
    attention = torch.tensor([[[[0.2, 0.5, 0.3], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]]])
    attention.requires_grad_()
    values = torch.tensor([1.0, 4.0, -2.0])
    score = (attention[0, 0] @ values)[0]
    tower = Tower(nn.Identity(), "class_token", (1, 1))
    found = rollout(Watch(blocks=[attention]), score, tower, (1, 2), "all")
    torch.testing.assert_close(found, torch.tensor([[[2.0, 0.0]]]))


def test_the_row_equals_the_full_product() -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = [torch.rand(2, 5, 5, generator=generator) for _ in range(3)]
    whole = torch.eye(5).expand(2, 5, 5)
    for block in blocks:
        whole = whole + block @ whole
    start = torch.zeros(2, 5)
    start[:, 0] = 1
    torch.testing.assert_close(propagate(start, blocks), whole[:, 0])


@by_family
def test_watched_attention_is_the_network_s_own(family: str) -> None:
    model = FAMILIES[family]()
    with torch.no_grad():
        plain = model(pictures())
        with attending(model.network) as watch:
            watched = model(pictures())
        after = model(pictures())
    torch.testing.assert_close(watched, plain, atol=1e-5, rtol=1e-5)
    assert torch.equal(plain, after)  # nothing stays behind
    assert len(watch.blocks) == 3
    for weights in [*watch.blocks, *watch.pooling]:
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@by_family
def test_rollout_by_the_definition(family: str) -> None:
    """Every step of the published algorithm, written out with whole matrices."""
    model = FAMILIES[family]()
    found = explain(model, pictures(), layers="all")
    with attending(model.network) as watch:
        logits = model(pictures())
    score = logits.max(dim=1).values.sum()
    maps = [*watch.blocks, *watch.pooling]
    gradients = torch.autograd.grad(score, maps, allow_unused=True)
    whole = torch.eye(watch.blocks[0].shape[-1]).expand(3, -1, -1)
    for attention, gradient in zip(watch.blocks, gradients, strict=False):
        whole = whole + (gradient * attention).clamp(min=0).mean(dim=1) @ whole
    readout = find_tower(model.network).readout
    if readout == "pooling":
        row = (weighted(maps[-1], gradients[-1]) @ whole)[:, 0]
    elif readout == "mean":
        row = (whole - torch.eye(whole.shape[-1]))[:, -16:].mean(dim=1)
    else:
        row = whole[:, : 2 if readout == "two_tokens" else 1].mean(dim=1)
    torch.testing.assert_close(found.flatten(1), row[:, -16:].detach(), atol=1e-5, rtol=1e-4)


@by_family
def test_images_do_not_see_each_other(family: str) -> None:
    model = FAMILIES[family]()
    whole = explain(model, pictures(), torch.tensor([0, 1, 2]))
    alone = explain(model, pictures()[1:2], torch.tensor([1]))
    torch.testing.assert_close(whole[1:2], alone, atol=1e-5, rtol=1e-4)
    parts = explain(model, pictures(), torch.tensor([0, 1, 2]), batch_size=2)
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-4)


def test_the_last_layer_alone_is_its_own_row() -> None:
    model = FAMILIES["vit"]()
    last = explain(model, pictures(), layers="last")
    with attending(model.network) as watch:
        logits = model(pictures())
    (gradient,) = torch.autograd.grad(target_score(logits, None), watch.blocks[-1:])
    expected = weighted(watch.blocks[-1], gradient)[:, 0, 1:]
    torch.testing.assert_close(last.flatten(1), expected.detach())


def test_hidden_patches_have_no_relevance_to_others() -> None:
    model = FAMILIES["vit"]()
    hidden = torch.zeros(3, 16, dtype=torch.bool)
    hidden[:, 5:9] = True
    with attending(model.network, hidden=hidden) as watch:
        model(pictures())
    for weights in watch.blocks:
        assert not weights.detach()[..., 1 + 5 : 1 + 9].any()


def test_grad_cam_of_a_net_worked_out_on_paper() -> None:
    """Score = mean of (2 x map1 - map2): weights 2/4 and -1/4, the map their positive sum."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 1, bias=False)
            self.conv.weight.data = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])[..., None, None]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            maps = self.conv(x)
            mean = maps.mean(dim=(2, 3))
            return torch.stack([2 * mean[:, 0] - mean[:, 1], mean[:, 1]], dim=1)

    net = Net()
    x = torch.tensor([[[[1.0, 0.0], [2.0, 0.0]], [[1.0, 3.0], [8.0, 0.0]], [[0.0] * 2] * 2]])
    with watching_maps(net) as maps:
        score = target_score(net(x), torch.tensor([0]))
    found = grad_cam(maps, score)
    expected = (2 / 4 * x[:, 0] - 1 / 4 * x[:, 1]).clamp(min=0)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["resnet", "convnext"])
def test_grad_cam_reads_the_deepest_map_that_still_says_where(kind: str) -> None:
    from stockpot.models.huggingface import new_huggingface
    from stockpot.models.preprocess import Preprocess
    from stockpot.types import ImageSize

    settings = {
        "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1],
                   "layer_type": "basic"},
        "convnext": {"num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1], "patch_size": 4},
    }[kind]  # fmt: skip
    side = ImageSize(32, 32)
    model = new_huggingface(
        kind, classes=("a", "b", "c", "d"), preprocess=Preprocess(side, side), seed=0, **settings
    )
    found = explain(model, pictures(size=32))
    assert found.shape == (3, 4, 4)
    assert float(found.min()) >= 0
    with pytest.raises(UserError, match="needs a vision transformer"):
        explain(model, pictures(size=32), method="rollout")


def test_a_network_without_maps_is_refused() -> None:
    flat = make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)))
    with pytest.raises(UserError, match="no feature map"):
        explain(flat, pictures())
    with pytest.raises(UserError, match="one target per image"):
        explain(flat, pictures(), torch.zeros(2, dtype=torch.long))


def test_what_cannot_be_explained_is_told() -> None:
    model, shown = FAMILIES["vit"](), pictures()
    wanted = explain(model, shown, torch.tensor([0, 1, 2]))
    assert torch.equal(explain(model, shown, [0, 1, 2]), wanted)  # type: ignore[arg-type]
    assert torch.equal(explain(model, shown.half()), explain(model, shown.half().float()))
    for wrong in (0, [0, 1], [0, 1, 99], [0, 1, -1], [0.0, 1.0, 2.0], "abc"):
        with pytest.raises(UserError, match="one target per image"):
            explain(model, shown, wrong)  # type: ignore[arg-type]
    for images in (shown[0], shown[:0], shown.numpy()):
        with pytest.raises(UserError, match="N x C x H x W"):
            explain(model, images)
    for images in (shown * 3, shown * torch.nan, shown - 1):
        with pytest.raises(UserError, match=r"pixels in \[0, 1\]"):
            explain(model, images)
    with pytest.raises(UserError, match="method: expected one of auto, rollout, grad_cam"):
        explain(model, shown, method="gradcam")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="layers: expected one of all, last"):
        explain(model, shown, layers="first")  # type: ignore[arg-type]


def test_the_logits_still_have_their_graph() -> None:
    model = FAMILIES["vit"]()
    seen = explain_forward(model, pictures(), torch.tensor([0, 1, 2]))
    assert not seen.relevance.requires_grad
    seen.logits.sum().backward()
    assert all(p.grad is not None for p in model.network.model.classifier.parameters())


def test_maps_for_people() -> None:
    cells = torch.tensor([[[0.0, 2.0], [1.0, 4.0]], [[0.0] * 2] * 2])
    torch.testing.assert_close(normalised(cells)[0], cells[0] / 4)
    assert torch.equal(normalised(cells)[1], torch.zeros(2, 2))  # nothing is no evidence
    grown = enlarged(cells, (4, 4))
    assert torch.equal(grown[0, ::2, ::2], cells[0])
    assert torch.equal(grown[0, 1::2, 1::2], cells[0])
    plain = pictures(2, 8)
    shown = overlay(plain, cells, strength=0.5)
    assert shown.shape == plain.shape
    assert 0 <= float(shown.min()) <= float(shown.max()) <= 1
    brightness = colour(torch.linspace(0, 1, 50)[None, None]).mean(dim=1).flatten()
    assert bool((brightness.diff() > 0).all())
    page = sheet([[plain[0], shown[0]]], ["picture", "relevance"])
    assert page.size == (2 * (16 + 6) + 6, 16 + 6 + 22)

"""Layers that do several things at once give what the plain operations give."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pico import make_classifier
from stockpot.models.classifier import evaluating
from stockpot.models.forward import making
from stockpot.models.forward.ends import ConvReLU, is_slow
from stockpot.models.forward.fused import layers, tokens
from stockpot.models.forward.normalised import Normalised
from stockpot.models.forward.options import Forward
from stockpot.models.forward.own_answers import TOLERANCE
from stockpot.models.forward.passes import Passes
from stockpot.models.plain import vit
from stockpot.models.plain.answer import settings
from stockpot.models.preprocess import IMAGENET_MEAN, IMAGENET_STD

TINY = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
        "intermediate_size": 32, "patch_size": 4}  # fmt: skip


def constants() -> list[torch.Tensor]:
    return [torch.tensor(values).view(1, 3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD)]


def pictures(count: int, side: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, side, side), generator=generator).to(torch.uint8)


def tiny_vit(**own: object) -> vit.ViT:
    config = {"model_type": "vit", "id2label": {0: "a", 1: "b", 2: "c", 3: "d"}, **TINY, **own}
    chosen = settings(config, vit.USUAL, vit.FIXED)
    assert chosen is not None
    model = vit.ViT(chosen).eval()
    generator = torch.Generator().manual_seed(0)
    for value in model.parameters():
        value.data = torch.randn(value.shape, generator=generator) / 4
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_level_is_looked_up_as_it_is_computed(dtype: torch.dtype) -> None:
    mean, std = constants()
    pixels, table = pictures(3), layers.level_table(mean, std, dtype)
    computed = ((pixels.float() / 255 - mean) / std).to(dtype)
    found = torch.stack([table[c][pixels[:, c].long()] for c in range(3)], 1)
    assert torch.equal(found, computed)


@pytest.mark.parametrize("own", [{}, {"qkv_bias": False}, {"num_hidden_layers": 1}])
def test_a_tower_of_tokens_is_the_tower(own: dict[str, object]) -> None:
    plain = tiny_vit(**own)
    quick = copy.deepcopy(plain)
    assert tokens.has_tower(quick)
    assert tokens.with_tokens(quick)
    assert not tokens.has_tower(quick)
    assert list(quick.state_dict()) == list(plain.state_dict())
    pixels = pictures(5).float() / 255
    with torch.inference_mode():
        torch.testing.assert_close(quick(pixels).logits, plain(pixels).logits)


def test_a_joined_product_follows_its_layers() -> None:
    plain, other = tiny_vit(), tiny_vit()
    for value in other.parameters():
        value.data.mul_(0.5)
    quick, pixels = copy.deepcopy(plain), pictures(5).float() / 255
    tokens.with_tokens(quick)
    with torch.inference_mode():
        quick(pixels)
        for mine, theirs in zip(quick.parameters(), other.parameters(), strict=True):
            mine.copy_(theirs)
        torch.testing.assert_close(quick(pixels).logits, other(pixels).logits)
        quick, other = quick.double(), other.double()
        torch.testing.assert_close(quick(pixels.double()).logits, other(pixels.double()).logits)


def test_a_tower_with_something_else_in_it_is_left() -> None:
    for change in ("attention", "mlp", "config"):
        model = tiny_vit()
        layer = model.vit.layers[1]
        if change == "attention":
            layer.attention = nn.Identity()
        elif change == "mlp":
            layer.mlp = nn.Identity()
        else:
            model.vit.config._attn_implementation = "eager"
        assert not tokens.has_tower(model)
        assert not tokens.with_tokens(model)


class Logits(nn.Module):
    def __init__(self, model: vit.ViT) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.model(pixels).logits


def test_passes_take_the_tower_below_full_precision_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "Captured", lambda run, pixels: run)
    monkeypatch.setattr(making, "_records", lambda pixels: True)
    model, images = make_classifier(Logits(tiny_vit()), size=16).eval(), pictures(6)
    with evaluating(model):
        meant = model(images)
        for precision, fused in (("bf16", "triton"), ("tf32", "triton"), ("fp32", False)):
            run = Passes(model, Forward(precision))  # type: ignore[arg-type]
            off = (run(images) - meant).abs().amax() / meant.abs().amax()
            assert off < TOLERANCE[precision]
            assert run.facts.fused == fused


def test_only_plain_pools_are_replaced() -> None:
    model = nn.Sequential(
        nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, return_indices=True), nn.MaxPool2d(3, ceil_mode=True)
    )
    layers.with_pools(model)
    assert [type(part) is layers.Pool for part in model] == [True, False, False]
    maps = torch.randn(2, 5, 9, 7).contiguous(memory_format=torch.channels_last)
    assert torch.equal(model[0](maps), F.max_pool2d(maps, 3, 2, 1))


def test_a_kernel_that_fails_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def kernel() -> str:
        asked.append(1)
        raise RuntimeError("no compiler")

    monkeypatch.setattr(layers, "_has_triton", lambda: True)
    monkeypatch.setattr(layers, "_failed", set())
    assert [layers.by_kernel_or("x", kernel, lambda: "plain") for _ in range(2)] == ["plain"] * 2
    assert asked == [1]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_are_the_plain_operations(dtype: torch.dtype) -> None:
    from stockpot.models.forward.fused import kernels

    mean, std = (values.cuda() for values in constants())
    pixels = pictures(3, 37).cuda()
    table = layers.level_table(mean, std, dtype)
    computed = ((pixels.float() / 255 - mean) / std).to(dtype)
    assert torch.equal(kernels.look_up(pixels, table), computed)
    wide = kernels.enter(pixels, table, 8)
    assert torch.equal(wide[:, :3], computed)
    assert not wide[:, 3:].any()
    even = pixels[:, :, :36, :36].contiguous()
    parts = kernels.enter_halved(even, table, 16, 2, 1)
    assert torch.equal(parts, halved(computed[:, :, :36, :36]))
    maps = torch.randn(2, 24, 13, 11).cuda().to(dtype).contiguous(memory_format=torch.channels_last)
    maps[0, 1, 3, 4] = torch.nan
    for window in ((3, 2, 1), (2, 2, 0), (3, 1, 1)):
        found, meant = kernels.pool(maps, *window), F.max_pool2d(maps, *window)
        assert torch.equal(found.float().nan_to_num(9e9), meant.float().nan_to_num(9e9))
    change, rows = torch.randn(2, 4, 5, 24).cuda().to(dtype)
    norm = nn.LayerNorm(24).cuda().to(dtype)
    nn.init.normal_(norm.weight)
    total, read = kernels.add_norm(change, rows, norm.weight, norm.bias, norm.eps)
    assert torch.equal(total, change + rows)
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(read, norm(total), **close)


def halved(pixels: torch.Tensor) -> torch.Tensor:
    """Pictures as `kernels.enter_halved` lays them out, by plain operations."""
    count, colours, height, width = pixels.shape
    parts = pixels.reshape(count, colours, height // 2, 2, width // 2, 2)
    parts = parts.permute(0, 3, 5, 1, 2, 4).reshape(count, 4 * colours, height // 2, width // 2)
    return F.pad(parts, (2, 1, 2, 1, 0, 4))


def test_a_convolution_over_halved_pictures_is_the_one_over_whole_ones() -> None:
    layer = nn.Conv2d(3, 5, 7, stride=2, padding=3).double()
    assert layers.can_halve(layer)
    pixels = torch.randn(2, 3, 12, 18).double()
    found = F.conv2d(halved(pixels), layers.halved_weight(layer.weight), layer.bias)
    torch.testing.assert_close(found, layer(pixels))
    assert not layers.can_halve(nn.Conv2d(3, 5, 7, stride=2, padding=2))
    assert not layers.can_halve(nn.Conv2d(3, 5, 3, stride=2, padding=1))


def test_a_joined_layer_reads_halved_pictures() -> None:
    layer = ConvReLU(3, 5, 7, stride=2, padding=3).requires_grad_(False)
    pixels = torch.randn(2, 3, 12, 18)
    shown = torch.zeros(1).expand(pixels.shape)
    shown.whole, shown.entry = halved(pixels), "halved"  # type: ignore[attr-defined]
    torch.testing.assert_close(layer(shown), layer(pixels))


@pytest.mark.gpu
def test_the_first_convolution_reads_what_was_filled_up() -> None:
    model = make_classifier(nn.Sequential(ConvReLU(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                          nn.Linear(8, 4)), size=16)  # fmt: skip
    model = model.requires_grad_(False).eval().cuda().to(memory_format=torch.channels_last)
    module, images = Normalised(model, torch.float32), pictures(4).cuda()
    assert module.entry == "wide"
    with torch.inference_mode():
        seen = module._seen(images)
        assert torch.equal(seen.whole[:, :3], seen)
        torch.testing.assert_close(module(images), model(images), rtol=1e-3, atol=1e-3)
    assert not layers._failed


@pytest.mark.gpu
def test_a_product_that_bends_is_the_product_and_what_bends_it() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = (2 * torch.randn(3, 50, 64, generator=generator)).cuda().bfloat16()
    own = tokens.TwoLayers(vit.TwoLayers(SimpleNamespace(hidden_size=64, intermediate_size=96)))
    own = own.cuda().bfloat16()
    with torch.inference_mode():
        exact = F.gelu(F.linear(rows.double(), own.fc1.weight.double(), own.fc1.bias.double()))
        bent = own._bent(rows)
        assert "gelu" not in layers._failed
        assert (bent.double() - exact).abs().amax() < 5e-4 + 2**-8 * exact.abs().amax()


PLAIN = (1, 1), (0, 0), (1, 1), 1


def lasting(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    values = torch.randn(*shape, generator=generator)
    return values.to(dtype).contiguous(memory_format=torch.channels_last)


def test_convolutions_that_are_ours_are_told_by_their_shape() -> None:
    stem, maps = lasting(64, 16, 4, 4), lasting(2, 16, 13, 11)
    wide, inner, rest = lasting(256, 64, 1, 1), lasting(2, 64, 9, 7), lasting(2, 256, 9, 7)
    assert is_slow(maps, stem, None, PLAIN)
    assert is_slow(inner, wide, rest, PLAIN)
    assert not is_slow(inner, wide, None, PLAIN)
    assert not is_slow(maps.float(), stem.float(), None, PLAIN)
    assert not is_slow(maps, stem, None, ((2, 2), *PLAIN[1:]))
    assert not is_slow(inner.contiguous(), wide, rest, PLAIN)
    assert not is_slow(lasting(2, 128, 9, 7), lasting(512, 128, 1, 1), rest, PLAIN)


@pytest.mark.gpu
def test_convolutions_that_are_ours_are_the_plain_ones() -> None:
    from stockpot.models.forward.fused import convolutions

    maps, weight, bias = (
        lasting(2, 16, 13, 11).cuda(),
        lasting(64, 16, 4, 4).cuda(),
        torch.randn(64),
    )
    maps[0, 1, 3, 4] = torch.nan
    found = convolutions.windows(maps, weight, bias.cuda().bfloat16())
    meant = F.conv2d(maps.double(), weight.double(), bias.cuda().bfloat16().double()).relu()
    assert torch.equal(found.isnan(), meant.isnan())
    off = (found.double() - meant).nan_to_num(0.0).abs().amax() / meant.nan_to_num(0.0).amax()
    assert off < 2**-8
    maps, weight, bias = (
        lasting(3, 64, 9, 7).cuda(),
        lasting(256, 64, 1, 1).cuda(),
        torch.randn(256),
    )
    rest = lasting(3, 256, 9, 7).cuda()
    found = convolutions.added(maps, weight, bias.cuda().bfloat16(), rest)
    meant = F.conv2d(maps.double(), weight.double(), bias.cuda().bfloat16().double())
    meant = (meant + rest.double()).relu()
    assert (found.double() - meant).abs().amax() / meant.amax() < 2**-8

"""Residual networks with packed filters answer as their folded copies do."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from stockpot.models.forward.apart import keeps_nothing
from stockpot.models.forward.packed_convolutions import (
    PackedConvolution,
    PackedResidual,
    can_pack_convolutions,
    pack_convolutions,
)


class Block(nn.Module):
    """As residual networks have it, on two layers."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.shortcut = nn.Conv2d(before, after, 1, stride) if before != after else nn.Identity()
        self.layer = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1), nn.ReLU(), nn.Conv2d(after, after, 3, 1, 1)
        )
        self.activation = nn.ReLU()

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.activation(self.layer(maps) + self.shortcut(maps))
        return result


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, 1, 1), nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2)]
    made = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5)).eval()
    made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return made


pixels = torch.rand(9, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_packed_blocks_answer_as_before_in_batches_of_any_size() -> None:
    plain = network()
    if not can_pack_convolutions(plain):
        pytest.skip("no such library here")
    packed = deepcopy(plain)
    assert pack_convolutions(packed, pixels[:4])
    kinds = [type(module) for module in packed.modules()]
    assert kinds.count(PackedResidual) == 2
    assert kinds.count(PackedConvolution) == 6
    for count in (1, 4, 9):
        for images in (
            pixels[:count],
            pixels[:count].contiguous(memory_format=torch.channels_last),
        ):
            kept = images.clone()
            torch.testing.assert_close(packed(images), plain(images), rtol=1e-5, atol=1e-6)
            assert torch.equal(images, kept)
    assert torch.equal(packed(pixels), packed(pixels))


@torch.no_grad()
def test_a_block_that_is_the_identity_around_leaves_what_it_reads() -> None:
    plain = network()
    if not can_pack_convolutions(plain):
        pytest.skip("no such library here")
    packed = deepcopy(plain)
    pack_convolutions(packed, pixels[:4])
    maps = torch.randn(3, 16, 16, 16).contiguous(memory_format=torch.channels_last)
    kept = maps.clone()
    packed[2](maps)
    assert torch.equal(maps, kept)


def test_nothing_is_packed_where_somebody_listens_or_the_network_trains() -> None:
    heard = network()
    heard[0].register_forward_hook(lambda *_: None)
    assert not can_pack_convolutions(heard)
    assert not can_pack_convolutions(network().train())
    assert not can_pack_convolutions(network().double())
    assert not can_pack_convolutions(nn.Sequential(nn.Conv2d(3, 4, 1)).eval())


def test_two_threads_may_ask_packed_filters() -> None:
    like = nn.Conv2d(3, 16, 3).eval()
    assert keeps_nothing(PackedConvolution(like, pixels.shape, cuts=True).eval())

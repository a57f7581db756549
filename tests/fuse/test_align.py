"""Alignment: permuting a network changes nothing it computes, and is undone by matching."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

from stockpot.errors import BadCheckpointError
from stockpot.fuse.align import align_members, loss_barrier
from stockpot.fuse.permutation.families import permutation_spec
from stockpot.fuse.permutation.match import permuted
from stockpot.fuse.run import fuse


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3)
    )


def vit() -> nn.Module:
    return ViTForImageClassification(
        ViTConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
            image_size=8, patch_size=4, num_labels=3,
        )
    )  # fmt: skip


def clip() -> nn.Module:
    return CLIPVisionModel(
        CLIPVisionConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
            image_size=8, patch_size=4,
        )
    )  # fmt: skip


def resnet(kind: str) -> nn.Module:
    return ResNetForImageClassification(
        ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type=kind, num_labels=3
        )
    )


class TorchStyle(nn.Module):
    """A residual network with the names of torchvision."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(TorchBlock(8, 8), TorchBlock(8, 8))
        self.layer2 = nn.Sequential(TorchBlock(8, 12))
        self.fc = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(self.bn1(self.conv1(x)).relu()))
        return self.fc(x.mean(dim=(2, 3)))


class TorchBlock(nn.Module):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        if width != out:
            self.downsample = nn.Sequential(
                nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (self.downsample(x) if hasattr(self, "downsample") else x)).relu()


FAMILIES = {
    "mlp": (mlp, None),
    "vit": (vit, 4),
    "clip": (clip, 4),
    "resnet-basic": (lambda: resnet("basic"), None),
    "resnet-bottleneck": (lambda: resnet("bottleneck"), None),
    "torchvision": (TorchStyle, None),
}
every_family = pytest.mark.parametrize("family", FAMILIES)


def randomised(model: nn.Module, seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            noise = torch.randn(value.shape, generator=generator)
            state[name] = noise.abs() + 0.5 if "running_var" in name else noise * 0.4
        else:
            state[name] = value
    model.load_state_dict(state)
    return model.eval()


def output(model: nn.Module, state: dict[str, Tensor], family: str) -> Tensor:
    model.load_state_dict(state)
    generator = torch.Generator().manual_seed(0)
    shape = (4, 5) if family == "mlp" else (4, 3, 8, 8)
    with torch.no_grad():
        result = model(torch.randn(shape, generator=generator))
    return result if isinstance(result, Tensor) else result[0]


def shuffled(state: dict[str, Tensor], heads: int | None, seed: int) -> dict[str, Tensor]:
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    spec = permutation_spec(shapes, heads=heads)
    generator = torch.Generator().manual_seed(seed)
    chosen = {g: torch.randperm(size, generator=generator) for g, size in spec.sizes.items()}
    assert len(chosen) >= 2
    return permuted(state, chosen, spec)


@every_family
def test_a_permutation_changes_no_output(family: str) -> None:
    make, heads = FAMILIES[family]
    model = randomised(make(), 1)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    moved = shuffled(state, heads, 3)
    assert any(not torch.equal(moved[name], state[name]) for name in state)
    want, got = output(model, state, family), output(model, moved, family)
    if got.ndim == 3:  # tokens of a bare encoder come out in the permuted stream
        want, got = want.sort(dim=-1).values, got.sort(dim=-1).values
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@every_family
@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_matching_undoes_a_permutation(family: str, noise: float) -> None:
    """Of the network itself, and of one that was trained a little further."""
    make, heads = FAMILIES[family]
    state = dict(randomised(make(), 2).state_dict())
    meant = {name: value + noise if noise else value for name, value in state.items()}
    moved = shuffled(meant, heads, 5)
    aligned = align_members({"a": state, "b": moved}, heads=heads)
    for name in state:
        torch.testing.assert_close(aligned["b"].state[name], meant[name], rtol=0, atol=0)


def test_every_shuffled_copy_comes_back() -> None:
    """Exchanging the units of one layer at a time alone ends elsewhere for one in twelve."""
    for seed in range(14):
        state = dict(randomised(mlp(), seed).state_dict())
        aligned = align_members([state, shuffled(state, None, 100 + seed)])
        (_, found) = (source.state for source in aligned.values())
        assert all(torch.equal(found[name], state[name]) for name in state), seed


def test_alignment_lowers_the_barrier() -> None:
    model = randomised(mlp(), 4)
    first = {name: value.clone() for name, value in model.state_dict().items()}
    second = shuffled(first, None, 6)
    target = output(model, first, "mlp")

    def loss(state: dict[str, Tensor]) -> float:
        return float((output(model, state, "mlp") - target).square().mean())

    before = loss_barrier(first, second, loss)
    aligned = align_members([first, second])
    after = loss_barrier(*(source.state for source in aligned.values()), loss)
    assert before.height > 0.01
    assert after.height == pytest.approx(0, abs=1e-9)
    fused = fuse("average", aligned)
    assert loss(fused) == pytest.approx(0, abs=1e-9)


def test_the_barrier_of_a_parabola_is_known() -> None:
    barrier = loss_barrier(
        {"x": torch.tensor(-1.0)},
        {"x": torch.tensor(1.0)},
        lambda state: 1 - float(state["x"]) ** 2,
        points=5,
    )
    assert barrier.alphas == (0, 0.25, 0.5, 0.75, 1)
    assert barrier.height == pytest.approx(1.0)


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(BadCheckpointError, match="no permutation is known"):
        align_members([{"x": torch.zeros(2, 2, 2, 2)}, {"x": torch.zeros(2, 2, 2, 2)}])


def test_aligned_folders_fuse_into_a_folder(tmp_path: Path) -> None:
    paths = []
    for seed in range(2):
        randomised(vit(), seed).save_pretrained(tmp_path / str(seed))
        paths.append(tmp_path / str(seed))
    aligned = align_members({path.name: path for path in paths})
    out = fuse("average", aligned, out=tmp_path / "out")
    assert ViTForImageClassification.from_pretrained(out).config.num_labels == 3
    assert "model.safetensors" in (out / "README.md").read_text()


@pytest.mark.parametrize("depth", [2, 11])
def test_a_file_in_the_order_of_the_alphabet_is_aligned_like_the_module(
    depth: int, tmp_path: Path
) -> None:
    """There `0.bias` stands before `0.weight`, and layer 10 before layer 2."""
    sizes = [5, *[16] * depth]
    networks = [
        randomised(nn.Sequential(*(nn.Linear(size, 16) for size in sizes)), seed) for seed in (0, 1)
    ]
    paths = []
    for number, network in enumerate(networks):
        paths.append(tmp_path / f"{number}.safetensors")
        save_file(network.state_dict(), paths[-1])
    _, aligned = align_members(paths).values()
    pixels = torch.randn(9, 5, generator=torch.Generator().manual_seed(4))
    want = networks[1](pixels)
    networks[1].load_state_dict(aligned.state)
    torch.testing.assert_close(networks[1](pixels), want, rtol=1e-3, atol=1e-3)


def test_aligned_members_are_not_taken_for_those_of_their_files(tmp_path: Path) -> None:
    paths = []
    for seed in range(2):
        save_file(randomised(mlp(), seed).state_dict(), tmp_path / f"{seed}.safetensors")
        paths.append(tmp_path / f"{seed}.safetensors")
    fuse("average", paths, out=tmp_path / "out")
    with pytest.raises(BadCheckpointError, match="made otherwise"):
        fuse("average", align_members(paths), out=tmp_path / "out")

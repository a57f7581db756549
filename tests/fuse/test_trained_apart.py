"""ZipIt! and PLeaS: what they promise of networks that were trained apart, and what they refuse."""

from __future__ import annotations

import copy
import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

import stockpot
from commands import invoke
from pico import CLASSES, make_classifier, make_dataset
from processes import Running
from residual import residual_model
from stockpot.errors import BadCheckpointError, BadParameterError, UserError
from stockpot.fuse.permutation.families import permutation_spec
from stockpot.fuse.permutation.match import permuted
from stockpot.fuse.permutation.pairing import paired
from stockpot.fuse.run import fuse
from stockpot.models.classifier import Classifier
from stockpot.models.new import new_model
from stockpot.pool.batch_norm import recompute_batch_norm

DATA = make_dataset(48, 8)
PIXELS = DATA.images.pixels.float() / 255
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "zipit": ("zipit", {}),
    "across": ("zipit", {"alpha": 0.0, "beta": 0.0}),
    "by weights": ("pleas", {}),
    "by activations": ("pleas", {"match": "activations"}),
}


class Plain(nn.Module):
    """Two hidden layers on the means of rows."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        sizes = (24, 10, 7, 4)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        for layer in self.layers:
            layer.weight.data = torch.randn(layer.weight.shape, generator=draw) / 2
            layer.bias.data = torch.randn(layer.bias.shape, generator=draw)

    def forward(self, pixels: Tensor) -> Tensor:
        values = 4 * (pixels.mean(dim=3).flatten(1) - 0.5)
        for layer in self.layers[:-1]:
            values = layer(values).tanh()
        return self.layers[-1](values)


class Transformer(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.model = ViTForImageClassification(
            ViTConfig(
                hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=24,
                image_size=8, patch_size=4, num_labels=4,
            )
        )  # fmt: skip
        draw = torch.Generator().manual_seed(seed)
        for value in self.model.parameters():
            value.data = torch.randn(value.shape, generator=draw) * 0.4

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model(pixels).logits


@cache
def make(family: str, seed: int) -> Classifier:
    if family == "residual":
        return residual_model(seed, PIXELS)
    network = Transformer(seed) if family == "vit" else Plain(seed)
    return make_classifier(network.eval(), size=8)


def shuffled(model: Classifier, seed: int) -> Classifier:
    moved = copy.deepcopy(model)
    network = getattr(moved.network, "model", moved.network)
    state = dict(network.state_dict())
    heads = 4 if isinstance(network, ViTForImageClassification) else None
    spec = permutation_spec({k: tuple(v.shape) for k, v in state.items()}, heads=heads)
    draw = torch.Generator().manual_seed(seed)
    moves = {group: torch.randperm(size, generator=draw) for group, size in spec.sizes.items()}
    network.load_state_dict(permuted(state, moves, spec))
    return moved


def answers(model: Classifier, state: dict[str, Tensor]) -> Tensor:
    filled = copy.deepcopy(model)
    getattr(filled.network, "model", filled.network).load_state_dict(state)
    with torch.no_grad():
        return filled(PIXELS)


@pytest.mark.parametrize(
    ("family", "way"),
    [*((f, w) for f in ("mlp", "residual") for w in METHODS), ("vit", "by weights")],
)
def test_a_network_and_its_permuted_copy_give_the_network(family: str, way: str) -> None:
    first = make(family, 1)
    second = shuffled(first, 3)
    method, params = METHODS[way]
    got = fuse(method, [first, second], tasks=DATA, repair=False, **params)
    with torch.no_grad():
        want = first(PIXELS)
    torch.testing.assert_close(answers(first, got), want, rtol=1e-3, atol=1e-4)
    if way == "by weights":  # the plain mean of the two is another network
        mean = fuse("average", [first, second])
        assert (answers(first, mean) - want).abs().max() > 0.1


@pytest.mark.parametrize("way", ["zipit", "by weights"])
def test_equal_members_come_back_bit_for_bit(way: str) -> None:
    model = make("residual", 1)
    method, params = METHODS[way]
    got = fuse(method, [model, model, model], tasks=DATA, **params)
    want = model.network.state_dict()
    assert got.keys() == want.keys()
    assert all(torch.equal(got[name], value) for name, value in want.items())


def test_a_joined_unit_is_the_mean_of_what_it_is_made_of() -> None:
    """Of the first layer: what it makes for any input are means of rows of both networks."""
    first, second = make("mlp", 1), make("mlp", 2)
    got = fuse("zipit", [first, second], tasks=DATA, alpha=0.1, beta=1.0)
    rows = torch.cat([model.network.layers[0].weight for model in (first, second)]).detach()
    shares = torch.linalg.lstsq(rows.T.double(), got["layers.0.weight"].T.double()).solution.T
    torch.testing.assert_close(shares @ rows.double(), got["layers.0.weight"].double())
    counts = (shares > 1e-6).sum(dim=1)
    assert int(counts.sum()) == len(rows)  # every unit goes to one place
    want = torch.where(shares > 1e-6, 1 / counts[:, None].double(), 0.0)
    torch.testing.assert_close(shares, want, atol=1e-5, rtol=0)
    assert torch.equal(
        got["layers.2.bias"], (first.network.layers[2].bias + second.network.layers[2].bias) / 2
    )


ALIKE = torch.tensor(
    [
        [1.0, 0.9, 0.1, 0.3],
        [0.9, 1.0, 0.2, 0.1],
        [0.1, 0.2, 1.0, 0.5],
        [0.3, 0.1, 0.5, 1.0],
    ]
)


@pytest.mark.parametrize(
    ("alpha", "beta", "want"),
    [
        (1.0, 1.0, [[0, 1], [2, 3]]),  # both within: the most alike of all
        (1.0, 0.0, [[0, 3], [1, 2]]),  # across alone
        (0.0, 0.0, [[0, 3], [1, 2]]),
    ],
)
def test_pairs_are_the_most_alike_that_may_join(
    alpha: float, beta: float, want: list[list[int]]
) -> None:
    goes = paired(ALIKE, 2, alpha=alpha, beta=beta)
    assert [column.nonzero().reshape(-1).tolist() for column in goes.T] == want


def test_what_was_joined_joins_again_only_as_alpha_says() -> None:
    """Units 0, 1 and 2 are nearly one; unit 3 is like none."""
    alike = torch.full((4, 4), 0.05)
    alike[:3, :3] = 0.9
    three = paired(alike, 2, alpha=1.0, beta=1.0)
    two = paired(alike, 2, alpha=0.01, beta=1.0)
    assert sorted(three.sum(dim=0).tolist()) == [1, 3]
    assert sorted(two.sum(dim=0).tolist()) == [2, 2]


@pytest.mark.parametrize("method", ["zipit", "pleas"])
def test_statistics_are_estimated_anew_on_the_images(method: str, tmp_path: Path) -> None:
    members = [make("residual", seed) for seed in (1, 2)]
    saved = str(tmp_path / "learned")
    got = fuse(method, members, tasks=DATA, batch_size=16, save=saved)
    again = copy.deepcopy(members[0])
    again.network.load_state_dict(got)
    draw = torch.randperm(48, generator=torch.Generator().manual_seed(0))
    recompute_batch_norm(again.network, PIXELS[draw].split(16))
    for name, value in again.network.state_dict().items():
        if "running" in name:
            torch.testing.assert_close(got[name], value, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(
        got["bn1.running_mean"], fuse("average", members)["bn1.running_mean"], atol=1e-3
    )
    kept = fuse(method, members, load=saved)
    assert all(torch.equal(kept[name], value) for name, value in got.items())
    assert load_file(f"{saved}.safetensors").keys() == {k for k in got if "num_batches" not in k}


@pytest.mark.parametrize("method", ["zipit", "pleas"])
def test_from_folder_to_folder_on_the_command_line(method: str, tmp_path: Path) -> None:
    import numpy

    data = make_dataset(24, 8, CLASSES)
    for seed in (0, 1):
        new_model(
            "small_resnet", data, tmp_path / f"m{seed}", size=8, seed=seed, embedding_size=6,
            hidden_sizes=[6, 8], depths=[1, 1], layer_type="basic",
        )  # fmt: skip
    pictures = tmp_path / "pictures.npz"
    numpy.savez(pictures, images=data.images.pixels.permute(0, 2, 3, 1).numpy(),
                labels=data.labels.numpy(), classes=numpy.array(CLASSES))  # fmt: skip
    out = tmp_path / "fused"
    members = [tmp_path / "m0", tmp_path / "m1"]
    none = invoke("fuse", method, *members, "-o", out)
    assert none.exit_code == 1
    assert f"{method}: expected unlabelled images to look at the units with, got none" in (
        none.output
    )
    assert not out.exists()
    done = invoke("fuse", method, *members, "--task", pictures, "-o", out)
    assert done.exit_code == 0, done.output
    model = stockpot.load_model(out)
    assert model.classes == CLASSES
    assert bool(torch.isfinite(model(PIXELS)).all())


class PreActivation(nn.Module):
    """Named as a residual network is, but its norms stand before its convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.layer1 = nn.Sequential(nn.Module())
        block = self.layer1[0]
        block.bn1, block.conv1 = nn.BatchNorm2d(6), nn.Conv2d(6, 6, 3, padding=1)
        block.bn2, block.conv2 = nn.BatchNorm2d(6), nn.Conv2d(6, 6, 3, padding=1)
        self.fc = nn.Linear(6, 4)
        draw = torch.Generator().manual_seed(0)
        for value in self.parameters():
            value.data = torch.randn(value.shape, generator=draw) * 0.5

    def forward(self, pixels: Tensor) -> Tensor:
        maps, block = self.conv1(pixels), self.layer1[0]
        change = block.conv1(block.bn1(maps).relu())
        return self.fc((maps + block.conv2(block.bn2(change).relu())).mean(dim=(2, 3)))


def test_what_cannot_be_done_is_told_in_one_line(tmp_path: Path) -> None:
    plain = [make("residual", seed) for seed in (1, 2)]
    vits = [make("vit", seed) for seed in (1, 2)]
    strange = [make_classifier(PreActivation().eval(), size=8) for _ in range(2)]
    strange[1].network.fc.bias.data += 1
    lora = tmp_path / "lora"
    lora.mkdir()
    (lora / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 1}')
    (lora / "adapter_model.safetensors").write_bytes(b"")
    cases: list[tuple[str, Any, dict[str, Any], type[UserError], str]] = [
        ("zipit", vits, {}, BadCheckpointError, "joins units of ResNets and plain MLPs; got a"),
        ("pleas", vits, {"match": "activations"}, BadCheckpointError, "got a transformer"),
        ("zipit", plain, {"tasks": None}, BadParameterError, "expected unlabelled images"),
        ("pleas", plain, {"head": "first"}, BadParameterError, "expected every tensor to be fused"),
        ("zipit", plain, {"exclude": ("conv1*",)}, BadParameterError, "among them network.conv1"),
        ("zipit", plain, {"base": plain[0]}, BadParameterError, "leave out the base"),
        ("zipit", plain[:1], {}, BadParameterError, "expected at least 2 models, got 1"),
        ("pleas", [lora, lora], {"base": plain[0]}, BadParameterError, "no units of its own"),
        ("pleas", strange, {}, BadCheckpointError, "no permutation is known"),
        ("zipit", strange, {"alpha": 2}, UserError, "alpha"),
    ]
    for method, members, options, error, told in cases:
        with pytest.raises(error) as raised:
            fuse(method, members, **{"tasks": DATA, **options})
        assert told in raised.value.message, raised.value.message
        assert "\n" not in raised.value.message


def _killed(method: str, folder: str, moment: int | str) -> None:
    """Fuse until some images were looked at, or something was done to a file, and end at once."""
    looks = 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def told(what: str, done: int, total: int) -> None:
        nonlocal looks
        looks += 1
        if looks == moment:
            die()

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        if event == moment and str(Path(folder) / "out") in map(str, arguments):
            die()

    sys.addaudithook(heard)
    _apart(method, Path(folder), "out", told)


def _apart(
    method: str, folder: Path, out: str, told: Callable[[str, int, int], None]
) -> dict[str, Tensor]:
    members = [folder / "m0", folder / "m1"]
    made = fuse(
        method, members, tasks=make_dataset(24, 8, CLASSES), batch_size=6, out=folder / out,
        progress=told,
    )  # fmt: skip
    return load_file(made / "model.safetensors")


@pytest.mark.parametrize("method", ["zipit", "pleas"])
def test_killed_anywhere_it_comes_to_the_same_bits(method: str, tmp_path: Path) -> None:
    """At the first images, at the last, and when all is written but not in its place: the next
    run begins anew, and none leaves anything behind."""
    for seed in (0, 1):
        new_model(
            "small_resnet", make_dataset(24, 8, CLASSES), tmp_path / f"m{seed}", size=8, seed=seed,
            embedding_size=6, hidden_sizes=[6, 8], depths=[1, 1], layer_type="basic",
        )  # fmt: skip
    looks: list[str] = []
    whole = _apart(method, tmp_path, "whole", lambda what, done, total: looks.append(what))
    assert len(looks) >= 4
    for moment in (1, len(looks), "os.rename"):
        ended = Running(_killed, method, str(tmp_path), moment).wait()
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert not (tmp_path / "out").exists()
    again: list[str] = []
    found = _apart(method, tmp_path, "out", lambda what, done, total: again.append(what))
    assert again == looks
    assert found.keys() == whole.keys()
    for name, value in whole.items():
        assert torch.equal(found[name], value), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m0", "m1", "out", "whole"]

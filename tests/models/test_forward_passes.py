"""Forward passes: the model's own answers, however they are made, and within memory."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import nn

from dual_encoders import make_clip
from pico import CLASSES, make_classifier
from stockpot.errors import BadParameterError
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.forward import first_token
from stockpot.models.forward.ends import ConvReLU, Kernel, Residual, by_kernel, end
from stockpot.models.forward.folding import folded
from stockpot.models.forward.joining import join_ends
from stockpot.models.forward.memory import batch_of
from stockpot.models.forward.options import Forward, chosen_forward
from stockpot.models.forward.own_answers import TOLERANCE
from stockpot.models.forward.passes import Passes
from stockpot.models.load import load_model
from stockpot.score.predictions import watching
from towers import of_hub

COUNTS = (1, 511, 512, 513, 10_000)
CPU = torch.device("cpu")


class Small(nn.Module):
    """Two convolutions with batch norms whose statistics are not those of a fresh network."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(8, len(CLASSES))
        for module in self.body:
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean, -1, 1)
                nn.init.uniform_(module.running_var, 0.5, 2)
                nn.init.uniform_(module.weight, 0.5, 2)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(pixels).mean(dim=(2, 3)))


class Greedy(nn.Module):
    """Has memory for a few images only, and writes down how many it was given."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, len(CLASSES))
        self.room = room
        self.seen: list[int] = []

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        if len(pixels) > self.room:
            raise torch.OutOfMemoryError("no room")
        self.seen.append(len(pixels))
        return self.layer(pixels.mean(dim=(2, 3)))


class Moody(Small):
    """Never gives the same answer twice."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return super().forward(pixels) + torch.randn(len(pixels), len(CLASSES))


def small(kind: type[nn.Module] = Small) -> Classifier:
    torch.manual_seed(0)
    return make_classifier(kind()).eval()


def pictures(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, 16, 16), generator=generator).to(torch.uint8)


def off(found: torch.Tensor, meant: torch.Tensor) -> float:
    return float((found - meant).abs().amax() / meant.abs().amax())


def test_the_folded_copy_answers_as_the_model() -> None:
    model, images = small(), pictures(150)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    run = Passes(model, size=100)
    with evaluating(model):
        meant = model(images)
        assert off(run(images), meant) < 1e-5
        # Pixels of another kind and size take their own way to the same answers.
        assert off(run(images.float() / 255), meant) < 1e-5
        larger = nn.functional.interpolate(images.float() / 255, size=(20, 20))
        assert off(run(larger), model(larger)) < 1e-5
    facts = run.facts
    assert (facts.precision, facts.folded, facts.memory_format) == ("fp32", True, "channels_last")
    assert run.notes == []
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("kind", ["basic", "bottleneck"])
def test_fused_ends_are_the_block(kind: str) -> None:
    config = {"hidden_sizes": [16, 32], "depths": [2, 1], "embedding_size": 8, "layer_type": kind}
    model = of_hub("resnet", **config).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -1, 1)
            nn.init.uniform_(module.weight, 0.5, 2)
            nn.init.uniform_(module.bias, -1, 1)
    images = pictures(4).float() / 255
    with evaluating(model):
        meant = model(images)
        twin = folded(model, images)
        assert join_ends(twin, images)
        # All layers with a ReLU inside blocks, the stem, and the ends of all three blocks.
        ends = sum(isinstance(module, ConvReLU) for module in twin.modules())
        assert ends == {"basic": 3, "bottleneck": 6}[kind] + 1 + 3
        # Biases of shortcuts are added with those of the convolutions that add the shortcuts.
        around = [part._lone() for part in twin.modules() if isinstance(part, Residual)]
        assert [one is not None and bool(one.bias.any()) for one in around].count(True) == 2
        for kernel in get_args(Kernel):
            by_kernel(twin, kernel)
            assert off(twin(images), meant) < 1e-5
        assert not any(isinstance(module, nn.ReLU) for module in twin.modules())


def test_what_is_no_number_stays_none_at_an_end() -> None:
    maps = torch.tensor([torch.nan, 1.0, -2.0, 3.0]).view(1, 2, 1, 2)
    found = end(maps, torch.tensor([0.5, -1.0]), torch.ones(1, 2, 1, 2))
    assert torch.equal(found.flatten()[1:], torch.tensor([2.5, 0.0, 3.0]))
    assert found.flatten()[0].isnan()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("adds", [True, False])
def test_the_kernel_is_the_formula(dtype: torch.dtype, adds: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    maps, rest = torch.randn(2, 3, 24, 7, 5, generator=generator).cuda().to(dtype)
    bias = torch.randn(24, generator=generator).cuda().to(dtype)
    maps, rest = (each.contiguous(memory_format=torch.channels_last) for each in (maps, rest))
    maps[0, 0, 0, 0] = torch.nan
    whole = maps.float() + bias.float().view(1, -1, 1, 1) + (rest.float() if adds else 0)
    found = end(maps.clone(), bias, rest if adds else None)
    assert torch.equal(found.nan_to_num(7), whole.relu().to(dtype).nan_to_num(7))


def test_in_bfloat16_the_head_decides_in_full_precision() -> None:
    model, images = small(), pictures(64)
    run = Passes(model, Forward("bf16"))
    with evaluating(model):
        logits, meant = run(images), model(images)
    assert 1e-5 < off(logits, meant) < TOLERANCE["bf16"]
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())
    assert run.facts.precision == "bf16"
    assert next(model.parameters()).dtype == torch.float32


def test_a_model_that_a_copy_cannot_stand_for_runs_itself_and_that_is_said() -> None:
    model = small(Moody)
    run = Passes(model, Forward("bf16"))
    with evaluating(model):
        run(pictures(8))
    assert run.facts.precision == "fp32"
    assert not run.facts.folded
    assert any("bf16" in note and "differ" in note for note in run.notes)


def test_a_model_that_cannot_be_copied_runs_itself() -> None:
    model = small()
    model.network.lock = (number for number in range(3))  # a generator cannot be copied
    run = Passes(model, Forward("bf16"))
    with evaluating(model):
        assert torch.equal(run(pictures(8)), model(pictures(8)))
    assert any("not possible" in note for note in run.notes)


def test_weights_in_half_precision_are_taken_as_they_are() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 256, len(CLASSES)))

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network.bfloat16()

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return self.inner(pixels.bfloat16())

    model = make_classifier(Half()).eval()
    run = Passes(model)
    with evaluating(model):
        assert torch.equal(run(pictures(8)), model(pictures(8)).float())
    assert run.facts.precision == "bf16"


def test_memory_that_runs_out_halves_the_batch_and_loses_no_image() -> None:
    model = make_classifier(Greedy(room=10))
    run = Passes(model, size=64)
    with evaluating(model):
        logits = run(pictures(50))
        assert torch.allclose(logits, model.network.layer(model.seen(pictures(50)).mean((2, 3))))
        run(pictures(50))
    assert max(model.network.seen) == 8
    assert run.facts.batch_size == 8
    assert [note[-9:] for note in run.notes] == ["32 images", "16 images", " 8 images"]


def test_one_image_that_does_not_fit_is_an_error() -> None:
    model = make_classifier(Greedy(room=0))
    with evaluating(model), pytest.raises(torch.OutOfMemoryError):
        Passes(model, size=4)(pictures(8))


@pytest.mark.parametrize("forward", [Forward(), Forward("bf16")], ids=str)
def test_who_listens_hears_every_image_once(forward: Forward) -> None:
    model = small()
    run = Passes(model, forward, size=30)
    with evaluating(model), watching(model) as watch:
        run(pictures(50))
        run(pictures(20))
    assert watch.seen == 70
    with evaluating(model):
        run(pictures(20))
    assert watch.seen == 70


def compiling_by(monkeypatch, compiler) -> None:
    """Another compiler: importing the real one takes longer than all tests here."""
    monkeypatch.setattr(torch, "compile", lambda network, dynamic: partial(compiler, network))
    monkeypatch.setattr("stockpot.models.forward.compiled._without_limit", nullcontext)


def test_compiled_passes_have_one_shape(monkeypatch) -> None:
    """Every other number of images would be compiled anew."""
    shapes = set()

    def compiler(network, pixels):
        shapes.add(tuple(pixels.shape))
        return network(pixels)

    compiling_by(monkeypatch, compiler)
    model, images = small(), pictures(50)
    run = Passes(model, Forward("fp32", compile=True), size=20)
    with evaluating(model):
        assert off(run(images), model(images)) < 1e-5
    assert shapes == {(20, 3, 16, 16)}
    assert run.facts.compiled
    few = Passes(model, Forward("fp32", compile=True), size=20)
    with evaluating(model):  # a small set, and then a larger one
        assert off(few(images[:6]), model(images[:6])) < 1e-5
        assert off(few(images), model(images)) < 1e-5


def test_what_cannot_be_compiled_runs_without(monkeypatch) -> None:
    def compiler(network, pixels):
        raise RuntimeError("no compiler here")

    compiling_by(monkeypatch, compiler)
    model, images = small(), pictures(20)
    run = Passes(model, Forward("fp32", compile=True))
    with evaluating(model):
        assert off(run(images), model(images)) < 1e-5
    assert not run.facts.compiled
    assert run.notes == ["compiled: not possible for this model (no compiler here)"]


@pytest.mark.gpu
def test_a_compiled_pass_answers_as_the_model() -> None:
    model, images = small().cuda(), pictures(50).cuda()
    run = Passes(model, Forward("bf16", compile=True), size=20)
    with evaluating(model):
        assert off(run(images), model(images)) < TOLERANCE["bf16"]
    assert run.facts.compiled
    assert run.facts.graph
    assert run.notes == []


def test_what_a_device_does_not_have_is_refused() -> None:
    assert chosen_forward("auto", False, CPU) == Forward("fp32")
    with pytest.raises(BadParameterError, match="tf32 is arithmetic of NVIDIA GPUs"):
        chosen_forward("tf32", False, CPU)
    with pytest.raises(BadParameterError, match="expected one of auto, fp32, tf32, bf16"):
        chosen_forward("fp16", False, CPU)  # type: ignore[arg-type]


def test_auto_takes_fewer_large_pictures_than_small_ones() -> None:
    assert batch_of(100, CPU, 224 * 224) == 100
    sizes = [batch_of("auto", CPU, side * side) for side in (32, 64, 224, 4096)]
    assert sizes == [1024, 256, 16, 16]
    assert batch_of("auto", torch.device("cuda"), 224 * 224) == 512
    assert batch_of("auto", CPU, None) == 256
    assert batch_of("auto", CPU, 224 * 224, 10_000) == batch_of("auto", CPU, 224 * 224)
    of_some = {count: batch_of("auto", torch.device("cuda"), 224 * 224, count) for count in COUNTS}
    assert of_some == {1: 1, 511: 511, 512: 512, 513: 257, 10_000: 500}


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_a_recorded_pass_answers_as_the_model(precision) -> None:
    model = small().cuda()
    images = pictures(70).cuda()
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    run = Passes(model, Forward(precision), size=32)
    with evaluating(model):
        meant = small()(images.cpu())
        first = run(images)
        assert off(first.cpu(), meant) < TOLERANCE[precision]
        assert torch.equal(run(images), first)  # what was given back is not written over
        assert off(run(images[:5]).cpu(), meant[:5]) < TOLERANCE[precision]
        late = Passes(model, Forward(precision), size=32)
        late(images[:5])
        assert off(late(images).cpu(), meant) < TOLERANCE[precision]
    assert run.facts.graph
    assert run.facts.precision == precision
    assert run.notes == []
    after = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    assert after == before


@pytest.mark.gpu
def test_a_pass_that_waits_for_a_value_is_not_recorded() -> None:
    class Waits(Small):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return super().forward(pixels) * (2 if float(pixels.sum()) > -1e9 else 1)

    model = small(Waits).cuda()
    run = Passes(model, Forward("bf16"))
    with evaluating(model):
        assert off(run(pictures(16).cuda()), model(pictures(16).cuda())) < TOLERANCE["bf16"]
    assert not run.facts.graph
    assert run.facts.precision == "bf16"


def test_the_first_token_alone_gives_the_tower_s_answers(tmp_path: Path) -> None:
    """Against transformers' own forward pass, in pieces, and only where nobody listens inside."""
    model = load_model(make_clip(tmp_path), classes=("ant", "bee", "cat")).eval()
    layers = model.network.vision_tower.encoder.layers
    for parameter in model.network.vision_tower.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    images, run = pictures(70), Passes(model)
    asked: list[int] = []
    with evaluating(model):
        assert first_token.is_known(model)
        assert off(run(images), model(images)) < 1e-5
        # Weights may change between calls.
        layers[0].mlp.fc1.weight.mul_(2)
        assert off(run(images), model(images)) < 1e-5
        hook = layers[1].mlp.register_forward_hook(lambda *words: asked.append(1))
        assert not first_token.is_known(model)
        run(images)
        assert asked == [1], "who listens hears"
        hook.remove()
        layers[1].mlp.fc1 = nn.Sequential(layers[1].mlp.fc1)
        assert not first_token.is_known(model), "a layer of another kind is asked as it is"
    # With gradients, the network itself answers.
    assert run(images[:2].float() / 255).requires_grad

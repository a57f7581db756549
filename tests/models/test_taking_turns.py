"""Models that differ in their weights alone share one recorded pass, and answer as themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from models.test_forward_passes import Small, off, pictures
from pico import make_classifier
from stockpot.checkpoints.resolve import resolve
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.forward import making
from stockpot.models.forward.alike import likeness
from stockpot.models.forward.ends import ConvReLU, Kernel, by_kernel
from stockpot.models.forward.folding import folded, folded_weights
from stockpot.models.forward.joining import with_ends
from stockpot.models.forward.options import Forward
from stockpot.models.forward.own_answers import TOLERANCE
from stockpot.models.forward.passes import Passes
from stockpot.models.huggingface import load_huggingface, load_to_ask, new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.score.predictions import watching
from stockpot.types import ImageSize
from towers import of_hub

VIT = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "image_size": 16, "patch_size": 8,
}  # fmt: skip
RESNET = {"hidden_sizes": [16, 32], "depths": [1, 1], "embedding_size": 8, "layer_type": "basic"}
TINY = {"resnet": RESNET, "vit": VIT}


class Recorder:
    """In the place of a CUDA graph: it writes down what it was made for, and runs it."""

    made: ClassVar[list[int]] = []

    def __init__(self, run: Callable[[torch.Tensor], torch.Tensor], pixels: torch.Tensor) -> None:
        self.run, self.size = run, len(pixels)
        self.run(pixels)
        self.made.append(self.size)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.run(pixels)


@pytest.fixture
def recordings(monkeypatch) -> list[int]:
    """Sizes of all that is recorded, as if there were a GPU."""
    monkeypatch.setattr(Recorder, "made", [])
    monkeypatch.setattr(making, "Captured", Recorder)
    monkeypatch.setattr(making, "_records", lambda pixels: True)
    return Recorder.made


def member(like: Classifier, seed: int) -> Classifier:
    """Another model of the same kind: all weights and statistics are other ones."""
    generator = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(like).eval()
    for name, value in [*other.named_parameters(), *other.named_buffers()]:
        if value.is_floating_point():
            draw = torch.rand(value.shape, generator=generator) / 2
            value.data = draw + 0.5 if "var" in name else draw - 0.25
    return other


def small(seed: int) -> Classifier:
    return member(make_classifier(Small()), seed)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_members_take_turns_and_answer_as_themselves(recordings, kind, precision) -> None:
    first = of_hub(kind, **TINY[kind])
    members = [member(first, seed) for seed in range(3)]
    runs = [Passes(model, Forward(precision), size=8) for model in members]
    images = pictures(12)
    before = [copy.deepcopy(model.state_dict()) for model in members]
    for part in (images[:8], images[8:], images):
        for model, run in zip(members, runs, strict=True):
            with evaluating(model):
                meant = model(part)
                assert off(run(part), meant) < (1e-5 if precision == "fp32" else TOLERANCE["bf16"])
    # A ResNet's first member is recorded with each kernel where none is known to be the fastest;
    # nobody is after it.
    assert len(recordings) == (3 if (kind, precision) == ("resnet", "fp32") else 1)
    assert {str(run.facts) for run in runs} == {str(runs[0].facts)}
    assert runs[0].facts.graph
    assert all(run.notes == [] for run in runs)
    for model, own in zip(members, before, strict=True):
        assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())


def test_a_larger_batch_is_recorded_anew_and_what_nobody_uses_is_gone(recordings) -> None:
    one, two, images = small(1), small(2), pictures(12)
    first, second = Passes(one, size=12), Passes(two, size=12)
    with evaluating(one), evaluating(two):
        first(images[:4])
        second(images)
        assert set(recordings) == {4, 12}
        assert off(first(images), one(images)) < 1e-5  # by what was recorded for the other
        assert off(second(images[:4]), two(images[:4])) < 1e-5
    assert recordings.count(12) == 3
    del first, second
    with evaluating(one):
        Passes(one, size=12)(images)
    assert recordings.count(12) == 6


def test_pixels_of_two_kinds_share_the_copy_of_each_model(recordings) -> None:
    one, two, images = small(1), small(2), pictures(8)
    runs = {model: Passes(model, size=8) for model in (one, two)}
    for _ in range(2):
        for pixels in (images, images.float() / 255):
            for model in (two, one) if pixels is images else (one, two):
                with evaluating(model):
                    assert off(runs[model](pixels), model(pixels)) < 1e-5
    assert len(recordings) == 6


def test_what_differs_in_more_than_weights_is_recorded_alone(recordings) -> None:
    base = small(1)
    assert likeness(base) == likeness(small(2)) is not None
    other = small(2)
    other.network.body[3].stride = (1, 1)
    assert likeness(other) != likeness(base)
    constant = small(2)
    constant.network.scale = torch.ones(1)  # a number that no list of weights has
    assert likeness(constant) is None
    heard = small(2)
    heard.network.head.register_forward_hook(lambda module, inputs, output: output * 2)
    assert likeness(heard) is None
    partly = small(2)
    partly.network.bend = torch.nn.functional.relu
    other = small(2)
    other.network.bend = torch.nn.functional.silu
    assert likeness(partly) != likeness(other)
    images = pictures(8)
    for model in (base, constant, heard):
        run = Passes(model, size=8)
        with evaluating(model):
            assert off(run(images), model(images)) < 1e-5
    assert len(recordings) >= 9


def test_a_member_that_the_shared_pass_does_not_answer_for_falls_back_alone(
    recordings, monkeypatch
) -> None:
    models = [small(seed) for seed in range(3)]
    images = pictures(8)
    runs = [Passes(model, size=8) for model in models]
    with evaluating(models[0]):
        runs[0](images)
    # The second one's weights are lost on their way: a pass of its own is all that is left.
    monkeypatch.setattr(making.Copy, "weights_of", _losing(making.Copy.weights_of, models[1]))
    for model, run in zip(models, runs, strict=True):
        with evaluating(model):
            assert off(run(images), model(images)) < 1e-5
    assert len(recordings) == 6


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_a_check_was_answered_is_not_asked_again(recordings, monkeypatch, precision) -> None:
    members = [member(of_hub("vit", **VIT), seed) for seed in range(2)]
    runs = [Passes(model, Forward(precision), size=8) for model in members]
    images, asked = pictures(8), []

    def replayed(self, pixels, replay=Recorder.__call__) -> torch.Tensor:
        asked.append(len(pixels))
        return replay(self, pixels)

    monkeypatch.setattr(Recorder, "__call__", replayed)
    for turn, (model, run) in enumerate(zip(members, runs, strict=True), 1):
        with evaluating(model):
            first = run(images)
            assert len(asked) == 2 * turn - 1  # the check of the first batch, and no other pass
            assert torch.equal(first, run(images))
    assert len(recordings) == 1


def test_a_model_alike_is_asked_without_looking_how_it_is_built(recordings, monkeypatch) -> None:
    looks = []

    def looked(model, few, look=making.own_look):
        looks.append(model)
        return look(model, few)

    monkeypatch.setattr(making, "own_look", looked)
    models, images = [small(1), small(2)], pictures(8)
    runs = [Passes(model, size=8) for model in models]
    for model, run in zip(models, runs, strict=True):
        with evaluating(model):
            assert off(run(images), model(images)) < 1e-5
    assert looks == models[:1]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_what_is_prepared_on_noise_is_what_is_made_on_pixels(
    recordings, monkeypatch, kind, precision
) -> None:
    monkeypatch.setattr(making, "seconds", lambda run, pixels: 1.0)  # no kernel is the faster one
    model, images = member(of_hub(kind, **TINY[kind]), 1), pictures(12)
    plain, ready = (Passes(model, Forward(precision), size=8) for _ in range(2))
    with evaluating(model), watching(model) as watch:
        expected = plain(images)
        del recordings[:]
        making.recorded.clear()
        assert ready.prepare((3, 16, 16), 12).shape == (8, 4)
        made = len(recordings)
        assert made
        assert watch.seen == 12  # nobody hears of it
        assert torch.equal(ready(images), expected)
        assert len(recordings) == made
    assert (ready.facts, ready.notes) == (plain.facts, plain.notes)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_on_a_gpu_what_is_prepared_on_noise_answers_alike_bit_for_bit(kind) -> None:
    model, images = member(of_hub(kind, **TINY[kind]), 1).cuda(), pictures(12).cuda()
    plain, ready = (Passes(model, Forward("bf16"), size=8) for _ in range(2))
    with evaluating(model):
        expected = plain(images)
        making.recorded.clear()
        assert ready.prepare((3, 16, 16), 12) is not None
        assert torch.equal(ready(images), expected)
        assert torch.equal(ready(images), expected)
    assert (ready.facts, ready.notes) == (plain.facts, plain.notes)


class NoiseError(Exception):
    """What a model may have against noise."""


@pytest.mark.parametrize("problem", [NoiseError, torch.OutOfMemoryError])
def test_what_cannot_be_prepared_is_made_as_ever(recordings, monkeypatch, problem) -> None:
    model, images = small(1), pictures(8)
    run, looks = Passes(model, Forward("bf16"), size=8), []

    def looked(model, few, look=making.own_look):
        looks.append(few)
        if len(looks) == 1:
            raise problem("noise")
        return look(model, few)

    monkeypatch.setattr(making, "own_look", looked)
    with evaluating(model):
        assert run.prepare((3, 16, 16), 8) is None
        assert off(run(images), model(images)) < TOLERANCE["bf16"]
    assert len(looks) == 2
    assert run.notes == []
    assert run.facts.graph


@pytest.mark.parametrize("wrong", [0, 1])
def test_what_was_prepared_is_judged_by_the_first_pixels(recordings, monkeypatch, wrong) -> None:
    """Whether noise or pixels are answered otherwise, it is made as if nothing had been."""
    model, images = small(1), pictures(8)
    run, checks = Passes(model, Forward("bf16"), size=8), []

    def differs(found, meant, difference=making.difference):
        checks.append(len(found))
        return 1.0 if len(checks) == wrong + 1 else difference(found, meant)

    monkeypatch.setattr(making, "difference", differs)
    with evaluating(model):
        assert (run.prepare((3, 16, 16), 8) is None) == (wrong == 0)
        before = len(recordings)
        assert off(run(images), model(images)) < TOLERANCE["bf16"]
    assert len(recordings) == before + 1
    assert run.notes == []
    assert run.facts.fused == "cudnn"


def test_pixels_of_another_kind_than_prepared_are_seen(recordings) -> None:
    model, images = small(1), pictures(12)
    for pixels in (images, images[:6].float() / 255):
        run = Passes(model, Forward("bf16"), size=12)
        with evaluating(model):
            assert run.prepare((3, 16, 16), 8) is not None
            assert run.prepare((3, 16, 16), 8) is None
            assert off(run(pixels), model(pixels)) < TOLERANCE["bf16"]


def test_a_copy_knows_whether_it_holds_weights() -> None:
    model = small(1)
    own = making.Copy(copy.deepcopy(model), model, [])
    weights = own.weights_of(model)
    assert own.holds(weights)
    with torch.no_grad():
        last = weights[-1].clone()
        last.view(-1)[-1] += 1
    assert not own.holds([*weights[:-1], last])
    with pytest.raises(ValueError, match="shorter"):
        own.holds(weights[:-1])


def _losing(weights_of, poor: Classifier):
    def changed(self, model):
        found = weights_of(self, model)
        return [value * 0 for value in found] if model is poor else found

    return changed


@pytest.mark.parametrize("fast", ["cudnn", "triton", "torch"])
def test_the_fastest_kernel_is_taken_and_named(recordings, monkeypatch, fast) -> None:
    model, asked = small(1), []

    def seconds(run, pixels) -> float:
        asked.append(kernel_of(run))
        return 1.0 if asked[-1] == fast else 2.0

    def kernel_of(run) -> str:
        copied = next(iter(runs._making._copies.values()))
        return next(part.kernel for part in copied.modules() if isinstance(part, ConvReLU))

    monkeypatch.setattr(making, "seconds", seconds)
    runs = Passes(model, size=8)
    with evaluating(model):
        runs(pictures(8))
    assert asked == ["cudnn", "triton", "torch"]
    assert runs.facts.fused == (False if fast == "torch" else fast)
    assert ("fused by" in str(runs.facts)) == (fast != "torch")


def test_a_kernel_that_fails_or_is_wrong_is_not_taken(recordings, monkeypatch) -> None:
    def broken(model: nn.Module, kernel: Kernel) -> None:
        by_kernel(model, kernel)
        if kernel == "cudnn":
            raise RuntimeError("no engine")
        for part in model.modules():
            if isinstance(part, ConvReLU):
                part.bias.data += 1 if kernel == "triton" else -1

    monkeypatch.setattr(making, "by_kernel", broken)
    model, images = small(1), pictures(8)
    run = Passes(model, size=8)
    with evaluating(model):
        assert off(run(images), model(images)) < 1e-5
    assert run.facts.fused is False
    assert run.facts.graph


@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_models_of_one_architecture_from_folders_are_alike(tmp_path, kind) -> None:
    side = ImageSize(16, 16)
    found = []
    for seed in range(2):
        folder = new_huggingface(
            kind, classes=("a", "b"), preprocess=Preprocess(side, side), seed=seed, **TINY[kind]
        ).save(tmp_path / str(seed))
        place = resolve(str(folder))
        found.append([likeness(load(place)) for load in (load_to_ask, load_huggingface)])
    assert found[0] == found[1]
    assert None not in found[0]


def test_a_block_that_adds_at_its_end_has_the_same_slopes() -> None:
    model = member(of_hub("resnet", **RESNET), 4)
    images = (pictures(4).float() / 255).requires_grad_()
    joined = with_ends(folded(model, images.detach()), images.detach())
    assert sum(isinstance(part, ConvReLU) for part in joined.modules()) == 1 + 2 * 2
    weights = torch.arange(16.0).view(4, 4)
    (meant,) = torch.autograd.grad((model(images) * weights).sum(), images)
    (found,) = torch.autograd.grad((joined(images) * weights).sum(), images)
    torch.testing.assert_close(found, meant, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("kernel", ["cudnn", "triton", "torch"])
@pytest.mark.parametrize("width", [3, 16])
def test_each_kernel_is_the_formula_on_a_gpu(kernel, adds, width) -> None:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(4, width, 9, 9, generator=generator)
    rest = torch.randn(4, 16, 5, 5, generator=generator)
    layer = ConvReLU(width, 16, 3, stride=2, padding=1).requires_grad_(False)
    meant = nn.functional.conv2d(pixels, layer.weight, layer.bias, 2, 1) + (rest if adds else 0)
    layer = layer.cuda().bfloat16().to(memory_format=torch.channels_last)
    layer.kernel = kernel
    nhwc = {"device": "cuda", "dtype": torch.bfloat16, "memory_format": torch.channels_last}
    layer.rest = rest.to(**nhwc) if adds else None
    assert off(layer(pixels.to(**nhwc)).float().cpu(), meant.relu()) < 0.02


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_members_take_turns_in_one_graph(precision, monkeypatch) -> None:
    made = []

    class Counted(making.Captured):
        def __init__(self, run, pixels) -> None:
            super().__init__(run, pixels)
            made.append(len(pixels))

    monkeypatch.setattr(making, "Captured", Counted)
    first = of_hub("resnet", **RESNET)
    members = [member(first, seed).cuda() for seed in range(4)]
    runs = [Passes(model, Forward(precision), size=32) for model in members]
    images = pictures(70).cuda()
    for _ in range(2):
        for model, run in zip(members, runs, strict=True):
            with evaluating(model):
                assert off(run(images), model(images)) < TOLERANCE[precision]
    assert len(made) <= 3
    assert all(run.facts.graph and run.facts.folded and run.notes == [] for run in runs)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_weights_folded_at_once_are_those_folded_one_by_one(affine: bool, bias: bool) -> None:
    torch.manual_seed(0)
    layers = []
    for width in (3, 5, 4):
        norm = nn.BatchNorm2d(width + 1, eps=10.0**-width, affine=affine)
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        layers += [nn.Conv2d(width, width + 1, 3, bias=bias), norm]
    model = nn.Sequential(*layers).requires_grad_(False)
    found = folded_weights(model, [("0", "1"), ("2", "3"), ("4", "5")])
    for place in (0, 2, 4):
        layer, norm = model[place], model[place + 1]
        meant = fuse_conv_bn_weights(
            layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.eps,
            norm.weight, norm.bias,
        )  # fmt: skip
        assert torch.equal(found[f"{place}.weight"], meant[0])
        assert torch.equal(found[f"{place}.bias"], meant[1])

"""Searches in blocks of fixed size, with steps that read and write fixed places, are the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stockpot.attack import blocks, captured, victim
from stockpot.attack.captured import Graphs, graphs_for
from stockpot.attack.losses import cross_entropy
from stockpot.attack.methods.apgd import apgd
from stockpot.attack.run import attack
from stockpot.attack.task import Task
from stockpot.attack.threat import threat
from stockpot.models.forward.ends import ConvReLU

BALLS = {"linf": 0.03, "l2": 0.35, "l1": 2.0}
WAYS = [
    ("linf", "apgd", {"steps": 12}),
    ("l2", "apgd", {"steps": 10, "loss": "dlr_targeted", "targets": 2}),
    ("l1", "apgd", {"steps": 12, "goal": "loss", "radii": "multi"}),
    ("linf", "fab", {"steps": 14, "targets": 2}),
    ("l2", "fab", {"steps": 20, "targets": 2, "patience": 6}),
    ("linf", "square", {"steps": 100}),
    ("l2", "square", {"steps": 40, "goal": "loss"}),
]


def network(seed: int = 3, width: int = 6) -> nn.Module:
    """In double precision, where no decision hangs on the order of sums."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(16 * width, 4),
    ).double()  # fmt: skip
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator).double() / 2
    return model.eval()


def pictures(count: int = 40) -> torch.Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(4)).double()


class Places(Graphs):
    """What a graph is to its caller: fixed places, overwritten by every step."""

    captures = 0

    def capture(self, step, inputs):
        type(self).captures += 1
        buffers = [given.clone() for given in inputs]
        outputs = [given.clone() for given in captured._apart(step(*buffers), buffers)]

        def replay(*given):
            for to, new in zip(buffers, given, strict=True):
                assert to.shape == new.shape
                assert to.dtype == new.dtype
            # All copies at once, so that one which reads another's place is seen to be wrong.
            torch._foreach_copy_(buffers, [new.clone() for new in given])
            for to, new in zip(outputs, step(*buffers), strict=True):
                to.copy_(new)
            return tuple(outputs)

        return replay


@pytest.mark.parametrize(("norm", "method", "params"), WAYS)
def test_blocks_and_fixed_places_change_nothing(monkeypatch, norm, method, params) -> None:
    model, images = network(), pictures()
    labels = model(images).argmax(dim=1)
    ask = {"norm": norm, "eps": BALLS[norm], "method": method, "seed": 7, "check": False, **params}
    plain = attack(model, images, labels, **ask)
    sizes = []
    monkeypatch.setattr(victim, "graphs_for", Places)
    monkeypatch.setattr(blocks, "_SMALLEST", 4)
    monkeypatch.setattr(captured, "_WORTH", 2)
    monkeypatch.setattr(Places, "captures", 0)
    forward = model.forward
    model.forward = lambda pixels: sizes.append(len(pixels)) or forward(pixels)
    found = attack(model, images, labels, **ask)
    assert Places.captures > 0
    if params.get("goal") != "loss":
        assert 0 < int(found.robust.sum()) < 40, "a case that shows nothing"
        # The first look has all; then few sizes, not one for every image that fell.
        assert len(set(sizes)) <= 8
    torch.testing.assert_close(found.images, plain.images, rtol=0, atol=1e-9)
    torch.testing.assert_close(found.loss, plain.loss)
    assert torch.equal(found.robust, plain.robust)
    assert torch.equal(found.queries, plain.queries)
    assert found.saved == plain.saved


def test_an_image_that_fell_only_in_the_fast_search_is_tried_further() -> None:
    """What a search takes for a fall is judged by the model itself, then and there."""
    model, images = network(), pictures()
    labels = model(images).argmax(dim=1)
    task = Task(images, labels, torch.arange(len(images)), threat("linf", 0.03))
    fast = victim.Victim(model)
    fast._run = lambda pixels: model(pixels) - 0.2 * nn.functional.one_hot(owners(pixels), 4)

    def owners(pixels):  # the right class of the picture that this one was made of
        far = (pixels.detach().flatten(1)[:, None] - images.flatten(1)[None]).abs().sum(dim=-1)
        return labels[far.argmin(dim=1)]

    assert int((fast._run(images).argmax(dim=1) != labels).sum()) > 0  # wrong before it should be
    found, exact = (apgd(each, task, steps=15) for each in (fast, victim.Victim(model)))
    with torch.no_grad():
        wrong = model(found.images).argmax(dim=1) != labels
    assert torch.equal(found.fallen, wrong)
    assert abs(int(found.fallen.sum()) - int(exact.fallen.sum())) <= 1


def test_a_cpu_captures_nothing() -> None:
    assert graphs_for(torch.device("cpu")) is None


@pytest.mark.gpu
@pytest.mark.parametrize(("norm", "method", "params"), WAYS)
def test_a_captured_search_finds_what_a_plain_one_finds(monkeypatch, norm, method, params) -> None:
    model, images = network(width=8).cuda(), pictures(80).cuda()
    labels = model(images).argmax(dim=1)
    ask = {"norm": norm, "eps": BALLS[norm], "method": method, "seed": 7, "check": False, **params}
    found = attack(model, images, labels, **ask)
    monkeypatch.setattr(victim, "graphs_for", lambda device: None)
    plain = attack(model, images, labels, **ask)
    assert int((found.robust != plain.robust).sum()) <= 1
    close = (found.images - plain.images).flatten(1).abs().amax(dim=1) < 1e-6
    assert close.float().mean() >= 0.9
    assert torch.equal(found.queries[close], plain.queries[close])


@pytest.mark.gpu
def test_graphs_are_used_and_given_up_where_they_would_differ(monkeypatch) -> None:
    made = []
    capture = captured.CudaGraphs.capture

    def seen(self, step, inputs):
        made.append(capture(self, step, inputs))
        return made[-1]

    monkeypatch.setattr(captured.CudaGraphs, "capture", seen)
    model, images = network().float().cuda(), pictures().float().cuda()
    labels = model(images).argmax(dim=1)
    attack(model, images, labels, eps=0.01, steps=30)
    assert made
    assert all(made)
    made.clear()

    def asks(pixels):  # a value asked from the device cannot be captured
        return model(pixels) * (1.0 if float(pixels.sum()) > 0 else 2.0)

    found = attack(asks, images, labels, eps=0.01, steps=30, check=False)
    assert made == [None]
    torch.rand(2, device="cuda")  # whoever draws afterwards is not disturbed
    plain = attack(model, images, labels, eps=0.01, steps=30, check=False)
    assert int((found.robust != plain.robust).sum()) <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_fast_copy_on_a_gpu_is_the_network(precision) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64, 4),
    ).cuda().eval()  # fmt: skip
    images = pictures(64).float().cuda()
    labels = model(images).argmax(dim=1)
    fast = victim.Victim(model, precision=precision, forward="folded")
    fast.prepare(images)
    assert sum(isinstance(module, ConvReLU) for module in fast._run.modules()) == 2
    expected = victim.Victim(model).ascend(images, cross_entropy, labels)
    found = fast.ascend(images, cross_entropy, labels)
    scale = 0.03 if precision == "bf16" else 0.005
    torch.testing.assert_close(found.logits, expected.logits, rtol=scale, atol=scale)
    towards = nn.functional.cosine_similarity(
        found.gradient.flatten(1), expected.gradient.flatten(1)
    )
    assert float(towards.mean()) > 0.98

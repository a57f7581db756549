"""Which networks two threads may ask at a time, and what a vision transformer answers so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor, nn

import stockpot
from stockpot.attack.run import attack
from stockpot.models.classifier import evaluating
from stockpot.models.forward import making, own_answers, packed, passes
from stockpot.models.forward.apart import in_parts, keeps_nothing
from stockpot.models.forward.passes import Passes
from stockpot.models.load import load_for, load_model
from stockpot.score.predictions import watching


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class PutsAside(nn.Module):
    """Anybody's module: what it puts aside in one line it reads in the next."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.threads: set[str] = set()

    def forward(self, values: Tensor) -> Tensor:
        self.threads.add(threading.current_thread().name)
        self.last = values
        return self.layer(self.last)


def test_only_networks_that_are_known_are_asked_by_two() -> None:
    known = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    assert keeps_nothing(known.eval())
    assert not keeps_nothing(known.train())  # a batch norm keeps statistics, a dropout draws
    assert not keeps_nothing(nn.Sequential(known, PutsAside()).eval())
    assert not keeps_nothing(lambda pixels: pixels)
    known.eval()
    with watching(known):
        assert keeps_nothing(known)
    handle = known[0].register_forward_hook(lambda *_: None)
    assert not keeps_nothing(known)
    handle.remove()
    assert keeps_nothing(known)


def test_an_unknown_network_stays_in_one_thread() -> None:
    model = PutsAside().eval()
    in_parts(model, torch.zeros(50, 4), 8, apart=keeps_nothing(model))
    assert model.threads == {threading.current_thread().name}


def test_who_watches_counts_every_answer_of_both() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5)).eval()
    pixels = torch.rand(600, 3, 2, 2)
    pixels[::7] = torch.nan
    with watching(model) as watch, torch.no_grad():
        for _ in range(5):
            in_parts(model, pixels, 8)
    assert (watch.seen, watch.broken) == (3000, 5 * len(pixels[::7]))


@pytest.mark.parametrize("name", ["icons-vit", "icons-convnext"])
@pytest.mark.parametrize("count", [1, 3, 37])
def test_packed_weights_answer_as_transformers(name: str, count: int) -> None:
    data = stockpot.load_dataset("icons", split="test", limit=count)
    pixels = data.images.pixels
    theirs = load_model(name).eval()  # with the module of transformers
    ours = load_for(name, data, keep=True).eval()
    passes = Passes(ours)
    with evaluating(ours), evaluating(theirs):
        expected, found = theirs(pixels), passes(pixels)
    assert ("packed" in passes._making.steps) == packed._has_products()
    assert type(theirs.network.model).__module__.startswith("transformers.")
    assert float((found - expected).abs().amax()) < 1e-5 * float(expected.abs().amax())


def test_a_transformer_somebody_listens_inside_is_not_packed() -> None:
    data = stockpot.load_dataset("icons", split="test", limit=2)
    model = load_for("icons-vit", data, keep=True).eval()
    assert packed.can_pack(model) == packed._has_products()
    handle = model.network.model.vit.layers[0].mlp.register_forward_hook(lambda *_: None)
    assert not packed.can_pack(model)
    handle.remove()
    assert packed.can_pack(model) == packed._has_products()


def test_an_attack_finds_the_same_in_parts_as_in_one_thread() -> None:
    data = stockpot.load_dataset("icons", split="test", limit=48)
    model = load_for("icons-linf", data, keep=True).eval()
    pixels, labels = data.images.pixels.float() / 255, torch.as_tensor(data.labels)
    seen: set[str] = set()

    def see(*_: object) -> None:
        seen.add(threading.current_thread().name)

    see.takes_turns = True  # type: ignore[attr-defined]
    handle = model.register_forward_hook(see)
    both = attack(model, pixels, labels, steps=4, loss="ce")
    handle.remove()
    assert len(seen) == 2
    torch.set_num_threads(1)
    one = attack(model, pixels, labels, steps=4, loss="ce")
    for name in ("robust", "correct", "queries"):
        assert torch.equal(getattr(both, name), getattr(one, name))
    assert both.saved == one.saved
    torch.testing.assert_close(both.images, one.images, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["icons-vit", "icons-resnet"])
def test_a_setting_of_the_process_is_made_by_one_thread(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that set it and put it back in turns would leave it as neither of them found it."""
    icons = stockpot.load_dataset("icons", split="test", limit=80)
    model = load_for(name, icons, keep=True)
    made: set[str] = set()
    plain = passes.products

    def products(tf32: bool) -> AbstractContextManager[None]:
        made.add(threading.current_thread().name)
        return plain(tf32)

    for module in (making, own_answers, passes):
        monkeypatch.setattr(module, "products", products)
    with evaluating(model), torch.inference_mode():
        Passes(model)(icons.images.pixels)
    assert made == {threading.current_thread().name}

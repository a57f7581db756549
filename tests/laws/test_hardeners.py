"""The laws that every hardening method obeys: one row per method, one test per law.

A method that is registered without a row here fails the suite. The networks have what makes
training depend on more than its data: dropout, stochastic depth and BatchNorm.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from pico import make_classifier, make_dataset
from processes import in_two
from stockpot.harden import hardeners
from stockpot.harden.augment import augment
from stockpot.harden.loop import Objective, train
from stockpot.harden.many.processes import is_first, together
from stockpot.harden.many.sharded import in_shards, whole
from stockpot.harden.objective import Step, is_same
from stockpot.harden.state import Resume
from stockpot.models.classifier import Classifier
from stockpot.models.fine_tuned import with_trained_head
from towers import dual, two_towers


class Row(NamedTuple):
    """A method and how to call it; attacks of two steps keep the laws quick."""

    name: str
    params: Mapping[str, Any] = MappingProxyType({})


SHORT = {"steps": 2}
ROWS = [
    Row("nominal", {"label_smoothing": 0.1, "mixup": 0.2, "cutmix": 1.0}),
    Row("stability"),
    Row("augmix"),
    Row("pixmix", {"count": 8}),
    Row("deep_augment"),
    Row("dynamic_augment", {"generator": "colour"}),
    Row("adversarial", {**SHORT, "clean": 0.5}),
    Row("trades", SHORT),
    Row("advprop", SHORT),
    Row("avg", SHORT),
    Row("max", SHORT),
    Row("sat", SHORT),
    Row("msd", SHORT),
    Row("eat", SHORT),
    Row("contrastive"),
    Row("flyp"),
    Row("vanilla"),
    Row("l2_sp"),
    Row("lp_ft", {"points": 3}),
    Row("wise_kd"),
    Row("function_space"),
    Row("lipsum_ft", {"texts": 4, "length": 3}),
    Row("carot", {"every": 2}),
    Row("counterfactual", {"bank": 12, "fill": "multi"}),
]
SETTINGS: dict[str, Any] = {"epochs": 2, "batch_size": 8, "lr": 0.01, "ema": 0.9, "seed": 5}
IMAGES = 24  # three steps per epoch
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


class Restless(nn.Module):
    """A small network with BatchNorm, a block that is sometimes skipped, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(4 * 7 * 7, 4)

    def forward(self, pixels: Tensor) -> Tensor:
        seen = self.first(pixels)
        change = self.block(seen)
        if self.training:
            kept = torch.rand(len(pixels), 1, 1, 1, device=pixels.device) < 0.7
            change = change * kept / 0.7
        logits: Tensor = self.head(self.drop((seen + change).flatten(1)))
        return logits


def make_model(row: Row, attention: float = 0.3) -> Classifier:
    tags = hardeners.get(row.name).tags
    if tags.towers == "both" or tags.texts:
        model = dual("clip", layers=1) if tags.texts else two_towers(layers=1)
        if tags.head == "trained":
            with_trained_head(model)
        for module in model.modules():
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = attention
        return model
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make_classifier(Restless())


def make_objective(row: Row) -> Objective:
    return hardeners.get(row.name)(**row.params)


def trained(row: Row, **settings: Any) -> dict[str, Tensor]:
    model = make_model(row)
    train(model, make_dataset(IMAGES), make_objective(row), **{**SETTINGS, **settings})
    return dict(model.state_dict())


def differing(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> list[str]:
    assert a.keys() == b.keys()
    return [name for name in a if not torch.equal(a[name], b[name])]


def test_every_method_has_a_row() -> None:
    assert sorted(row.name for row in ROWS) == hardeners.names()


@every_row
def test_zero_epochs_change_nothing(row: Row) -> None:
    assert not differing(trained(row, epochs=0), make_model(row).state_dict())


@every_row
def test_a_seed_fixes_the_weights_and_global_draws_are_left_alone(row: Row) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = trained(row, epochs=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert not differing(first, trained(row, epochs=1))
    assert differing(first, trained(row, epochs=1, seed=6))
    assert differing(first, make_model(row).state_dict())


ALIKE = [row.name for row in ROWS if is_same(hardeners.get(row.name)())]


def test_searches_from_the_image_say_that_every_step_is_the_same() -> None:
    assert {"nominal", "adversarial", "max", "avg"} <= set(ALIKE)
    assert not {"trades", "sat", "eat"} & set(ALIKE)
    assert not is_same(hardeners.get("adversarial")(mixup=0.2))


@pytest.mark.parametrize("name", ALIKE)
def test_who_says_that_every_step_is_the_same_draws_nothing(name: str) -> None:
    # On a GPU such a step is recorded once and replayed: what it drew would be drawn for ever.
    objective = hardeners.get(name)()
    data, losses = make_dataset(8), []
    pixels = torch.cat(list(data.images.batches(8, None))).float() / 255
    for number in (0, 7):
        generator = torch.Generator().manual_seed(number)
        before = generator.get_state()
        model = make_model(Row("nominal"))
        with torch.random.fork_rng():
            torch.manual_seed(3)  # what layers draw belongs to the step, and a graph draws it anew
            losses.append(objective(Step(model, pixels, data.labels, generator, number)))
        assert torch.equal(generator.get_state(), before)
    assert torch.equal(*losses)


class StopError(Exception):
    pass


@every_row
def test_stopped_and_resumed_equals_uninterrupted(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"validation": make_dataset(IMAGES), "keep": "best"}
    whole = trained(row, **settings)
    resume = Resume(tmp_path / "state.pt", every=1)
    steps = 0

    def interrupted(*args: Any) -> Tensor:
        nonlocal steps
        if steps == 4:  # within the second epoch, after a choice was made
            raise StopError
        steps += 1
        return augment(*args)

    with monkeypatch.context() as patch:
        patch.setattr("stockpot.harden.loop.augment", interrupted)
        with pytest.raises(StopError):
            trained(row, resume=resume, **settings)
    torch.rand(3)  # another process has other draws
    assert not differing(whole, trained(row, resume=resume, **settings))


class Curve(NamedTuple):
    """How a training went, and where it ended."""

    losses: list[float]
    weights: dict[str, Tensor]


EVEN, UNEVEN = 6, 5
"""Batches of which two processes get equal shares, and of which they do not."""


def curve(row: Row, batch_size: int, *, shard: bool = False) -> Curve:
    # Attention draws its dropout inside a kernel, for each process by itself.
    model, losses = make_model(row, attention=0.0), list[float]()
    working = in_shards(model, torch.device("cpu")) if shard else model
    # SGD: where gradients are divided by their size, a rounding of those near zero is a step.
    settings = {"batch_size": batch_size, "optimizer": "sgd", "epochs": 1, "lr": 0.01, "seed": 5}
    train(
        working,
        make_dataset(IMAGES // 2),
        make_objective(row),
        report=lambda step, total, seen: losses.append(seen["loss"]),
        **settings,  # type: ignore[arg-type]
    )
    return Curve(losses, whole(working.state_dict()))


def in_company(folder: Path) -> None:
    with together(torch.device("cpu")):
        for row in ROWS:
            found = {UNEVEN: tuple(curve(row, UNEVEN))}
            if not hardeners.get(row.name).tags.whole:
                found[EVEN] = tuple(curve(row, EVEN, shard=True))
            if is_first():
                torch.save(found, folder / row.name)


def test_two_processes_follow_the_curve_of_one(tmp_path: Path) -> None:
    """Also in shards, for every method that does not say why it cannot."""
    in_two(in_company, tmp_path)
    for row in ROWS:
        for batch_size, found in torch.load(tmp_path / row.name, weights_only=True).items():
            two, one = Curve(*found), curve(row, batch_size)
            # A loss adds up terms that rounding parts by ten units in the last place on some
            # processors; a share that is weighed wrongly moves it by a thousand times as much.
            assert two.losses == pytest.approx(one.losses, rel=1e-5), row.name
            for name, values in one.weights.items():
                torch.testing.assert_close(
                    two.weights[name], values, rtol=1e-6, atol=1e-6, msg=f"{row.name}: {name}"
                )

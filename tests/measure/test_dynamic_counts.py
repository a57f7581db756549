"""FMR that means what it says: the published table, vocabularies, kin, cost and resuming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dynamic_paper import EACH, TABLE_13, TOTAL, Linear
from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from stockpot.checkpoints.open import read_tensors
from stockpot.checkpoints.resolve import zoo_folder
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.dynamic.generators import generators
from stockpot.dynamic.kinship import refuse_twin
from stockpot.dynamic.oracle import Oracle, Setting
from stockpot.dynamic.oracles import networks, oracles
from stockpot.dynamic.oracles.networks import NetworkOracle
from stockpot.dynamic.task import Rules, Task
from stockpot.errors import UserError
from stockpot.measure.dynamic import evaluate as evaluation
from stockpot.measure.dynamic.about import about_generator, among, with_vocabulary
from stockpot.measure.dynamic.evaluate import evaluate
from stockpot.measure.dynamic.outcomes import by_class, headline
from stockpot.measure.measurement import Context
from stockpot.measure.run import measure
from stockpot.results.schema import CellResult, Score
from stockpot.score.scorer import scorer_for

NAMES = tuple(TABLE_13)


def nine_classes() -> Dataset:
    """The images of Table 13: what model and oracle will say of each stands in its pixels."""
    pixels = torch.zeros(9 * EACH, 3, 3, 3, dtype=torch.uint8)
    labels = torch.arange(9).repeat_interleave(EACH)
    place = torch.arange(EACH)
    pixels[:, 0, 0, 0] = labels
    for which, counts in enumerate(TABLE_13.values()):
        own = slice(which * EACH, (which + 1) * EACH)
        for column, count in enumerate(counts[:3]):
            # Right as they are, validated, right when perturbed; the last only of validated ones.
            pixels[own, 1, 0, column] = (place < count).to(torch.uint8)
    pixels[:, 0, 1, 0] = 50  # what a step moves
    return Dataset("nine", "test", TensorImages(pixels), labels, NAMES, "0" * 64)


def level(pixels: Tensor, channel: int, row: int, column: int) -> Tensor:
    return (pixels[:, channel, row, column].detach() * 255).round().long()


class Scripted(nn.Module):
    """Right about images as they are, and about perturbed ones, as the table has it."""

    def forward(self, pixels: Tensor) -> Tensor:
        moved = level(pixels, 0, 1, 0) != 50
        right = torch.where(moved, level(pixels, 1, 0, 2), level(pixels, 1, 0, 0))
        answer = (level(pixels, 0, 0, 0) + 1 - right) % 9
        # How sure it is depends on the moving pixel, so that there is a gradient to follow.
        return nn.functional.one_hot(answer, 9) * (5 - pixels[:, 0, 1, 0])[:, None]


class Judge:
    name = "judge"

    @property
    def networks(self) -> Sequence[nn.Module]:
        return ()

    def judge(self, pixels: Tensor) -> Tensor:
        label, accepts = level(pixels, 0, 0, 0), level(pixels, 1, 0, 1)
        return nn.functional.one_hot((label + 1 - accepts) % 9, 9).float()


def score(scores: list[Score], metric: str, **condition: Any) -> float:
    return next(
        s.value for s in scores if s.metric == metric and condition.items() <= s.condition.items()
    )


@pytest.mark.parametrize("first", ["reconstruction", "perturbation"])
def test_table_13_from_a_search_with_its_counts(first: Any) -> None:
    data = nine_classes()
    model = make_classifier(Scripted(), NAMES, size=3)
    # One step, whichever candidate is the first.
    budget = 2 if first == "reconstruction" else 1
    rules = Rules(budget=budget, step=0.1, optimiser="sign", first=first)
    task = Task(model, Linear(), Judge(), rules)
    scorer = scorer_for(model.classes, data)
    found = evaluate(model, data, task, scorer, Context(batch_size=400)).outcomes
    assert int(found.validated.sum()) == 1102
    assert int((found.withstood & found.validated).sum()) == 308
    scores = headline(found, {}, rules, 0)
    for metric, percent in TOTAL.items():
        assert round(100 * score(scores, metric), 2) == percent
    # Which reading was taken makes no difference here: the judge looks at what no step moves.
    assert score(scores, "reconstruction_rate") == score(scores, "perturbation_rate") == 1102 / 1350
    assert score(scores, "perturbed_accuracy_of_moved") == 308 / 1102
    per_class = by_class(found, NAMES, {}, 0)
    for name, (correct, validated, withstood, printed) in TABLE_13.items():
        own = {"class": name}
        assert score(per_class, "class_accuracy", **own) == correct / EACH
        assert score(per_class, "class_validation_rate", **own) == validated / EACH
        assert score(per_class, "class_perturbed_accuracy", **own) == withstood / validated
        # A class's FMR divides by that class's own accuracy, and the total is pooled, no mean.
        assert round(100 * score(per_class, "class_fmr", **own), 2) == printed


SMALL: dict[str, Any] = {"generator": "colour", "budget": 4, "step": 0.1, "pictures": 0}


class Slope(nn.Module):
    """A seeded linear classifier of the toy pictures."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(4, 768, generator=generator) / 8)

    def forward(self, pixels: Tensor) -> Tensor:
        return (pixels.flatten(1) - 0.5) @ self.weight.T


def run(network: nn.Module, oracle: nn.Module | None = None, **params: Any) -> CellResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "load_for", lambda *a, **k: make_classifier(oracle))
        settings: dict[str, Any] = {"oracle": "none"}
        if oracle is not None:
            settings = {"oracle": "classifier", "oracle_params": {"model": "judge"}}
        chosen = {**SMALL, **settings, **params}
        return measure(make_classifier(network), {"dynamic": chosen}, data=make_dataset(24))[0]


def test_cost_counts_every_query_restarts_included() -> None:
    result = run(Slope(), restarts=3)
    # Nobody refuses: three climbs of four candidates, and the image before and after.
    assert result.score("model_queries").value == 3 * 4 + 2
    assert result.cost.images == 24 * (3 * 4 + 2)
    assert result.score("oracle_queries").value == 0
    judged = run(Slope(), ReadsLabel(4), budget=1)
    assert judged.score("oracle_queries").value == 2


def test_an_oracle_weaker_than_the_model_is_named_with_its_number() -> None:
    notes = run(ReadsLabel(4), Slope()).notes
    right = run(Slope()).score("accuracy").value
    assert any(
        f"weaker than the model it judges: it is right about {100 * right:.1f} %" in note
        and "the model about 100.0 %" in note
        for note in notes
    )
    assert not any("weaker" in note for note in run(Slope(), ReadsLabel(4)).notes)


class Hidden(nn.Module):
    """Two layers; `order` puts the hidden units into another order, which changes no answer."""

    def __init__(self, seed: int, order: Tensor | None = None) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        order = torch.arange(64) if order is None else order
        into = torch.randn(64, 768, generator=generator)[order] / 16
        out = torch.randn(4, 64, generator=generator)[:, order] / 4
        self.into, self.out = nn.Parameter(into), nn.Parameter(out)

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.relu((pixels.flatten(1) - 0.5) @ self.into.T) @ self.out.T


def test_kin_is_known_by_its_answers() -> None:
    shuffled = Hidden(0, torch.randperm(64, generator=torch.Generator().manual_seed(3)))
    halved = Hidden(0)
    halved.load_state_dict({k: v.half().float() for k, v in halved.state_dict().items()})
    for copy in (shuffled, halved):
        with pytest.raises(UserError, match="is the same function as, the model"):
            run(Hidden(0), copy)
    assert any(
        "not independent (forced)" in note for note in run(Hidden(0), halved, force=True).notes
    )
    assert not any("kin" in note for note in run(Hidden(0), Hidden(1)).notes)
    # Of several oracles each is looked at.
    few = next(make_dataset(8).batches(8)).images.float() / 255
    judges = [NetworkOracle(make_classifier(n), Setting(CLASSES), "o") for n in (Hidden(1), halved)]
    ensemble = networks_of(judges)
    with pytest.raises(UserError, match="the same function"):
        refuse_twin(among(make_classifier(Hidden(0)), CLASSES), ensemble, few, force=False)


def networks_of(members: list[NetworkOracle]) -> Oracle:
    from stockpot.dynamic.oracles.ensemble import EnsembleOracle

    return EnsembleOracle(members, "vote")


class Biased(nn.Module):
    """Six answers: the label that stands in the picture, but the fifth a little more."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = ReadsLabel(4)

    def forward(self, pixels: Tensor) -> Tensor:
        own = self.reads(pixels).softmax(dim=1)
        more = own.amax(dim=1, keepdim=True)
        return torch.cat([own, more + 1, more - 9], dim=1)


def test_the_vocabulary_of_the_oracle_decides_and_is_named() -> None:
    names = (*CLASSES, "yak", "zebu")
    data, few = make_dataset(8), next(make_dataset(8).batches(8)).images.float() / 255
    judged, convention = {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "load_for", lambda *a, **k: make_classifier(Biased(), names))
        for vocabulary in ("data", "model", "all"):
            params = {**SMALL, "oracle": "classifier", "oracle_params": {"model": "judge"}}
            params |= {"vocabulary": vocabulary, "budget": 1}
            # The model under test knows the zebu and no yak.
            model = make_classifier(Slope(), CLASSES)
            other = make_classifier(Widened(), (*CLASSES, "zebu"))
            result = measure(other, {"dynamic": params}, data=data)[0]
            judged[vocabulary] = result.score("coverage").value
            convention[vocabulary] = result.convention
            setting = with_vocabulary(Setting(CLASSES), vocabulary, model)  # type: ignore[arg-type]
            made = oracles.get("classifier")(setting, model="judge")
            assert made.judge(few).shape == (8, 4 + (vocabulary != "data"))
    # Its favourite is offered only where everything it knows is.
    assert judged == {"data": 1.0, "model": 1.0, "all": 0.0}
    assert "vocabulary data (4 classes)" in convention["data"]
    assert "vocabulary model (5 classes)" in convention["model"]
    assert "vocabulary all (6 classes)" in convention["all"]
    with pytest.raises(UserError, match="names its classes"):
        with_vocabulary(Setting(CLASSES), "model", make_classifier(Slope(), ("0", "1", "2", "3")))


class Widened(Slope):
    """One more answer, which it never gives."""

    def forward(self, pixels: Tensor) -> Tensor:
        return nn.functional.pad(super().forward(pixels), (0, 1), value=-9.0)


def test_a_model_whose_features_trained_the_generator_is_marked() -> None:
    few = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    data = replace(make_dataset(4, size=64), name="icons")
    maker = generators.get("vqgan")()
    for name, marked in (("icons-resnet", True), ("icons-vit", False)):
        weights = read_tensors(zoo_folder(name)).values()
        floats = [nn.Parameter(tensor) for tensor in weights if tensor.is_floating_point()]
        model = make_classifier(nn.ParameterList(floats), size=64)
        notes = about_generator(Task(model, maker, None, Rules()), model, data, few)
        assert any("features of icons-resnet" in note for note in notes) == marked


class KilledError(Exception):
    """Stands for a process that ends."""


def test_a_killed_cell_goes_on_inside_and_gives_the_same(tmp_path: Path) -> None:
    params = {**SMALL, "oracle": "none", "pictures": 4}
    settings: dict[str, Any] = {"data": make_dataset(24), "batch_size": 5}
    whole = measure(make_classifier(Slope()), {"dynamic": params}, **settings)[0]
    seen: list[int] = []

    def progress(what: str, done: int, total: int) -> None:
        seen.append(done)
        if done == 15:
            raise KilledError

    with pytest.raises(KilledError):
        measure(make_classifier(Slope()), {"dynamic": params}, out=tmp_path, progress=progress,
                **settings)  # fmt: skip
    (left,) = (tmp_path / "results" / ".unfinished").iterdir()
    assert len(list((left / "search").iterdir())) == 3
    seen.clear()
    # Another batch size goes on from the same place.
    again = measure(make_classifier(Slope()), {"dynamic": params}, out=tmp_path,
                    progress=lambda what, done, total: seen.append(done),
                    **settings | {"batch_size": 7})[0]  # fmt: skip
    assert seen == [22, 24]
    assert again.scores == whole.scores
    assert again.outcomes == whole.outcomes
    assert again.pictures == whole.pictures
    assert any("went on after 15 images" in note for note in again.notes)
    assert not (tmp_path / "results" / ".unfinished").exists()


def test_only_some_images_are_kept_for_the_page_and_all_for_an_export(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(evaluation, "_PICTURED", 4)
    model, data = make_classifier(Slope()), make_dataset(24)
    task = Task(model, generators.get("colour")(), None, Rules(budget=3, step=0.1))
    scorer = scorer_for(model.classes, data)
    some = evaluate(model, data, task, scorer, Context(batch_size=5))
    assert some.pictured.tolist() == [0, 6, 12, 18]
    every = evaluate(model, data, task, scorer, Context(batch_size=5), keep_images=True)
    assert every.pictured.tolist() == list(range(24))
    for one, other in zip(some.images([6, 18]), every.images([6, 18]), strict=True):
        assert torch.equal(one, other)
    assert np.array_equal(some.outcomes.withstood, every.outcomes.withstood)
    result = run(Slope(), pictures=3, export=str(tmp_path / "hard"))
    assert len(list((tmp_path / "hard").glob("*/*.png"))) == 24  # originals lie deeper
    assert len(result.pictures) == 3

"""Many models at once: data is paid for once, and every number is that of a model alone."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from pico import CLASSES, make_classifier, make_dataset
from stockpot.corrupt.apply import corrupt
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.encoded import EncodedImages
from stockpot.engine import Outcome
from stockpot.errors import BadDataError, PartialResultsError
from stockpot.measure.grids import CorruptedBatches
from stockpot.measure.run import measure
from stockpot.measure.together import arriving, jobs
from stockpot.measure.together.pictures import Pictures
from stockpot.models.classifier import Classifier
from stockpot.models.forward.passes import Passes
from stockpot.results.schema import CellResult
from stockpot.results.store import ResultStore

FEW = {"corruptions": ("contrast", "gaussian_noise"), "severities": (1, 5), "baseline": "none"}
BOTH = {"clean": {}, "corruption": FEW}
CPU = torch.device("cpu")


def random_model(seed: int, size: int = 16) -> Classifier:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 4))
    return make_classifier(network, size=size)


def encoded_data(n: int = 12) -> Dataset:
    """Pictures of different sizes, which are decoded whenever they are gone through."""
    plain = make_dataset(n, 24)
    assert isinstance(plain.images, TensorImages)
    files = []
    for row, pixels in enumerate(plain.images.pixels):
        picture = Image.fromarray(pixels.permute(1, 2, 0).numpy()).resize((24 + row % 3, 24))
        picture.save(file := io.BytesIO(), "PNG")
        files.append(file.getvalue())
    images = EncodedImages(tuple(files), tuple(map(str, range(n))))
    return Dataset("encoded", "test", images, plain.labels, CLASSES, "e" * 64)


def numbers(results: list[CellResult]) -> list[object]:
    told = [(r.key, r.scores, r.outcomes, r.notes, r.flags, r.convention) for r in results]
    return sorted(told, key=lambda row: (row[0].model, row[0].measure, row[0].data))


def alone(models: dict[str, Classifier], measures: object, data: Dataset) -> list[object]:
    found = [r for name, m in models.items() for r in measure({name: m}, measures, data=data)]  # type: ignore[arg-type]
    return numbers(found)


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockpot.measure.grids._PICTURES", CorruptedBatches(room=0))
    monkeypatch.setattr("stockpot.measure.grids._KEPT", {})


@pytest.mark.usefixtures("nothing_kept")
def test_models_pay_for_data_once_and_have_the_numbers_of_one_alone(monkeypatch) -> None:
    data, models = encoded_data(), {f"m{seed}": random_model(seed) for seed in range(3)}
    expected = alone(models, BOTH, data)
    monkeypatch.setattr("stockpot.measure.grids._KEPT", {})
    decoded: Counter[int] = Counter()
    corrupted: Counter[str] = Counter()

    def counted_decode(self, start, stop, fit, decode=EncodedImages._decode):
        decoded.update(range(start, stop))
        return decode(self, start, stop, fit)

    def counted(images, name, *rest, **options):
        corrupted[name] += len(images)
        return corrupt(images, name, *rest, **options)

    monkeypatch.setattr(EncodedImages, "_decode", counted_decode)
    monkeypatch.setattr("stockpot.measure.grids.corrupt", counted)
    together = measure(models, BOTH, data=data, batch_size=256)
    assert numbers(together) == expected
    assert corrupted == {"contrast": 2 * 12, "gaussian_noise": 2 * 12}
    # Clean, the grid's clean pictures and those it corrupts; the first row also tells the size,
    # once for each model.
    assert decoded[11] <= 3
    assert all(result.cost.together == 3 for result in together)


@pytest.mark.usefixtures("nothing_kept")
def test_models_that_want_other_sizes_go_in_groups_of_their_own() -> None:
    sizes = {"a": 16, "b": 24, "c": 16, "d": 24, "e": 32}
    models = {name: random_model(seed, size) for seed, (name, size) in enumerate(sizes.items())}
    together = measure(models, BOTH, data=encoded_data())
    assert numbers(together) == alone(models, BOTH, encoded_data())
    groups = {r.key.model: r.cost.together for r in together if r.key.measure == "clean"}
    assert groups == {"a": 2, "b": 2, "c": 2, "d": 2, "e": 1}


@pytest.mark.usefixtures("nothing_kept")
def test_models_stream_in_groups_that_fit(monkeypatch, toy_data) -> None:
    models = {f"m{seed}": random_model(seed) for seed in range(5)}
    expected = alone(models, BOTH, toy_data)
    size = 4 * (48 * 4 + 4)
    monkeypatch.setattr(arriving, "model_room", lambda device: 2 * size)
    together = measure(models, BOTH, data=toy_data)
    assert numbers(together) == expected
    assert [r.cost.together for r in together if r.key.measure == "clean"] == [2, 2, 2, 2, 1]


class Breaks(nn.Module):
    """Breaks at its third batch."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__()
        self.layer = nn.Linear(768, 4)
        self.problem, self.batches = problem, 0

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        if self.batches >= 3:
            raise self.problem
        return self.layer(pixels.flatten(1))


def test_a_model_that_fails_ends_alone(tmp_path, toy_data) -> None:
    models = {"a": random_model(0), "bad": make_classifier(Breaks(BadDataError("not me.")))}
    models["b"] = random_model(1)
    with pytest.raises(PartialResultsError, match=r"1 of 3 cells failed, 2 are saved.*not me"):
        measure(models, "clean", data=toy_data, out=tmp_path, batch_size=7)
    del models["bad"]
    saved = list(ResultStore(tmp_path / "results"))
    assert numbers(saved) == alone(models, "clean", toy_data)


@pytest.mark.usefixtures("nothing_kept")
def test_killed_and_resumed_equals_undisturbed(monkeypatch, tmp_path, toy_data) -> None:
    models = {f"m{seed}": random_model(seed) for seed in range(3)}
    expected = alone(models, BOTH, toy_data)
    monkeypatch.setattr("stockpot.measure.grids._KEPT", {})
    killed = models | {"z": make_classifier(Breaks(KeyboardInterrupt()))}
    with pytest.raises(KeyboardInterrupt):
        # `clean` has one batch and is whole; the grid is killed with all that are in it.
        measure(killed, BOTH, data=toy_data, out=tmp_path)
    saved = list(ResultStore(tmp_path / "results"))
    assert {r.key.measure for r in saved} == {"clean"}
    done = []
    resumed = measure(
        models, BOTH, data=toy_data, out=tmp_path, done=lambda r, n, of: done.append(r.key.measure)
    )
    assert numbers(resumed) == expected
    assert Counter(done) == {"clean": 3, "corruption": 3}


def test_one_model_under_two_names_is_watched_once_for_each(toy_data) -> None:
    class Silent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(4))

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return self.bias.expand(len(pixels), 4) * torch.nan

    model = make_classifier(Silent())
    for result in measure({"a": model, "b": model}, "clean", data=toy_data):
        (flag,) = [flag for flag in result.flags if flag.name == "non_finite"]
        assert (flag.count, flag.of) == (40, 40)


def test_a_baseline_among_the_models_is_measured_with_them(monkeypatch, pico_vit, toy_data) -> None:
    monkeypatch.setattr("stockpot.measure.grids._KEPT", {})
    asked: list[int] = []
    ask = Passes.__call__  # of a model, or of its faster copy
    monkeypatch.setattr(Passes, "__call__", lambda self, x: asked.append(len(x)) or ask(self, x))
    params = {"corruption": FEW | {"baseline": str(pico_vit)}}
    results = measure({"a": random_model(0), "p": pico_vit}, params, data=toy_data)
    assert results[1].score("mce").value == pytest.approx(1.0)
    assert sum(size for size in asked if size == 40) == 2 * 5 * 40  # and not a third time


def test_seconds_are_divided_and_add_up(toy_data) -> None:
    import time

    start = time.perf_counter()
    results = measure({f"m{n}": random_model(n) for n in range(4)}, "clean", data=toy_data)
    passed = time.perf_counter() - start
    assert 0 < sum(r.cost.wall_seconds for r in results) <= passed
    assert 0 < sum(sum(r.cost.stages.values()) for r in results) <= passed


def test_workers_share_out_models_and_then_tasks(pico_vit, toy_data) -> None:
    from stockpot.measure.cells import Cell, DataSpec, ModelSpec

    def asked(models: int, tasks: int, measures: tuple[str, ...] = ("clean",)) -> list[jobs.Asked]:
        cells = [
            Cell(ModelSpec(f"m{m}", f"m{m}"), name, DataSpec(f"d{d}", toy_data), {}, 0, None, "", 1)
            for m in range(models)
            for d in range(tasks)
            for name in measures
        ]
        return [jobs.Asked(number, cell) for number, cell in enumerate(cells)]

    def names(found: list[list[jobs.Asked]]) -> list[set[str]]:
        return [{f"{one.cell.model.name}{one.cell.data.name}" for one in job} for job in found]

    assert [len(job) for job in jobs.split(asked(40, 1), 1)] == [40]
    assert [len(job) for job in jobs.split(asked(40, 1), 3)] == [14, 13, 13]
    assert names(jobs.split(asked(1, 4), 2)) == [{"m0d0", "m0d1"}, {"m0d2", "m0d3"}]
    assert jobs.split([], 2) == []
    # An attack shares nothing, and is a job of its own.
    both = jobs.split(asked(2, 1, ("clean", "adversarial")), 2)
    assert [[one.cell.measure for one in job] for job in both] == [
        ["adversarial"],
        ["adversarial"],
        ["clean"],
        ["clean"],
    ]


def test_what_a_killed_worker_had_saved_is_found(monkeypatch, tmp_path, toy_data) -> None:
    class Killed:
        size = 2

        def run(self, function, jobs):
            function(jobs[0])  # saves, and dies before it can say so
            for number in range(len(jobs)):
                yield Outcome(number, None, BadDataError("killed."))

    monkeypatch.setattr("stockpot.measure.run.chosen_engine", lambda _: Killed())
    models = {"a": random_model(0), "b": random_model(1)}
    with pytest.raises(PartialResultsError, match=r"1 of 2 cells failed, 1 are saved"):
        measure(models, "clean", data=toy_data, out=tmp_path, engine="two")


class Numbered:
    def __init__(self, number: int) -> None:
        self.number, self.pixels = number, torch.full((1,), number)


def test_pictures_are_made_once_in_step_and_again_out_of_step() -> None:
    made: list[int] = []

    def make():
        for number in range(4):
            made.append(number)
            yield Numbered(number)

    pictures = Pictures()
    first, second = (pictures.shared("x", make, CPU) for _ in range(2))
    assert [(next(first).number, next(second).number) for _ in range(2)] == [(0, 0), (1, 1)]
    assert made == [0, 1]
    assert [item.number for item in first] == [2, 3]
    assert [item.number for item in second] == [2, 3]
    assert [item.number for item in pictures.shared("x", make, CPU)] == [0, 1, 2, 3]


def test_all_who_go_together_learn_that_a_picture_is_broken() -> None:
    def make():
        yield Numbered(0)
        raise BadDataError("broken.")

    pictures = Pictures()
    for reader in [pictures.shared("x", make, CPU) for _ in range(2)]:
        assert next(reader).number == 0
        with pytest.raises(BadDataError, match="broken"):
            next(reader)


@pytest.mark.gpu
def test_two_streams_give_the_numbers_of_one(monkeypatch, toy_data: Dataset) -> None:
    monkeypatch.setattr("stockpot.measure.grids._PICTURES", CorruptedBatches(room=0))
    params = {"corruption": {"severities": (1, 5), "baseline": "none"}}

    def outcomes() -> list[dict[str, str]]:
        monkeypatch.setattr("stockpot.measure.grids._KEPT", {})
        models = {f"m{seed}": random_model(seed).cuda() for seed in range(3)}
        found = measure(models, params, data=toy_data, device="cuda", batch_size=8)
        return [result.outcomes for result in found]

    two = outcomes()
    monkeypatch.setattr("stockpot.measure.together.pictures.beside", lambda source, *_: source)
    assert two == outcomes()


def test_a_towers_text_is_there_once_and_answers_are_the_same(tmp_path: Path) -> None:
    from dual_encoders import make_clip, make_expert
    from stockpot.models.load import load_for
    from stockpot.models.zero_shot import ZeroShotNetwork

    base = make_clip(tmp_path / "base")
    tower = make_expert(base, tmp_path / "tower", seed=1)
    other = make_clip(tmp_path / "other", seed=5)
    data = make_dataset(8)
    pixels = torch.from_numpy(np.random.default_rng(0).random((3, 3, 16, 16), np.float32))
    texts = []
    for place in (base, tower, other):
        kept, new = load_for(place, data, keep=True), load_for(place, data).eval()
        assert torch.equal(kept(pixels), new(pixels))
        assert kept.origin == new.origin
        assert isinstance(kept.network, ZeroShotNetwork)
        texts.append(kept.network.model.text_model)
    assert texts[0] is texts[1]
    assert texts[0] is not texts[2]

"""Models join others that are under way: nobody waits for what another does not need."""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from pico import CLASSES, make_dataset
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.encoded import EncodedImages
from stockpot.errors import BadDataError, PartialResultsError
from stockpot.measure.cells import DataSpec
from stockpot.measure.run import measure
from stockpot.measure.together.fetched import Fetched
from stockpot.measure.together.queued import HIDES, Queued
from stockpot.models.forward.passes import Passes, kept_passes
from stockpot.models.plain.load import plain_network
from stockpot.results.schema import CellResult
from stockpot.results.statistics import bootstrap_mean
from stockpot.results.store import ResultStore
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import Scorer, scorer_for

CPU = torch.device("cpu")
LONG = 30
"""Seconds after which what should have happened beside has not."""


@pytest.fixture
def four(pico_vit: Path, tmp_path: Path) -> list[str]:
    """Folders of one network with different heads."""
    folders = []
    for turn in range(4):
        folder = Path(shutil.copytree(pico_vit, tmp_path / f"vit{turn}"))
        weights = load_file(pico_vit / "model.safetensors")
        weights["classifier.weight"] = weights["classifier.weight"].roll(turn, 0).contiguous()
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        folders.append(str(folder))
    return folders


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor does as a GPU does."""
    monkeypatch.setattr("stockpot.measure.together.arriving.loads_beside", lambda device: True)
    monkeypatch.setattr("stockpot.measure.together.group.picture_room", lambda device: 2**20)


def numbers(results: list[CellResult]) -> list[object]:
    told = [(r.key, r.scores, r.outcomes, r.notes, r.flags, r.convention) for r in results]
    return sorted(told, key=lambda row: row[0].model)


def alone(models: list[str], data: Dataset) -> list[object]:
    return numbers([r for model in models for r in measure(model, "clean", data=data)])


def happened(event: threading.Event) -> None:
    assert event.wait(LONG), "what should go on beside this does not"


def encoded(n: int = 24) -> Dataset:
    plain = make_dataset(n)
    assert isinstance(plain.images, TensorImages)
    files = []
    for pixels in plain.images.pixels:
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(file := io.BytesIO(), "PNG")
        files.append(file.getvalue())
    images = EncodedImages(tuple(files), tuple(map(str, range(n))))
    return Dataset("encoded", "test", images, plain.labels, CLASSES, "e" * 64)


@pytest.mark.usefixtures("joining")
def test_a_model_is_loaded_while_the_first_is_asked(
    monkeypatch: pytest.MonkeyPatch, four: list[str], toy_data: Dataset
) -> None:
    expected = alone(four, toy_data)
    asked = threading.Event()

    def late(folder: Path, *rest: object) -> object:
        if str(folder) != four[0]:
            happened(asked)
        return plain_network(folder, *rest)  # type: ignore[arg-type]

    def heard(self: Passes, pixels: torch.Tensor, ask=Passes.__call__) -> torch.Tensor:  # type: ignore[no-untyped-def]
        asked.set()
        return ask(self, pixels)

    monkeypatch.setattr("stockpot.models.huggingface.plain_network", late)
    monkeypatch.setattr(Passes, "__call__", heard)
    together = measure(four, "clean", data=toy_data, batch_size=8)
    assert numbers(together) == expected
    assert together[-1].cost.together == 4


@pytest.mark.usefixtures("joining")
@pytest.mark.parametrize("room", [1, 3 * 8 * 3 * 16 * 16, 2**20])
def test_numbers_are_those_of_a_model_alone_in_whatever_room(
    monkeypatch: pytest.MonkeyPatch, four: list[str], room: int
) -> None:
    data = encoded()
    decoded: list[int] = []

    def noted(self, start, stop, fits, decode=EncodedImages._decode):  # type: ignore[no-untyped-def]
        decoded.extend(range(start, stop))
        return decode(self, start, stop, fits)

    expected = alone(four, data)
    monkeypatch.setattr("stockpot.measure.together.group.picture_room", lambda device: room)
    monkeypatch.setattr(EncodedImages, "_decode", noted)
    assert numbers(measure(four, "clean", data=data, batch_size=8)) == expected
    assert sorted(decoded) == list(range(24))  # once for all of them


@pytest.mark.usefixtures("joining")
def test_a_model_sees_what_is_there_while_the_first_waits_for_a_picture(
    monkeypatch: pytest.MonkeyPatch, four: list[str]
) -> None:
    data = encoded()
    expected = alone(four[:2], data)
    answered: dict[int, int] = {}
    twice = threading.Event()

    def slow(self, start, stop, fits, decode=EncodedImages._decode):  # type: ignore[no-untyped-def]
        if start >= 16:
            happened(twice)
        return decode(self, start, stop, fits)

    def heard(self: Passes, pixels: torch.Tensor, ask=Passes.__call__) -> torch.Tensor:  # type: ignore[no-untyped-def]
        answered[id(self)] = answered.get(id(self), 0) + 1
        if list(answered.values()) == [2, 2]:
            twice.set()
        return ask(self, pixels)

    monkeypatch.setattr(EncodedImages, "_decode", slow)
    monkeypatch.setattr(Passes, "__call__", heard)
    assert numbers(measure(four[:2], "clean", data=data, batch_size=8)) == expected


@pytest.mark.usefixtures("joining")
@pytest.mark.parametrize("busy", [True, False])
def test_who_is_new_begins_while_a_gpu_is_busy(
    monkeypatch: pytest.MonkeyPatch, four: list[str], toy_data: Dataset, busy: bool
) -> None:
    expected = alone(four, toy_data)
    asked: list[Passes] = []

    def heard(self: Passes, pixels: torch.Tensor, ask=Passes.__call__) -> torch.Tensor:  # type: ignore[no-untyped-def]
        for thread in threading.enumerate():
            if asked and thread.name.startswith("load"):
                thread.join(LONG)
        asked.append(self)
        return ask(self, pixels)

    monkeypatch.setattr(Passes, "__call__", heard)
    monkeypatch.setattr(Queued, "seconds", HIDES if busy else HIDES / 2)
    told: list[str] = []
    together = measure(
        four,
        "clean",
        data=toy_data,
        batch_size=8,
        done=lambda result, *_: told.append(result.key.model),
    )
    assert numbers(together) == expected
    # Whichever has seen all first ends first.
    assert sorted(told) == [Path(folder).name for folder in four]
    # All are there in the second step, others being loaded after the first: each begins at once,
    # or after those before it; one may still begin where the next batch of those is late.
    begun = len(set(asked[:6]))
    assert begun == 4 if busy else begun < 4


@pytest.mark.usefixtures("joining")
def test_what_is_right_is_found_once_for_all_models(
    monkeypatch: pytest.MonkeyPatch, four: list[str], toy_data: Dataset
) -> None:
    made: list[tuple[str, ...]] = []

    def noted(classes: tuple[str, ...], data: Dataset, space: ClassSpace) -> Scorer:
        made.append(classes)
        return scorer_for(classes, data, space)

    monkeypatch.setattr("stockpot.measure.measurement.scorer_for", noted)
    measure(four, "clean", data=toy_data, batch_size=8)
    assert len(made) == 1


@pytest.mark.usefixtures("joining")
@pytest.mark.parametrize("models", [1, 4])
def test_passes_are_made_while_the_first_pictures_are_decoded(
    monkeypatch: pytest.MonkeyPatch, four: list[str], models: int
) -> None:
    data, how = encoded(), {"batch_size": 10, "precision": "bf16"}
    each = [r for one in four[:models] for r in measure(one, "clean", data=data, **how)]
    kept_passes.cache_clear()  # as if nobody had been asked
    prepared, decoding = threading.Event(), threading.Event()
    made: list[tuple[tuple[int, ...], int]] = []
    scored: list[int] = []

    def slow(self, start, stop, fits, decode=EncodedImages._decode):  # type: ignore[no-untyped-def]
        decoding.set()
        happened(prepared)
        return decode(self, start, stop, fits)

    def noted(self, shape, count, prepare=Passes.prepare):  # type: ignore[no-untyped-def]
        if models > 1:  # for one model alone nobody fetches, but what decodes ahead
            happened(decoding)
        made.append((shape, count))
        found = prepare(self, shape, count)
        prepared.set()
        return found

    def losses(self, logits, rows, own=Scorer.losses):  # type: ignore[no-untyped-def]
        scored.append(len(logits))
        return own(self, logits, rows)

    monkeypatch.setattr("stockpot.measure.measurement.waits_for_pictures", lambda *_: True)
    monkeypatch.setattr(EncodedImages, "_decode", slow)
    monkeypatch.setattr(Passes, "prepare", noted)
    monkeypatch.setattr(Scorer, "losses", losses)
    assert numbers(measure(four[:models], "clean", data=data, **how)) == numbers(each)
    assert made == [((3, 16, 16), 10)]
    assert sorted(scored) == [10, *[24] * models]  # once on noise, and few outputs at once


@pytest.mark.usefixtures("joining")
def test_statistics_of_one_model_are_done_while_another_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, four: list[str], toy_data: Dataset
) -> None:
    expected = alone(four[:2], toy_data)
    begun, saved = threading.Event(), threading.Event()
    batches: list[object] = []

    def met(*given: object, **options: object) -> object:
        begun.set()
        return bootstrap_mean(*given, **options)  # type: ignore[arg-type]

    def heard(self: Passes, pixels: torch.Tensor, ask=Passes.__call__) -> torch.Tensor:  # type: ignore[no-untyped-def]
        batches.append(self)
        if len(batches) == 10:  # the last batch of the second model
            happened(begun)
            happened(saved)
        return ask(self, pixels)

    def keeps(self, *given, save=ResultStore.save):  # type: ignore[no-untyped-def]
        found = save(self, *given)
        saved.set()
        return found

    monkeypatch.setattr("stockpot.measure.clean.bootstrap_mean", met)
    monkeypatch.setattr(Passes, "__call__", heard)
    monkeypatch.setattr(ResultStore, "save", keeps)
    together = measure(four[:2], "clean", data=toy_data, batch_size=8, out=tmp_path / "out")
    assert numbers(together) == expected


@pytest.mark.usefixtures("joining")
def test_a_model_that_cannot_be_loaded_ends_alone(
    tmp_path: Path, four: list[str], toy_data: Dataset
) -> None:
    whole = (Path(four[1]) / "model.safetensors").read_bytes()
    (Path(four[1]) / "model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(PartialResultsError, match=r"1 of 4 cells failed, 3 are saved"):
        measure(four, "clean", data=toy_data, out=tmp_path / "out", batch_size=8)
    saved = list(ResultStore(tmp_path / "out" / "results"))
    others = [four[0], *four[2:]]
    assert numbers(saved) == alone(others, toy_data)


@pytest.mark.usefixtures("joining")
def test_what_was_whole_is_saved_when_a_run_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, four: list[str], toy_data: Dataset
) -> None:
    expected = alone(four, toy_data)
    batches: list[object] = []

    def stopped(self: Passes, pixels: torch.Tensor, ask=Passes.__call__) -> torch.Tensor:  # type: ignore[no-untyped-def]
        batches.append(self)
        if len(batches) == 8:
            raise KeyboardInterrupt
        return ask(self, pixels)

    with monkeypatch.context() as patch:
        patch.setattr(Passes, "__call__", stopped)
        with pytest.raises(KeyboardInterrupt):
            measure(four, "clean", data=toy_data, out=tmp_path / "out", batch_size=8)
    (saved,) = ResultStore(tmp_path / "out" / "results")
    assert saved.key.model == "vit0"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("load")]
    resumed = measure(four, "clean", data=toy_data, out=tmp_path / "out", batch_size=8)
    assert numbers(resumed) == expected


@pytest.mark.usefixtures("joining")
def test_what_is_done_beside_is_in_nobodys_stages(four: list[str], toy_data: Dataset) -> None:
    import time

    start = time.perf_counter()
    results = measure(four, "clean", data=toy_data, batch_size=8)
    passed = time.perf_counter() - start
    assert 0 < sum(r.cost.wall_seconds for r in results) <= passed
    assert 0 < sum(sum(r.cost.stages.values()) for r in results) <= passed


def test_the_first_model_is_loaded_while_the_data_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, four: list[str], tmp_path: Path, toy_data: Dataset
) -> None:
    monkeypatch.setattr("stockpot.measure.together.loading.loads_beside", lambda device: True)
    loaded: list[str] = []
    begun = threading.Event()

    def noted(folder: Path, *rest: object) -> object:
        loaded.append(str(folder))
        begun.set()
        return plain_network(folder, *rest)  # type: ignore[arg-type]

    def looked_at(self: DataSpec) -> Dataset:
        happened(begun)
        return toy_data

    monkeypatch.setattr("stockpot.models.huggingface.plain_network", noted)
    monkeypatch.setattr(DataSpec, "load", looked_at)
    for _ in range(2):  # the second time all is saved, and nothing is loaded
        measure(four[0], "clean", data=toy_data, out=tmp_path / "out")
        assert loaded == four[:1]


@pytest.mark.gpu
@pytest.mark.parametrize("room", [1, 3 * 8 * 3 * 16 * 16, 2**20])
def test_on_a_gpu_numbers_are_those_of_a_model_alone(
    monkeypatch: pytest.MonkeyPatch, four: list[str], room: int
) -> None:
    data = encoded()
    on = {"device": "cuda", "batch_size": 8}
    expected = numbers([r for model in four for r in measure(model, "clean", data=data, **on)])
    monkeypatch.setattr("stockpot.measure.together.group.picture_room", lambda device: room)
    together = measure(four, "clean", data=data, **on)
    assert numbers(together) == expected
    assert together[-1].cost.together == 4


class Item:
    def __init__(self, number: int) -> None:
        self.number, self.pixels = number, torch.zeros(1)


def test_one_can_ask_whether_a_batch_is_there() -> None:
    go = threading.Event()

    def make() -> Iterator[Item]:
        yield Item(0)
        happened(go)
        yield Item(1)
        raise BadDataError("broken.")

    fetched = Fetched(make, CPU)
    first = fetched.take()
    assert first is not None
    assert first.number == 0
    assert not fetched.ready()
    go.set()
    second = fetched.take()
    assert second is not None
    assert second.number == 1
    for _ in range(2):
        with pytest.raises(BadDataError, match="broken"):
            fetched.take()
    assert fetched.ready()
    fetched.close()


def test_no_more_is_fetched_than_a_few_and_nothing_when_it_is_closed() -> None:
    made: list[int] = []
    ended = threading.Event()

    def make() -> Iterator[Item]:
        try:
            for number in range(100):
                made.append(number)
                yield Item(number)
        finally:
            ended.set()

    fetched = Fetched(make, CPU)
    assert fetched.take() is not None
    fetched.close()
    assert ended.is_set()
    assert len(made) <= 4

"""From files to a device: each looked at once and decoded once, and never the wrong one."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from stockpot.corrupt.sizes import sizing
from stockpot.datasets import encoded
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.load import load_dataset
from stockpot.datasets.stream import ahead, file_check, processes, transfer
from stockpot.datasets.stream.decoded import DecodedPictures, fit_key, told_key
from stockpot.datasets.stream.file_check import inspect, reading_again
from stockpot.datasets.stream.geometry import Geometry, made, published_crop, told
from stockpot.datasets.stream.look_ahead import look_ahead
from stockpot.datasets.stream.transfer import moved, one_ahead
from stockpot.engine.cores import usable_cores
from stockpot.errors import BadDataError
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize


def png(seed: int, side: int = 40) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def known(count: int) -> EncodedImages:
    """Pictures whose content is known."""
    files = tuple(png(seed) for seed in range(count))
    contents = tuple(hashlib.sha256(data).hexdigest() for data in files)
    return EncodedImages(files, tuple(map(str, range(count))), contents)


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Everything that is decoded from now on, with an empty cache."""
    seen: list[object] = []

    def count(source: Path | bytes) -> Image.Image:
        seen.append(source)
        return opener(source)

    opener: Callable[[Path | bytes], Image.Image] = encoded.open_rgb
    monkeypatch.setattr(encoded, "open_rgb", count)
    monkeypatch.setattr(encoded, "DECODED", DecodedPictures())
    return seen


def preprocess(side: int, mean: float = 0.5) -> Preprocess:
    return Preprocess(ImageSize(side, side), side + 4, (mean,) * 3)


def test_every_picture_is_decoded_once_for_all_models_and_subsets(decodings: list[object]) -> None:
    images = known(20)
    first = torch.cat(list(images.batches(7, preprocess(16).fit)))
    # Another model of the same geometry, another batch size, some of the rows.
    again = torch.cat(list(images.take([3, 19, 3]).batches(2, preprocess(16, mean=0.1).fit)))
    assert len(decodings) == 20
    assert torch.equal(again, first[[3, 19, 3]])
    plain = [np.asarray(preprocess(16).fit(Image.open(io.BytesIO(data)))) for data in images.items]
    assert np.array_equal(first.permute(0, 2, 3, 1).numpy(), np.stack(plain))
    other = torch.cat(list(images.batches(7, preprocess(12).fit)))
    assert other.shape[-1] == 12
    assert len(decodings) == 40


def test_threads_decode_a_few_batches_ahead_and_no_more(decodings: list[object]) -> None:
    batches = known(60).batches(1, preprocess(16).fit)
    next(batches)
    time.sleep(0.3)  # decoding all of them takes a tenth of that
    few = len(decodings)
    assert few <= 2 * usable_cores() + 4
    assert len(list(batches)) == 59
    assert len(decodings) == 60


def test_two_fits_share_one_decoding_and_equal_each_alone(decodings: list[object]) -> None:
    images = known(9)
    data = Dataset("d", "test", images, torch.zeros(9, dtype=torch.long), ("a",), "f")
    way = sizing(data, preprocess(24), "published")
    assert way.native is not None  # 40 px pictures are small ones, corrupted as they are
    pairs = list(way.batches(data, 4))
    assert len(decodings) == 9
    alone = torch.cat(list(images.batches(9, preprocess(24).fit)))
    assert torch.equal(torch.cat([batch.images for batch, _ in pairs]), alone)
    assert torch.cat([base for _, base in pairs]).shape[-1] == 40
    assert torch.cat([batch.rows for batch, _ in pairs]).tolist() == list(range(9))


def test_room_is_kept_and_what_came_first_stays(decodings: list[object], monkeypatch) -> None:
    each = 16 * 16 * 3
    monkeypatch.setattr(encoded, "DECODED", DecodedPictures(room=5 * each))
    images = known(8)
    for _ in range(3):
        list(images.batches(8, preprocess(16).fit))
    assert len(decodings) == 8 + 3 + 3
    assert encoded.DECODED._bytes == 5 * each
    for _ in range(40):  # passes over something else, without room for it
        list(known(1).take([]).batches(1, None))
    list(known(9).take([8]).batches(1, preprocess(16).fit))  # now the old ones make room
    assert encoded.DECODED._bytes == each


def test_a_picture_without_a_known_content_is_always_decoded(decodings: list[object]) -> None:
    images = EncodedImages((png(0),), ("a",))
    for _ in range(2):
        list(images.batches(1, preprocess(16).fit))
    assert len(decodings) == 2


def test_fits_are_told_apart_by_what_they_make() -> None:
    assert fit_key(preprocess(16).fit) == fit_key(preprocess(16, mean=0.1).fit)
    assert fit_key(preprocess(16).fit) != fit_key(preprocess(16).squeeze)
    assert fit_key(partial(published_crop, side=64)) == fit_key(partial(published_crop, side=64))
    assert fit_key(partial(published_crop, side=64)) != fit_key(partial(published_crop, side=224))
    # Who knows a geometry without a model keeps pictures where the model looks.
    exact = Preprocess(ImageSize(16, 20), ImageSize(18, 22), interpolation="bilinear")
    for one in (preprocess(16), exact):
        words = json.loads(json.dumps(told(one.fit)))
        same = {fit_key(one.fit), fit_key(one.geometry.fit), fit_key(made(words)), told_key(words)}
        assert len(same) == 1
    assert fit_key(exact.fit) != fit_key(Geometry(*exact.geometry[:2], "bicubic").fit)
    side = 5
    assert fit_key(lambda picture: picture.resize((side, side))) is None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two pictures that were written long ago, and a cache of their own."""
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(file_check, "_SETTLED", -1.0)
    place = tmp_path / "photos" / "a"
    place.mkdir(parents=True)
    for seed in range(2):
        (place / f"{seed}.png").write_bytes(png(seed))
    return place.parent


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read."""
    names: list[str] = []
    true = Path.read_bytes

    def count(path: Path) -> bytes:
        names.append(path.name)
        return true(path)

    monkeypatch.setattr(Path, "read_bytes", count)
    return names


def test_a_folder_is_read_once_and_a_changed_file_again(folder: Path, read: list[str]) -> None:
    before = load_dataset(str(folder)).fingerprint
    assert sorted(read) == ["0.png", "1.png"]
    assert load_dataset(str(folder)).fingerprint == before
    assert len(read) == 2
    changed = folder / "a" / "1.png"
    facts = changed.stat()
    os.utime(changed, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))  # the same bytes, touched
    assert load_dataset(str(folder)).fingerprint == before
    assert read[2:] == ["1.png"]
    # Other bytes of the same size, with the old time put back: the time of change tells.
    data = bytearray(changed.read_bytes())
    read.clear()
    changed.write_bytes(bytes(data[:-30]) + bytes(data[-30:]))
    os.utime(changed, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    load_dataset(str(folder))
    assert read == ["1.png"]


def test_all_files_are_read_again_on_request(folder: Path, read: list[str]) -> None:
    load_dataset(str(folder))
    with reading_again(True):
        load_dataset(str(folder))
    assert len(read) == 4
    load_dataset(str(folder))
    assert len(read) == 4


def test_a_fresh_file_is_not_trusted_yet(folder: Path, read: list[str], monkeypatch) -> None:
    monkeypatch.setattr(file_check, "_SETTLED", 1e9)
    for _ in range(2):
        inspect([folder / "a" / "0.png"], folder)
    assert len(read) == 2


@pytest.mark.parametrize("trouble", ["read-only", "nonsense"])
def test_a_cache_that_is_of_no_use_does_no_harm(
    trouble: str, folder: Path, tmp_path: Path, monkeypatch
) -> None:
    expected = load_dataset(str(folder)).fingerprint
    (memory,) = (tmp_path / "cache" / "pictures").glob("*.json")
    if trouble == "nonsense":
        memory.write_text("{]")
    else:
        blocked = tmp_path / "file"
        blocked.write_text("in the way of a folder")
        monkeypatch.setenv("STOCKPOT_CACHE", str(blocked))
    assert load_dataset(str(folder)).fingerprint == expected


@pytest.mark.gpu
def test_batches_arrive_whole_while_the_gpu_works() -> None:
    device = torch.device("cuda")
    big = torch.randn(4096, 4096, device=device)
    pictures = [torch.randint(0, 256, (64, 3, 64, 64), dtype=torch.uint8) for _ in range(8)]
    sums = []
    for batch in pictures:
        there = moved(batch, device)
        sums.append(there.long().sum())
        big = (big @ big).clamp(-1, 1)  # keeps the stream busy
        del there  # its memory may be given to the next batch
    assert [int(one) for one in sums] == [int(batch.long().sum()) for batch in pictures]


@pytest.mark.gpu
def test_a_batch_of_many_pieces_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PIECE", 1000)
    pictures = [torch.randint(0, 256, (5, 3, 33, 35), dtype=torch.uint8) for _ in range(8)]
    there = [moved(batch, torch.device("cuda")) for batch in pictures]
    assert all(torch.equal(a.cpu(), b) for a, b in zip(there, pictures, strict=True))


@pytest.mark.gpu
def test_a_grey_batch_seen_as_three_channels_arrives() -> None:
    grey = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8).expand(-1, 3, -1, -1)
    assert torch.equal(moved(grey, torch.device("cuda")).cpu(), grey)


def test_pictures_decoded_ahead_are_found_there(decodings: list[object]) -> None:
    images, fits = known(20), [preprocess(16).fit, partial(published_crop, side=24)]
    images.decode_ahead(fits)
    running = ahead._running
    assert running is not None
    images.decode_ahead(fits)
    assert ahead._running is running  # nothing is begun twice
    running[1].wait()
    assert len(decodings) == 20
    first, second = (torch.cat(parts) for parts in zip(*images.several(7, fits), strict=True))
    assert len(decodings) == 20
    assert ahead._running is None
    for found, fit in ((first, fits[0]), (second, fits[1])):
        plain = [np.asarray(fit(Image.open(io.BytesIO(data)))) for data in images.items]
        assert np.array_equal(found.permute(0, 2, 3, 1).numpy(), np.stack(plain))


def test_what_is_decoded_ahead_ends_when_there_is_no_room_or_a_picture_is_broken(
    decodings: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded, "DECODED", DecodedPictures(room=3 * 16 * 16 * 3))
    monkeypatch.setattr(ahead, "usable_cores", lambda: 1)
    known(40).decode_ahead([preprocess(16).fit])
    assert ahead._running is not None
    ahead._running[1].wait()
    assert len(decodings) == 8  # one portion, in which room ended
    images = known(10)
    broken = EncodedImages((b"no picture", *images.items[1:]), images.names, images.contents)
    broken.decode_ahead([preprocess(12).fit])
    with pytest.raises(BadDataError, match=r"^0 cannot be decoded"):
        list(broken.batches(4, preprocess(12).fit))
    # Without contents nothing would be kept, and nothing is begun.
    EncodedImages(images.items, images.names).decode_ahead([preprocess(12).fit])
    assert ahead._running is None


@pytest.fixture
def decoders() -> Iterator[processes.Decoders]:
    assert processes.start(2)
    assert not processes.start(2)
    found = processes.running()
    assert found is not None
    yield found
    processes.stop()


def test_processes_give_what_threads_give(
    tmp_path: Path, decoders: processes.Decoders, decodings: list[object]
) -> None:
    for row in range(6):
        (tmp_path / f"{row}.png").write_bytes(png(row, 40 + row))
    files = tuple(sorted(tmp_path.iterdir()))
    images = EncodedImages(files, tuple(file.name for file in files))
    exact = Preprocess(ImageSize(16, 20), ImageSize(18, 22), interpolation="bilinear")
    fits = [preprocess(16).fit, exact.fit, partial(published_crop, side=24)]
    found = [torch.cat(parts) for parts in zip(*images.several(4, fits), strict=True)]
    assert decodings == []
    processes.stop()
    here = [torch.cat(parts) for parts in zip(*images.several(4, fits), strict=True)]
    assert len(decodings) == 6
    assert all(map(torch.equal, found, here))
    assert [tuple(part.shape[1:]) for part in here] == [(3, 16, 16), (3, 16, 20), (3, 24, 24)]


def test_processes_that_fail_or_end_cost_no_picture(
    tmp_path: Path, decoders: processes.Decoders, decodings: list[object]
) -> None:
    files = tuple(tmp_path / f"{row}.png" for row in range(4))
    for row, file in enumerate(files):
        file.write_bytes(png(row))
    images = EncodedImages(files, tuple(file.name for file in files))
    # A fit without plain words, and pictures that are no files, are for threads.
    whole = torch.cat(list(images.batches(3, lambda picture: picture.resize((8, 8)))))
    assert len(decodings) == 4
    files[2].write_bytes(files[2].read_bytes()[:200])
    with pytest.raises(BadDataError, match=r"^2\.png cannot be decoded"):
        list(images.batches(4, preprocess(16).fit))
    assert len(decodings) == 4
    files[2].write_bytes(png(2))
    for worker in decoders._workers:
        worker._end.shutdown(socket.SHUT_RDWR)
    again = torch.cat(list(images.batches(3, preprocess(16).fit)))
    assert (len(decodings), len(again), len(whole)) == (8, 4, 4)


def test_processes_look_at_files_as_threads_do(
    tmp_path: Path, decoders: processes.Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_check, "_ahead", {})
    monkeypatch.setattr(file_check, "_looking", None)
    for row in range(3):
        (tmp_path / f"{row}.png").write_bytes(png(row))
    (tmp_path / "3.png").write_bytes(png(3)[:100])
    files = sorted(tmp_path.iterdir())
    look_ahead(tmp_path)
    found = inspect([*files, tmp_path / "4.png"], tmp_path)
    processes.stop()
    with reading_again(True):
        assert inspect([*files, tmp_path / "4.png"], tmp_path) == found
    assert found.digests[0] == hashlib.sha256(png(0)).hexdigest()
    assert sorted(found.broken) == [3, 4]
    # What was read ahead is believed while the file is as it was, and no longer.
    monkeypatch.setattr(file_check, "_SETTLED", -1.0)
    state = file_check.look_at(files[0])[0]
    monkeypatch.setattr(file_check, "_ahead", {str(files[0]): [state, "f" * 64]})
    assert inspect(files[:1], tmp_path).digests == ["f" * 64]
    files[0].write_bytes(png(9, 50))
    assert inspect(files[:1], tmp_path).digests == [hashlib.sha256(png(9, 50)).hexdigest()]


def test_one_item_is_made_ahead_and_what_fails_is_told_in_its_turn() -> None:
    made: list[int] = []

    def source() -> Generator[int]:
        try:
            for number in range(4):
                made.append(number)
                yield number
            raise ValueError("no more")
        finally:
            made.append(-1)

    items = one_ahead(source())
    assert next(items) == 0
    assert list(islice(items, 2)) == [1, 2]
    items.close()  # type: ignore[attr-defined]
    assert made[-1] == -1
    with pytest.raises(ValueError, match="no more"):
        list(one_ahead(source()))
    assert list(one_ahead(number for number in range(3))) == [0, 1, 2]

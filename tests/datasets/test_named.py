"""Named datasets: sources are tried in order, and only the right content is kept."""

from __future__ import annotations

import gzip
import io
import json
import signal
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from commands import invoke
from stockpot.datasets.catalogue import catalogue, fetch, find, is_present
from stockpot.datasets.dataset import pixel_fingerprint
from stockpot.datasets.fetch.source import Progress, SourceFailedError
from stockpot.datasets.named.cifar10 import CIFAR10
from stockpot.datasets.named.cifar10 import _from_parquet as cifar_from_parquet
from stockpot.datasets.named.cifar10 import _from_strips as cifar_from_strips
from stockpot.datasets.named.decoded import Part, read_part, write_decoded
from stockpot.datasets.named.definition import NamedSet, Offer
from stockpot.datasets.named.held_out import last, last_of_each_class
from stockpot.datasets.named.quickdraw import QUICKDRAW, _test_rows
from stockpot.datasets.told.describe import describe
from stockpot.errors import BadDataError, UnknownNameError, UserError

PARTS = {
    "train": Part(torch.arange(48, dtype=torch.uint8).reshape(3, 1, 4, 4), torch.tensor([0, 1, 1])),
    "test": Part(torch.full((2, 1, 4, 4), 7, dtype=torch.uint8), torch.tensor([1, 0])),
}


class Shelf:
    """A source that delivers a file, or fails."""

    def __init__(self, label: str, failure: str = "") -> None:
        self.label = label
        self.failure = failure
        self.asked = 0

    def fetch(self, folder: Path, progress: Progress) -> Path:
        self.asked += 1
        if self.failure:
            raise SourceFailedError(self.failure)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.label
        path.write_text("")
        return path


def small_set(*offers: Offer) -> NamedSet:
    marks = {
        split: pixel_fingerprint(part.in_colour(), part.labels, ("a", "b"))
        for split, part in PARTS.items()
    }
    return NamedSet("small", ("a", "b"), {"train": 3, "test": 2}, marks, "MIT", ("a {}.",), offers)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_first_source_that_delivers_is_used(cache: Path) -> None:
    down, good, spare = Shelf("down", "no answer."), Shelf("good"), Shelf("spare")
    chosen = small_set(*(Offer(shelf, lambda _: PARTS) for shelf in (down, good, spare)))
    path = chosen.get()
    assert (down.asked, good.asked, spare.asked) == (1, 1, 0)
    assert chosen.get() == path
    assert good.asked == 1
    assert list((cache / "downloads").iterdir()) == []
    loaded = chosen.load("train")
    assert loaded.fingerprint == chosen.fingerprints["train"]
    pixels = next(loaded.batches(10)).images
    assert torch.equal(pixels, PARTS["train"].images.repeat(1, 3, 1, 1))
    assert torch.equal(loaded.labels, PARTS["train"].labels)


def test_content_that_differs_in_one_pixel_is_refused() -> None:
    altered = PARTS["test"].images.clone()
    altered[1, 0, 2, 3] += 1
    wrong = {**PARTS, "test": Part(altered, PARTS["test"].labels)}
    chosen = small_set(
        Offer(Shelf("altered"), lambda _: wrong), Offer(Shelf("down", "gone."), dict)
    )
    with pytest.raises(UserError, match=r"2 sources: altered: .*fingerprint.* \| down: gone"):
        chosen.get()
    assert not chosen.path.exists()


def test_a_short_set_is_refused() -> None:
    short = {**PARTS, "train": Part(PARTS["train"].images[:2], PARTS["train"].labels[:2])}
    with pytest.raises(UserError, match="expected 3 train images, got 2"):
        small_set(Offer(Shelf("short"), lambda _: short)).get()


def test_not_fetched_and_unknown_are_answered() -> None:
    with pytest.raises(UserError, match="stockpot data get mnist"):
        find("mnist").load("test")
    with pytest.raises(UnknownNameError, match="Did you mean train"):
        find("mnist").load("trian")
    with pytest.raises(UnknownNameError, match="Did you mean cifar10"):
        fetch("cifar-10")
    with pytest.raises(UnknownNameError, match="icons"):
        describe("icon")
    assert not is_present("mnist")
    assert is_present("icons")


def test_descriptions_name_the_known_counts() -> None:
    totals = {name: sum(describe(name).counts.values()) for name in catalogue}
    assert totals == {
        "cifar10": 60_000,
        "mnist": 70_000,
        "fashion_mnist": 70_000,
        "quickdraw": 34_500,
    }
    for name in catalogue:
        info = describe(name)
        assert info.location == "not fetched"
        assert all(len(mark) == 64 for mark in info.fingerprints.values())


def test_stored_parts_come_back_and_a_cut_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "set.safetensors"
    write_decoded(path, PARTS, {"source": "here"})
    back = read_part(path, "train")
    assert torch.equal(back.images, PARTS["train"].images)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadDataError, match=r"set\.safetensors cannot be read"):
        read_part(path, "train")


def test_a_full_disk_is_a_user_error_and_leaves_nothing(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    large = {"test": Part(torch.zeros(10, 3, 32, 32, dtype=torch.uint8), torch.zeros(10))}
    try:
        with pytest.raises(UserError, match="Free some space"):
            write_decoded(tmp_path / "set.safetensors", large, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert list(tmp_path.glob("*")) in ([], [tmp_path / "cache"])


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def strip(pixels: np.ndarray) -> bytes:
    """Pictures (N, 32, 32, 3) as rows of one picture."""
    buffer = io.BytesIO()
    Image.fromarray(pixels.reshape(len(pixels), 1024, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def test_cifar_strips_are_read_row_by_row(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    members = {f"data_batch_{i + 1}.png": strip(pixels[2 * i : 2 * i + 2]) for i in range(5)}
    members["test_batch.png"] = strip(pixels[10:])
    members["train_lables.json"] = json.dumps(list(range(10))).encode()
    members["test_lables.json"] = b"[3, 8]"
    parts = cifar_from_strips(archive(tmp_path / "set.tgz", members))
    assert np.array_equal(parts["train"].images.permute(0, 2, 3, 1).numpy(), pixels[:10])
    assert np.array_equal(parts["test"].images.permute(0, 2, 3, 1).numpy(), pixels[10:])
    assert parts["train"].labels.tolist() == list(range(10))


def test_parquet_pictures_are_decoded_in_order(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)

    def png(array: np.ndarray) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(array).save(buffer, "PNG")
        return buffer.getvalue()

    for name, rows in (("train", pixels[:3]), ("test", pixels[3:])):
        path = tmp_path / "plain_text" / f"{name}-00000-of-00001.parquet"
        path.parent.mkdir(exist_ok=True)
        cells = [{"bytes": png(row), "path": None} for row in rows]
        pq.write_table(pa.table({"img": cells, "label": list(range(len(rows)))}), path)
    parts = cifar_from_parquet(tmp_path)
    assert np.array_equal(parts["train"].images.permute(0, 2, 3, 1).numpy(), pixels[:3])
    assert CIFAR10.classes[3] == "cat"


def test_quickdraw_split_is_a_fixed_partition() -> None:
    for name in QUICKDRAW.classes[:5]:
        rows = _test_rows(name, 100)
        assert len(rows) == 20
        assert rows == _test_rows(name, 100)
    assert _test_rows("ant", 100) != _test_rows("apple", 100)
    assert len(QUICKDRAW.classes) == len(set(QUICKDRAW.classes)) == 345


def test_quickdraw_sketches_are_scaled_to_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stockpot.datasets.named import quickdraw

    values = np.linspace(0, 1, 100 * 784).reshape(100, 784).round(3)
    lines = "\n".join(json.dumps(row.tolist()) for row in values).encode()
    path = archive(tmp_path / "set.tgz", {"src/drawings/ant.ndjson.gz": gzip.compress(lines)})
    small = NamedSet("quickdraw", ("ant",), {}, {}, "", (), ())
    monkeypatch.setattr(quickdraw, "QUICKDRAW", small)
    parts = quickdraw._from_archive(path)
    assert (len(parts["train"].labels), len(parts["test"].labels)) == (80, 20)
    got = torch.cat([parts["train"].images, parts["test"].images]).flatten(1)
    expected = torch.from_numpy((values.astype(np.float32) * 255).round()).to(torch.uint8)
    assert sorted(got.tolist()) == sorted(expected.tolist())


@pytest.mark.network
@pytest.mark.parametrize("name", sorted(catalogue))
def test_real_sets_have_their_fingerprints(name: str) -> None:
    fetch(name)
    for split, count in find(name).counts.items():
        part = find(name).load(split)
        assert len(part) == count
        pixels = part.images.pixels  # type: ignore[attr-defined]
        assert pixel_fingerprint(pixels, part.labels, part.classes) == part.fingerprint


def test_fit_and_val_share_out_the_training_images(cache: Path) -> None:
    chosen = replace(
        small_set(Offer(Shelf("good"), lambda _: PARTS)), held_out=last_of_each_class(1)
    )
    chosen.get()
    fit, val = chosen.load("fit"), chosen.load("val")
    assert (fit.split, val.split) == ("fit", "val")
    assert fit.labels.tolist() == [1]
    assert val.labels.tolist() == [0, 1]
    seen = [next(part.batches(9)).images for part in (val, fit)]
    both = torch.cat([seen[0][:1], seen[1], seen[0][1:]])
    assert torch.equal(both, PARTS["train"].images.repeat(1, 3, 1, 1))


def test_the_last_images_are_held_out() -> None:
    assert last(2)(torch.tensor([5, 5, 5])).tolist() == [False, True, True]


def test_the_list_says_what_is_really_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, little_sets: Path
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "datasets" / "tanganke___dtd").mkdir(parents=True)
    found = {row["name"]: row for row in json.loads(invoke("data", "list", "--json").output)}
    states = {name: row["state"] for name, row in found.items()}
    assert states["icons"] == "embedded"
    assert {states[name] for name in (*catalogue, "domains", "captions", "dtd")} == {"in cache"}
    assert (states["eurosat"], states["imagenet"], states["imagefolder"]) == (
        "to fetch", "not here", "not here",
    )  # fmt: skip
    assert "tanganke/eurosat" in found["eurosat"]["how"]
    assert "path=" in found["imagenet"]["how"]

    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path / "empty"))
    found = {row["name"]: row for row in json.loads(invoke("data", "list", "--json").output)}
    assert {found[name]["state"] for name in (*catalogue, "domains", "captions")} == {"to fetch"}
    assert found["domains"]["how"] == "stockpot data get cifar10"


def test_info_of_ones_own_folder(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("val", 2)):
        for row in range(count):
            folder = tmp_path / "photos" / split / ("cat" if row else "dog")
            folder.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (9, 9 + row), (row, 0, 0)).save(folder / f"{row}.png")
    done = invoke("data", "info", tmp_path / "photos")
    assert done.exit_code == 0, done.output
    told = done.output.splitlines()[1].split()
    assert told[:8] == ["photos", "3", "train", "+", "2", "val", "2", "2"]
    assert "2 to 3" in done.output
    whole = invoke("data", "info", tmp_path / "photos" / "train", "--json").output
    assert json.loads(whole)[0]["counts"] == {"train": 3}
    assert "no such file or folder" in invoke("data", "info", tmp_path / "nowhere").output

"""Pictures decoded before there is a dataset: found by it, never wrong, and without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from stockpot.datasets import encoded, picture_folder
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.load import load_dataset, reader
from stockpot.datasets.picture_folder import FilesBelow
from stockpot.datasets.stream import ahead, file_check, look_ahead, processes
from stockpot.datasets.stream.decoded import DecodedPictures
from stockpot.datasets.stream.geometry import told
from stockpot.errors import BadDataError
from stockpot.files import read_cached
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

COUNT = 40
SMALL = Preprocess(ImageSize(16, 16), 20)
OTHER = Preprocess(ImageSize(12, 12), 14)
# Its processes trust files that were written a moment ago.
SETTLED = "import stockpot.datasets.stream.file_check as looks; looks._SETTLED = -1.0\n"


@pytest.fixture(autouse=True)
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has seen, decoded and remembered nothing."""
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(file_check, "_SETTLED", -1.0)
    monkeypatch.setattr(processes, "_PROGRAM", SETTLED + processes._PROGRAM)
    for module, name, value in (
        (file_check, "_ahead", {}),
        (file_check, "_looking", None),
        (file_check, "_looked", None),
        (picture_folder, "_listings", {}),
        (ahead, "_running", None),
        (ahead, "_used", False),
    ):
        monkeypatch.setattr(module, name, value)
    kept = DecodedPictures()
    monkeypatch.setattr(encoded, "DECODED", kept)
    monkeypatch.setattr(look_ahead, "DECODED", kept)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    random = np.random.default_rng(0)
    for row in range(COUNT):
        place = root / f"class{row % 2}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{row}.png")
    return root


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of all pictures that processes are asked to decode."""
    names: list[str] = []
    true = processes.Decoders.decode

    def decode(self: processes.Decoders, files: Any, fits: Any) -> Any:
        names.extend(Path(file).name for file in files)
        return true(self, files, fits)

    monkeypatch.setattr(processes.Decoders, "decode", decode)
    assert processes.start(2)
    yield names
    ahead.end()
    processes.stop()


def begun() -> ahead.Ahead | None:
    """What is decoded ahead, once all was looked at."""
    assert file_check._looking is not None
    file_check._looking.join()
    return ahead._running[1] if ahead._running else None


def plain(data: Dataset, preprocess: Preprocess) -> torch.Tensor:
    assert isinstance(data.images, EncodedImages)
    fitted = []
    for item in data.images.items:
        assert isinstance(item, Path)
        fitted.append(np.asarray(preprocess.fit(Image.open(item).convert("RGB"))))
    return torch.from_numpy(np.stack(fitted)).permute(0, 3, 1, 2)


def test_pictures_are_decoded_before_there_is_a_dataset_and_once(
    photos: Path, asked: list[str]
) -> None:
    look_ahead.look_ahead(photos, told(SMALL.fit))
    work = begun()
    data = load_dataset(str(photos))
    images = data.images
    assert isinstance(images, EncodedImages)
    # Who knows the dataset wants the same: that goes on.
    images.decode_ahead([SMALL.fit])
    assert ahead._running is not None
    assert ahead._running[1] is work
    assert work is not None
    work.wait()
    assert len(asked) == COUNT
    assert asked[:3] == [Path(name).name for name in images.names[:3]]
    assert torch.equal(torch.cat(list(images.batches(7, SMALL.fit))), plain(data, SMALL))
    assert len(asked) == COUNT
    # A model of another geometry has its own pixels.
    assert torch.equal(torch.cat(list(images.batches(7, OTHER.fit))), plain(data, OTHER))
    assert len(asked) == 2 * COUNT


def test_another_wish_ends_what_was_begun(photos: Path, asked: list[str]) -> None:
    look_ahead.look_ahead(photos, told(OTHER.fit))
    begun()
    data = load_dataset(str(photos))
    images = data.images
    assert isinstance(images, EncodedImages)
    images.decode_ahead([SMALL.fit])
    assert ahead._running is not None
    ahead._running[1].wait()
    so_far = len(asked)
    assert torch.equal(torch.cat(list(images.batches(7, SMALL.fit))), plain(data, SMALL))
    assert len(asked) == so_far
    # Whoever was here before knew more than a command line: nothing is begun against it.
    ahead.begin_first("anything", 1, lambda start, stop: True)
    assert ahead._running is None


@pytest.mark.parametrize("how", ["splits", "no wish", "parquet"])
def test_nothing_is_begun_where_it_is_not_known_what_is_wanted(
    how: str, photos: Path, asked: list[str]
) -> None:
    if how == "splits":
        (photos / "class0").rename(photos.parent / "test")
        photos = photos.rename(photos.parent / "train").parent
        (photos / "cache").mkdir(exist_ok=True)
    if how == "parquet":
        (photos / "class0" / "part.parquet").write_bytes(b"")
    look_ahead.look_ahead(photos, None if how == "no wish" else told(SMALL.fit))
    assert begun() is None
    assert asked == []


def test_a_broken_picture_is_named_by_who_goes_through_them(
    photos: Path, asked: list[str], tmp_path: Path
) -> None:
    bad = photos / "class0" / "4.webp"
    Image.open(photos / "class0" / "4.png").save(bad, lossless=True)
    data = bad.read_bytes()
    bad.write_bytes(data[:60] + bytes(len(data) - 60))  # as long as its head says
    look_ahead.look_ahead(photos, told(SMALL.fit))
    work = begun()
    assert work is not None
    work.wait()
    images = load_dataset(str(photos)).images
    with pytest.raises(BadDataError, match=r"^class0/4\.webp cannot be decoded"):
        list(images.batches(7, SMALL.fit))
    (photos / "class1" / "1.png").write_bytes(b"no picture")
    with pytest.raises(BadDataError, match=r"1 of 41 images are broken: class1/1\.png"):
        load_dataset(str(photos))


def test_what_was_just_seen_is_believed_once(
    photos: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    true = processes.Decoders.look

    def look(self: processes.Decoders, files: Any, states: Any = None) -> Any:
        looked.append(len(files))
        return true(self, files, states)

    monkeypatch.setattr(processes.Decoders, "look", look)
    look_ahead.look_ahead(photos)
    begun()
    assert sum(looked) == COUNT
    first = load_dataset(str(photos)).fingerprint
    file_check.wait_saved()
    assert sum(looked) == COUNT
    Image.new("RGB", (9, 9)).save(photos / "class0" / "0.png")
    Image.new("RGB", (9, 9)).save(photos / "class0" / "new.png")
    second = load_dataset(str(photos))
    assert (len(second), sum(looked)) == (COUNT + 1, COUNT + 2)
    assert second.fingerprint != first
    # The next command looks too, and nothing but what has changed since is read.
    monkeypatch.setattr(file_check, "_looking", None)
    Image.new("RGB", (8, 8)).save(photos / "class0" / "new.png")
    look_ahead.look_ahead(photos)
    begun()
    third = load_dataset(str(photos)).fingerprint
    with file_check.reading_again(True):
        assert load_dataset(str(photos)).fingerprint == third
    assert third not in (first, second.fingerprint)


CHAIN = """
import os, sys
from pathlib import Path
import stockpot.datasets.stream.file_check as looks
looks._SETTLED = -1.0
from stockpot.cli.beginning import leave
from stockpot.cli import beginning, reading
from stockpot.datasets.stream import ahead, processes
processes._PROGRAM = {settled!r} + processes._PROGRAM
start = processes.start
processes.start = lambda: start(2)
reading.read_ahead(["one={model}"], {data!r}, again=False, decode=True)
looks._looking.join()
ahead._running[1].wait()
from stockpot.datasets.stream.decoded import DECODED
found = sorted(pixels.shape for pixels, _ in DECODED._kept.values())
print(len(found), found[0], "torch" in sys.modules)
from stockpot.datasets.load import load_dataset
load_dataset({data!r})
beginning._begun = True
leave(0)
"""


def test_a_command_decodes_without_torch_and_leaves_a_whole_memory(
    photos: Path, tmp_path: Path
) -> None:
    model = Path(picture_folder.__file__).parent.parent / "zoo" / "models" / "icons-resnet"
    code = CHAIN.format(settled=SETTLED, model=model, data=str(photos))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{COUNT} (3, 64, 64) False\n"
    assert done.stderr == ""
    (memory,) = (tmp_path / "cache" / "pictures").iterdir()
    assert len(read_cached(memory)) == COUNT


def as_before(path: Path) -> str:
    """What reads a folder, asked by patterns."""
    kept = ("state.json", "dataset_dict.json", "*.parquet", "*/*.parquet")
    if any(path.glob("*.tar")):
        return "webdataset"
    return "hub" if any(any(path.glob(name)) for name in kept) else "imagefolder"


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ([], "imagefolder"),
        (["a/1.png", "b/2.png"], "imagefolder"),
        (["1.png", "labels.csv", "a.b/1.png"], "imagefolder"),
        (["a/b/deep.parquet", "a/shard.tar"], "imagefolder"),
        (["a/1.png", "shard.tar"], "webdataset"),
        ([".hidden.tar", "state.json"], "webdataset"),
        (["a/1.png", "state.json"], "hub"),
        (["dataset_dict.json"], "hub"),
        (["1.parquet"], "hub"),
        (["a/1.png", "v1.0/1.parquet"], "hub"),
        ([".hidden/1.parquet"], "hub"),
        (["parquet", "a/tar"], "imagefolder"),
    ],
)
def test_the_kind_of_a_folder_is_told_as_before(
    names: list[str], kind: str, tmp_path: Path
) -> None:
    root = tmp_path / "it"
    root.mkdir()
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    assert reader(root) == as_before(root) == kind
    (tmp_path / "link").symlink_to(root)
    assert reader(tmp_path / "link") == kind


def test_a_listing_is_told_once_and_never_late(photos: Path) -> None:
    listed = sorted(picture_folder.list_ahead(photos))
    Image.new("RGB", (9, 9)).save(photos / "class0" / "new.png")
    assert sorted(picture_folder.picture_names(photos)) == listed
    assert len(picture_folder.picture_names(photos)) == COUNT + 1
    picture_folder.list_ahead(photos)  # whoever asked was quicker
    (photos / "class0" / "new.png").unlink()
    assert sorted(picture_folder.picture_names(photos)) == listed


@pytest.mark.parametrize("root", [".", "a", "a/", "/", "/a/b", "../a"])
def test_files_below_a_folder_are_as_their_paths(root: str) -> None:
    names = ("x/1.png", "2.png", "y/z/3.png")
    files, paths = FilesBelow(str(Path(root)), names), [Path(root) / name for name in names]
    assert list(files) == paths
    assert list(files[1:]) == paths[1:]
    assert files.texts() == [str(path) for path in paths]
    assert hash(files) == hash(FilesBelow(str(Path(root)), names))


def test_a_memory_of_many_files_is_read_back(tmp_path: Path) -> None:
    memory = file_check.Memory(tmp_path)
    for row in range(700):
        memory.take(f'{row}-\u00e4".png', "1:2:3:4", f"{row:064x}")
    memory.save(beside=True)
    again = file_check.Memory(tmp_path)  # waits until it is written
    assert again.state('699-\u00e4".png') == "1:2:3:4"
    (file,) = (Path(os.environ["STOCKPOT_CACHE"]) / "pictures").iterdir()
    assert json.loads(file.read_text())["entries"] == memory.fresh


def test_pictures_of_a_folder_of_another_kind_are_listed_when_asked_for(photos: Path) -> None:
    expected = sorted(picture_folder.picture_names(photos))
    (photos / "class0" / "part.parquet").write_bytes(b"")
    for listed in range(2):
        picture_folder._listings.clear()
        if listed:
            assert picture_folder.list_ahead(photos) == []
        assert sorted(picture_folder.picture_names(photos)) == expected

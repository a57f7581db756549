"""Corrupted sets as they are published: layouts, names of classes, subsets, labels.

Pictures spell a class in their colour and the model reads it (`imagenet_suite`), so every error is
known beforehand: at severity s the first s of each ten pictures show another class.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from imagenet_suite import reader, save, shared_suite
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.datasets import listed
from stockpot.datasets.corrupted.families import FAMILIES
from stockpot.datasets.corrupted.stored import CorruptionSet
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.datasets.load import load_dataset
from stockpot.datasets.natural.classes import imagenet_classes, imagenet_names
from stockpot.errors import UserError
from stockpot.measure.corruption import corruption
from stockpot.measure.measurement import Context, Measurement

IDS = tuple(each.wnid for each in imagenet_classes())
NAMED = {
    "words": tuple(each.words for each in imagenet_classes()),
    "ids": IDS,
    "numbers": tuple(str(place) for place in range(1000)),
}
SEVERITIES = (1, 2, 3, 4, 5)


def val() -> Path:
    return Path(shared_suite()) / "imagenet/val"


def write(folder: Path, severity: int) -> None:
    """The forty validation pictures, some of them corrupted beyond recognition."""
    for row, file in enumerate(sorted(val().rglob("*.JPEG"))):
        place = IDS.index(file.parent.name)
        shown = (place + 7) % 1000 if row % 10 < severity else place
        save(folder / file.parent.name / file.name, shown)


def errors(result: Measurement) -> dict[tuple[object, object], float]:
    return {
        (score.condition["corruption"], score.condition["severity"]): score.value
        for score in result.scores
        if score.metric == "error"
    }


@pytest.fixture(scope="module")
def imagenet_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`fog` as its archive unpacks, `contrast` under its group, and an array that is neither."""
    root = tmp_path_factory.mktemp("corrupted") / "ImageNet-C"
    for severity in SEVERITIES:
        write(root / "fog" / str(severity), severity)
        write(root / "digital/contrast" / str(severity), severity)
    np.save(root / "features.npy", np.zeros((7, 16), dtype=np.float32))
    np.save(root / "fog.npy", np.zeros((5, 2, 2, 3), dtype=np.uint8))
    return root


FEW = {"corruptions": ("fog", "contrast"), "baseline": "none"}


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("data", ["imagenet", "folder"])
def test_models_named_in_any_way_are_scored_right(named: str, data: str, imagenet_c: Path) -> None:
    """Fails before: `the label 'n01440764' is neither one of the 1000 classes nor an index`."""
    found = {
        "imagenet": lambda: load_dataset("imagenet", path=shared_suite()),
        "folder": lambda: load_dataset(str(val())),
    }[data]()
    result = corruption(
        reader(classes=NAMED[named]), found, Context(), folder=str(imagenet_c), **FEW
    )
    assert result.scores[0].value == 1.0
    assert errors(result) == {
        (name, severity): pytest.approx(severity / 10)
        for name in ("fog", "contrast")
        for severity in SEVERITIES
    }
    assert any("ImageNet-C layout" in note for note in result.notes)


def test_ids_are_given_words() -> None:
    data = load_dataset(str(val()))
    assert data.classes == imagenet_names()[::25]
    given = load_dataset(str(val()), classes=list(imagenet_names()))
    assert given.labels.tolist() == list(range(0, 1000, 25))


def test_a_limit_takes_the_same_pictures(imagenet_c: Path) -> None:
    data = load_dataset("imagenet", path=shared_suite())
    some = data.limited(13)
    result = corruption(reader(), some, Context(), folder=str(imagenet_c), **FEW)
    kept = [data.columns["file"].index(file) for file in some.columns["file"]]
    expected = [row % 10 >= 3 for row in kept]
    assert result.outcomes["fog:3"].tolist() == expected
    assert 0 < sum(expected) < 13


def test_the_folder_above_and_several_labels(imagenet_c: Path) -> None:
    """ReaL's pictures are found again; what lies in the folder of another class is refused."""
    data = load_dataset("imagenet_real", path=shared_suite())
    part = CorruptionSet(imagenet_c.parent, data).load("fog", 2)
    assert part.columns["accepted"] == data.columns["accepted"]
    assert [name.split("/")[-1] for name in part.images.names] == [  # type: ignore[attr-defined]
        name.split("/")[-1] for name in data.columns["file"]
    ]


def test_pictures_of_another_class_or_none_are_refused(tmp_path: Path) -> None:
    data = load_dataset("imagenet", path=shared_suite())
    write(tmp_path / "fog/1", 1)
    first = tmp_path / "fog/1" / IDS[0]
    first.rename(first.with_name(IDS[1]))
    with pytest.raises(UserError, match="folder of another class"):
        CorruptionSet(tmp_path, data).load("fog", 1)
    first.with_name(IDS[1]).rename(tmp_path / "fog/1/n99999999")
    with pytest.raises(UserError, match="'n99999999' is neither one of the 1000 classes"):
        CorruptionSet(tmp_path, data).load("fog", 1)
    (tmp_path / "fog/1/n99999999").rename(tmp_path / "aside")
    with pytest.raises(UserError, match=r"lacks 1 of the 40 clean pictures, such as n01440764"):
        CorruptionSet(tmp_path, data).load("fog", 1)
    with pytest.raises(UserError, match="has no fog/2; it has the severities 1"):
        CorruptionSet(tmp_path, data).load("fog", 2)


class TestListedSubsets:
    def test_pictures_come_in_the_order_of_the_list(
        self, tmp_path: Path, imagenet_c: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = [f"{file.parent.name}/{file.name}" for file in sorted(val().rglob("*.JPEG"))]
        chosen = [files[row] for row in (33, 2, 17, 5)]
        file = tmp_path / "ids.txt"
        file.write_text("\n".join(chosen))  # as published: no newline at the end
        data = load_dataset("imagenet", path=shared_suite(), files=str(file))
        assert data.columns["file"] == tuple(chosen)
        assert str(data) == "imagenet:val[ids]"
        result = corruption(reader(), data, Context(), folder=str(imagenet_c), **FEW)
        assert result.outcomes["contrast:4"].tolist() == [False, False, True, True]
        monkeypatch.setitem(
            listed.KNOWN, hashlib.sha256(file.read_bytes()).hexdigest(), "a-known-subset"
        )
        plain = load_dataset(str(val()), files=str(file))
        assert plain.columns["file"] == tuple(chosen)
        assert plain.split == "val[a-known-subset]"

    def test_the_list_of_an_installed_package(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(UserError, match="not installed"):
            load_dataset("imagenet", path=shared_suite(), files="robustbench")
        helpers = tmp_path / "robustbench/helper_files"
        helpers.mkdir(parents=True)
        (tmp_path / "robustbench/__init__.py").touch()
        name = sorted(val().rglob("*.JPEG"))[3].relative_to(val()).as_posix()
        (helpers / "imagenet_test_image_ids.txt").write_text(f"{name}\nn01440764/gone.JPEG")
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(UserError, match=r"1 of the 2 pictures .* such as n01440764/gone"):
            load_dataset("imagenet", path=shared_suite(), files="robustbench")


def cifar_c(folder: Path, data: Dataset, labels: np.ndarray | None = None) -> Path:
    """`fog.npy` in which a picture shows its class, and at severity 5 the next one."""
    assert isinstance(data.images, TensorImages)
    pixels = data.images.pixels.permute(0, 2, 3, 1).numpy()
    folder.mkdir(exist_ok=True)
    np.save(folder / "fog.npy", np.concatenate([*[pixels] * 4, np.roll(pixels, -1, axis=0)]))
    np.save(folder / "labels.npy", np.tile(data.labels, 5) if labels is None else labels)
    return folder


class TestArrays:
    @pytest.fixture
    def data(self) -> Dataset:
        return make_dataset(n=20, size=8)

    def errors_of(self, data: Dataset, folder: Path) -> list[float]:
        model = make_classifier(ReadsLabel(4), size=8)
        result = corruption(
            model, data, Context(), corruptions="fog", baseline="none", folder=str(folder)
        )
        return [score.value for score in result.scores if score.metric == "error"]

    def test_arrays_and_stray_ones(self, data: Dataset, tmp_path: Path) -> None:
        folder = cifar_c(tmp_path / "CIFAR-10-C", data)
        np.save(folder / "notes.npy", np.zeros(3))
        (folder / "._fog.npy").write_bytes(b"\0\5\26\7")
        last = float((data.labels != data.labels.roll(-1)).float().mean())
        assert self.errors_of(data, folder) == pytest.approx([0, 0, 0, 0, last])
        assert self.errors_of(data, tmp_path) == pytest.approx([0, 0, 0, 0, last])
        rows = torch.randperm(20, generator=torch.Generator().manual_seed(0))[:11].sort().values
        part = float((data.labels != data.labels.roll(-1)).float()[rows].mean())
        assert self.errors_of(data.limited(11), folder) == pytest.approx([0, 0, 0, 0, part])

    @pytest.mark.parametrize(
        ("labels", "complaint"),
        [
            (lambda own: np.tile(own[::-1], 5), "says another class than the clean data for"),
            (lambda own: np.tile(own, 3), "expected 20 whole numbers, once or 5 times"),
            (lambda own: np.tile(own, 5) + 0.5, "expected 20 whole numbers"),
            (lambda own: np.roll(np.tile(own, 5), 7), "another class than the clean data"),
            (lambda own: np.sort(np.tile(own, 5)), "labels of the severities differ"),
        ],
    )
    def test_wrong_labels_are_refused(
        self, labels: object, complaint: str, data: Dataset, tmp_path: Path
    ) -> None:
        own = data.labels.numpy()
        folder = cifar_c(tmp_path / "c", data, labels(own))  # type: ignore[operator]
        with pytest.raises(UserError, match=complaint):
            self.errors_of(data, folder)

    def test_wrong_arrays_are_refused(self, data: Dataset, tmp_path: Path) -> None:
        folder = cifar_c(tmp_path / "c", data)
        for wrong, complaint in (
            (np.zeros((99, 8, 8, 3), dtype=np.uint8), "five severities of N x H x W x 3"),
            (np.zeros((50, 8, 8, 3), dtype=np.uint8), "expected 10 whole numbers"),
            (np.zeros((100, 8, 8, 3), dtype=np.int64), "uint8 or float images"),
        ):
            np.save(folder / "fog.npy", wrong)
            with pytest.raises(UserError, match=complaint):
                self.errors_of(data, folder)
        (folder / "fog.npy").write_bytes(b"no array")
        with pytest.raises(UserError, match=r"fog\.npy cannot be read"):
            self.errors_of(data, folder)


def test_clean_data_without_file_names(tmp_path: Path) -> None:
    """Pictures named by row are matched by it; counted otherwise they still have their classes."""
    data = make_dataset(n=8, size=8)
    assert isinstance(data.images, TensorImages)
    by_class = sorted(range(8), key=lambda row: int(data.labels[row]))
    for folder, order in (("rows", list(range(8))), ("classes", by_class)):
        for number, row in enumerate(order):
            file = (
                tmp_path / folder / "fog/1" / data.classes[data.labels[row]] / f"{number:06d}.png"
            )
            file.parent.mkdir(parents=True, exist_ok=True)
            pixels = data.images.pixels[row].permute(1, 2, 0).numpy()
            Image.fromarray(pixels).save(file)
        part = CorruptionSet(tmp_path / folder, data).load("fog", 1)
        assert torch.equal(next(part.batches(8)).images, data.images.pixels[order])
        assert part.labels.tolist() == data.labels[order].tolist()


class TestOtherFamilies:
    def test_imagenet_c_bar_with_its_own_severities(self, tmp_path: Path) -> None:
        """The authors' script names folders by strength: 2.35, 3.20, 4.90, 6.60, 9.15."""
        family = next(each for each in FAMILIES if each.name == "ImageNet-C-bar")
        for name in family.corruptions:
            for severity, level in enumerate(("2.35", "3.20", "4.90", "6.60", "10.00"), start=1):
                if name in ("sparkles", "perlin_noise"):
                    write(tmp_path / name / level, severity)
        data = load_dataset("imagenet", path=shared_suite())
        result = corruption(
            reader(), data, Context(), corruptions="sparkles,perlin_noise", folder=str(tmp_path)
        )
        assert errors(result)["sparkles", 5] == 0.5
        assert result.convention == "mce:alexnet-constants:ImageNet-C-bar:2-of-10x5"
        assert not [score for score in result.scores if score.metric == "mce"]
        with pytest.raises(UserError, match="has no blue_noise_sample"):
            corruption(reader(), data, Context(), folder=str(tmp_path))

    def test_imagenet_3dcc_means_its_twelve(self, tmp_path: Path) -> None:
        family = next(each for each in FAMILIES if each.name == "ImageNet-3DCC")
        for number, name in enumerate(family.corruptions):
            write(tmp_path / "ImageNet-3DCC" / name / "5", number % 6)
        data = load_dataset("imagenet", path=shared_suite())
        result = corruption(
            reader(), data, Context(), severities="5", baseline="none", folder=str(tmp_path)
        )
        assert len(errors(result)) == 12
        assert result.convention == "mce:none:ImageNet-3DCC:12-of-12x1"
        mean = next(score for score in result.scores if score.metric == "mean_corruption_accuracy")
        assert mean.value == pytest.approx(1 - 0.25)

    def test_mnist_c_has_no_severities(self, tmp_path: Path) -> None:
        data = make_dataset(n=12, size=28)
        assert isinstance(data.images, TensorImages)
        # One channel with a last axis, as published; the model reads the first row's level.
        grey = data.images.pixels[:, :1].permute(0, 2, 3, 1).numpy()
        family = next(each for each in FAMILIES if each.name == "MNIST-C")
        for name in (*family.corruptions, *family.extra):
            folder = tmp_path / "mnist_c" / name
            folder.mkdir(parents=True)
            np.save(folder / "test_images.npy", grey if name != "zigzag" else np.roll(grey, 1, 0))
            np.save(folder / "test_labels.npy", data.labels)
        model = make_classifier(ReadsLabel(4), size=28)
        result = corruption(model, data, Context(), folder=str(tmp_path / "mnist_c"))
        found = errors(result)
        assert set(found) == {(name, 1) for name in family.corruptions}
        moved = float((data.labels != data.labels.roll(1)).float().mean())
        assert [found["fog", 1], found["zigzag", 1]] == pytest.approx([0, moved])
        mean = next(score for score in result.scores if score.metric == "mean_corruption_accuracy")
        assert mean.value == pytest.approx(1 - moved / 15)
        assert result.convention == "mce:alexnet-constants:MNIST-C"
        np.save(tmp_path / "mnist_c/fog/test_labels.npy", data.labels.roll(1))
        with pytest.raises(UserError, match=r"test_labels\.npy says another class"):
            corruption(model, data, Context(), folder=str(tmp_path / "mnist_c"))

    def test_tiny_imagenet_c(self, tmp_path: Path) -> None:
        """Validation pictures that lie flat with their table, corrupted ones in id folders."""
        rows = []
        for number, place in enumerate((5, 1, 700)):
            save(tmp_path / f"tiny-imagenet-200/val/images/val_{number}.JPEG", place)
            rows.append(f"val_{number}.JPEG\t{IDS[place]}\t0\t32\t44\t62")
            file = f"{IDS[place]}/val_{number}.JPEG"
            save(tmp_path / "Tiny-ImageNet-C/fog/4" / file, place if number else 3)
        table = tmp_path / "tiny-imagenet-200/val/val_annotations.txt"
        table.write_text("\n".join(rows))
        data = load_dataset(str(table.parent / "images"), labels=str(table))
        assert data.classes == tuple(imagenet_names()[place] for place in (1, 5, 700))
        result = corruption(
            reader(),
            data,
            Context(),
            corruptions="fog",
            severities="4",
            baseline="none",
            folder=str(tmp_path / "Tiny-ImageNet-C"),
        )
        assert result.outcomes["fog:4"].tolist() == [False, True, True]

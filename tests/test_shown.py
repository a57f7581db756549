"""Values in an interpreter and in a notebook: short, and safe whatever a name holds; PIL images."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import stockpot
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError
from stockpot.recipe import load_recipe
from stockpot.results.in_notebooks import results_html

HOSTILE = "<script>alert(1)</script>'\"&"


class Tags(HTMLParser):
    """The tags of a piece of HTML; those that are opened are closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.addresses: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.addresses += [value or "" for key, value in attrs if key in ("src", "href")]
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def many_files(tmp_path: Path) -> Dataset:
    """500 pictures of two sizes in folders."""
    for row in range(500):
        folder = tmp_path / "photos" / f"class {row % 5}"
        folder.mkdir(parents=True, exist_ok=True)
        side = 16 + row % 2
        Image.new("RGB", (side, 16), (row % 256, 0, 0)).save(folder / f"{row:03}.png")
    return stockpot.load_dataset(str(tmp_path / "photos"))


def test_public_values_have_a_short_repr(many_files: Dataset) -> None:
    model = make_classifier(ReadsLabel(4))
    data = make_dataset()
    results = stockpot.measure({"reads": model}, ["clean"], data=data)
    found = stockpot.attack(model, data.images.pixels, data.labels, steps=1)
    values = [many_files, many_files.images, data, data.images, model, results, results[0], found]
    values += [load_recipe(Path(__file__).parents[1] / "recipes" / "clip_fusion.yaml")]
    for value in values:
        assert len(repr(value)) < 250, repr(value)
        assert "\n" not in repr(value)
    assert re.match(r"Dataset\(photos:all, 500 images, 5 classes \(class 0, ", repr(many_files))
    assert "reads x clean x toy: accuracy 1" in repr(results[0])


def test_what_a_notebook_shows_is_whole_harmless_and_asks_nobody(many_files: Dataset) -> None:
    data = replace(make_dataset(), name=HOSTILE, classes=(HOSTILE, "b", "c", "d"))
    model = make_classifier(ReadsLabel(4), classes=data.classes)
    results = stockpot.measure({HOSTILE: model}, ["clean"], data=data)
    pages = [value._repr_html_() for value in (data, many_files, model, results[0])]
    for page in [*pages, results_html(results)]:
        tags = Tags(page)
        assert "script" not in tags.seen
        assert all(address.startswith("data:image/png;base64,") for address in tags.addresses)
    assert sum(page.count("<img") for page in pages) == 24


def test_a_row_is_a_picture_and_its_label(many_files: Dataset) -> None:
    image, label = many_files[3]
    first = many_files.columns["file"][3]
    assert (label, many_files.classes[label]) == (0, Path(first).parent.name)
    assert image.getpixel((0, 0)) == (int(Path(first).stem) % 256, 0, 0)
    data = make_dataset()
    assert np.array_equal(np.asarray(data[-1].image), data.images.pixels[-1].permute(1, 2, 0))
    assert len(data[10:20:2]) == 5
    assert torch.equal(data[10:20:2].labels, data.labels[10:20:2])
    assert len([row.label for row in data]) == 40  # an end: it can be iterated over
    with pytest.raises(IndexError):
        data[40]


def test_a_model_names_pictures_in_any_form(tmp_path: Path) -> None:
    data, model = make_dataset(), make_classifier(ReadsLabel(4))
    path = tmp_path / "one.png"
    data[1].image.save(path)
    expected = [data.classes[label] for label in data.labels.tolist()]
    assert [one.name for one in model.predict(data)] == expected
    assert [one.name for one in model.predict([row.image for row in data])] == expected
    assert model.predict(path) == model.predict(str(path)) == model.predict(data[1].image)
    assert model.predict(data[1].image)[0] == ("bee", pytest.approx(1.0), 1)
    with pytest.raises(BadDataError, match="expected a picture"):
        model.predict(tmp_path / "none.png")


def test_pil_images_make_a_dataset() -> None:
    data, model = make_dataset(), make_classifier(ReadsLabel(4))
    pairs = [(row.image, data.classes[row.label]) for row in data]
    grouped = {name: [image for image, own in pairs if own == name] for name in data.classes}
    for given in (pairs, grouped):
        found = stockpot.load_dataset(given)
        assert (len(found), found.classes) == (40, data.classes)
        (result,) = stockpot.measure(model, "clean", data=found)
        assert result.score("accuracy").value == 1.0
    sizes = stockpot.load_dataset([(Image.new("RGB", (20, n), "red"), n % 2) for n in (20, 31)])
    assert (sizes[1].image.size, sizes.classes) == ((20, 31), ("0", "1"))
    with pytest.raises(BadDataError, match="pairs of a PIL image"):
        stockpot.load_dataset([pairs[0][0]])  # type: ignore[list-item]
    with pytest.raises(BadDataError, match="no splits"):
        stockpot.load_dataset(pairs, split="train")


def test_a_pil_image_is_corrupted_as_its_pixels_are() -> None:
    pixels = make_dataset(2, 32).images.pixels[:1]
    picture = Image.fromarray(pixels[0].permute(1, 2, 0).numpy())
    changed = stockpot.corrupt(picture, "gaussian_noise", 3, seed=5)
    expected = stockpot.corrupt(pixels, "gaussian_noise", 3, seed=5)[0].permute(1, 2, 0)
    assert np.array_equal(np.asarray(changed), expected)

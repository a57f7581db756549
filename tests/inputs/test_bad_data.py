"""Broken, odd and hostile data files: each is refused in one line, and leaves nothing behind."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from kindly import unkind
from safetensors.torch import save
from spoilt import (
    LABELS,
    PIXELS,
    arrays,
    crowded_picture,
    deep_json,
    idx,
    npz,
    parquet,
    picture,
    safetensors,
    spoilt,
)

from stockpot.datasets.load import load_dataset

Case = tuple[str, Callable[[Path], Callable[[], object]]]


def loading(name: str, content: bytes, **options: object) -> Case:
    """A single file, loaded."""

    def prepare(folder: Path) -> Callable[[], object]:
        (folder / name).write_bytes(content)
        if "idx" in name:
            labels = name.replace("images", "labels").replace("idx3", "idx1")
            (folder / labels).write_bytes(idx((6,), LABELS.astype(np.uint8).tobytes()))
        return lambda: _use(str(folder / name), options)

    return name, prepare


def beside(key: str, name: str, content: bytes) -> Case:
    """A good folder of pictures with a file that says more of them."""

    def prepare(folder: Path) -> Callable[[], object]:
        _folder(folder / "d")
        place = folder / "d" / name if not key else folder / name
        place.write_bytes(content)
        return lambda: _use(str(folder / "d"), {key: str(place)} if key else {})

    return f"{key} {name}", prepare


def among(name: bytes, content: bytes) -> Case:
    """A picture among good ones."""

    def prepare(folder: Path) -> Callable[[], object]:
        _folder(folder / "d")
        (folder / "d" / "a" / os.fsdecode(name)).write_bytes(content)
        return lambda: _use(str(folder / "d"), {})

    return f"picture {name!a}", prepare


def _folder(folder: Path) -> None:
    for row, name in enumerate("ab"):
        (folder / name).mkdir(parents=True)
        (folder / name / "0.png").write_bytes(picture(row=row))


def _use(path: str, options: dict[str, object]) -> None:
    data = load_dataset(path, split="all", **options)  # type: ignore[arg-type]
    for _ in data.images.batches(4, lambda image: image.resize((8, 8))):
        pass


def _many() -> Iterator[tuple[str, Case]]:
    for name, good in arrays().items():
        for how, content in spoilt(good):
            if (name, how) not in HARMLESS:
                yield how, loading(name, content)
    for kind in ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM"):
        name = f"1.{kind.lower()}".replace("jpeg", "jpg").replace("tiff", "tif").encode()
        for how, content in spoilt(picture(kind)):
            if (kind, how) not in HARMLESS:
                yield how, among(name, content)
    yield "20,000 px square", among(b"1.png", crowded_picture())
    yield "10,000 px square", among(b"1.png", crowded_picture(10_000))
    yield "no size", among(b"1.png", crowded_picture(0))
    yield "a name that is no UTF-8", among(b"\xff\xfe.png", picture())
    yield "only broken", loading("a.npz", npz(images=PIXELS[:0], labels=LABELS), classes=3)
    yield from _arrays()
    yield from _texts()


HARMLESS = {("BMP", "end overwritten"), ("PPM", "end overwritten"), ("GIF", "no end"),
            ("JPEG", "no end"), ("TIFF", "end overwritten"), ("WEBP", "end overwritten"),
            ("WEBP", "head overwritten"), ("PPM", "no end"), ("PNG", "no end"),
            ("a.safetensors", "end overwritten"),
            ("t-images-idx3-ubyte", "end overwritten")}  # fmt: skip
"""Pixels that changed, or an end that readers do without."""


def _arrays() -> Iterator[tuple[str, Case]]:
    halves = torch.from_numpy(PIXELS).float() / 255
    for name, kind in (("FP8", torch.float8_e4m3fn), ("FP8 of five", torch.float8_e5m2)):
        tensors = {"images": halves.to(kind), "labels": torch.from_numpy(LABELS)}
        yield name, loading("a.safetensors", save(tensors))
    for name, images in {
        "int64": PIXELS.astype(np.int64),
        "complex": PIXELS.astype(np.complex64),
        "bool": PIXELS > 7,
        "text": np.array(["a"] * 6),
        "objects": np.array([{}] * 6, dtype=object),
        "NaN": np.full((6, 8, 8, 3), np.nan, np.float32),
        "infinite": np.full((6, 8, 8, 3), np.inf),
        "normalised": np.linspace(-2, 2, 6 * 8 * 8 * 3).reshape(6, 8, 8, 3),
        "one number": np.array(3, np.uint8),
        "flat": PIXELS.reshape(-1),
        "five axes": PIXELS[None],
        "two channels": PIXELS[..., :2],
        "no pixels": PIXELS[:, :0],
        "times": np.zeros((6, 8, 8, 3), "datetime64[s]"),
        "records": np.zeros(6, [("a", "u1")]),
    }.items():
        yield f"images: {name}", loading("a.npz", npz(images=images, labels=LABELS))
    for name, labels in {
        "too few": LABELS[:3],
        "none": LABELS[:0],
        "floats": LABELS / 2,
        "NaN": np.full(6, np.nan),
        "negative": -LABELS,
        "huge": LABELS + 2**40,
        "beyond": np.full(6, 2**64 - 1, np.uint64),
        "one hot": np.eye(6),
        "text": np.array(list("abcdef")),
        "complex": LABELS.astype(np.complex64),
    }.items():
        yield f"labels: {name}", loading("a.npz", npz(images=PIXELS, labels=labels))
    for classes in (2, -1, 10**12, ["a"], "nosuch.txt", "\0", "x" * 5000):
        yield (
            f"classes: {str(classes)[:20]!r}",
            loading("a.npz", npz(images=PIXELS, labels=LABELS), classes=classes),
        )
    for key in ("images", "labels"):
        yield f"no {key}", loading("a.npz", npz(images=PIXELS, labels=LABELS), **{key: "nosuch"})
    yield "no arrays", loading("a.npz", npz(other=LABELS))
    for name, content in {
        "sizes beyond memory": idx((2**31, 2**31, 2**31), b"x"),
        "sizes that overflow": idx((2**32 - 1,) * 3, b""),
        "255 axes": bytes((0, 0, 8, 255)) + b"\xff" * 1020,
        "no axes": idx((), b""),
        "floats": idx((6, 8, 8), b"\0" * 1536, kind=0x0D),
        "too much": idx((6, 8, 8), b"\0" * 400),
        "a bomb": gzip.compress(idx((6, 8, 8), b"\0" * 20_000_000), 9),
        "a bomb that says so": gzip.compress(idx((2**31, 2**20, 2**10), b"\0" * 9_000), 9),
    }.items():
        yield f"idx: {name}", loading("t-images-idx3-ubyte", content)
    entry = {"dtype": "U8", "shape": [6, 8, 8, 3], "data_offsets": [0, 1152]}
    for name, content in {
        "header beyond the file": safetensors({}, length=2**62),
        "header of another kind": safetensors([1, 2]),
        "deep header": safetensors(deep_json()),
        "bytes that lack": safetensors({"images": entry}),
        "turned offsets": safetensors({"images": {**entry, "data_offsets": [9, 1]}}, b"x" * 9),
        "sizes that overflow": safetensors({"images": {**entry, "shape": [2**40, 2**40]}}, b"x"),
        "negative size": safetensors({"images": {**entry, "shape": [-6, 8, 8, 3]}}, b"x" * 1152),
        "unknown kind": safetensors({"images": {**entry, "dtype": "Q9"}}, b"x" * 1152),
    }.items():
        yield f"safetensors: {name}", loading("a.safetensors", content)
    for name, content in {
        "no pictures": parquet(image=LABELS.tolist()),
        "cells without bytes": parquet(image=[{"bytes": None, "path": None}] * 6),
        "pictures that are none": parquet(image=[b"abc"] * 6),
        "paths elsewhere": parquet(image=[{"bytes": None, "path": "../../etc/passwd"}] * 6),
        "labels of lists": parquet(label=[[1]] * 6, facts={"info": []}),
        "facts of another kind": parquet(facts=[1]),
        "names that are none": parquet(facts={"info": {"features": {"label": {"names": "abc"}}}},
                                       label=[7] * 6, other=[{"bytes": b""}] * 6, image=[b""] * 6),
    }.items():  # fmt: skip
        yield f"parquet: {name}", loading("a.parquet", content)


def _texts() -> Iterator[tuple[str, Case]]:
    for name, content in {
        "broken": b'["a", "b"',
        "a number": b"3",
        "a text": b'"ab"',
        "nothing": b"",
        "null": b"null",
        "names for indices": b'{"a": "x", "b": "y"}',
        "lists": b'[["a"], ["b"]]',
        "deep": deep_json(),
        "no UTF-8": b'["\xff"]',
        "NaN": b"NaN",
    }.items():
        yield f"{name} ", beside("classes", "c.json", content)
    for name, content in {
        "no UTF-8": b"\xff\xfe\x00",
        "zeros": b"\0" * 50,
    }.items():
        yield name, beside("files", "l.txt", content)
        yield name, beside("labels", "l.csv", content)
        yield name, beside("", "metadata.csv", content)
    for name, content in {
        "one column": b"a/0.png\nb/0.png\n",
        "two classes for one": b"a/0.png,a\na/0.png,b\nb/0.png,b\n",
        "nobody's": b"x.png,a\ny.png,b\n",
        "only headings": b"file,label\n",
        "an endless cell": b'a/0.png,"' + b"a" * 200_000 + b'"\nb/0.png,b\n',
    }.items():
        yield name, beside("labels", "l.csv", content)
    for name, content in {"a list": b"[1]", "broken": b"{", "deep": deep_json(), "": b""}.items():
        yield name, beside("labels", "l.json", content)
    for name, content in {"none": b"", "twice": b"a/0.png\na/0.png\n", "other": b"x\n"}.items():
        yield name, beside("files", "l.txt", content)
    yield "no headings", beside("", "metadata.csv", b"1,2\n3,4\n")


TABLE = list(_many())


def test_bad_data_is_refused_kindly(tmp_path: Path) -> None:
    found = []
    for number, (how, (what, prepare)) in enumerate(TABLE):
        folder = tmp_path / str(number)
        folder.mkdir()
        if problem := unkind(prepare(folder), folder):
            found.append(f"{what}, {how}: {problem}")
    assert not found, "\n".join(found)


def test_the_good_files_are_taken(tmp_path: Path) -> None:
    for name, content in arrays().items():
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        assert unkind(loading(name, content)[1](folder), folder) == "it was taken"
    for kind in ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM"):
        folder = tmp_path / kind
        folder.mkdir()
        name = f"1.{kind.lower()}".replace("jpeg", "jpg").replace("tiff", "tif").encode()
        assert unkind(among(name, picture(kind))[1](folder), folder) == "it was taken"

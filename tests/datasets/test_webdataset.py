"""Tars of samples against the webdataset package: the same samples, in parts and by address."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import webdataset as peer
from PIL import Image

from commands import invoke
from stockpot.corrupt.sizes import one_size
from stockpot.datasets.kept import forget_datasets, kept_dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.shards.files import named_files
from stockpot.errors import BadDataError, BadParameterError, UserError

NAMES = ["ant", "bee", "cat"]


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(value).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def write(folder: Path, tars: int = 5, each: int = 3) -> str:
    """Tars by the package itself."""
    folder.mkdir(parents=True, exist_ok=True)
    pattern = str(folder / "part-%03d.tar")
    with peer.ShardWriter(pattern, maxcount=each, verbose=0) as writer:
        for row in range(tars * each):
            sample = {"__key__": f"s/{row:04d}", "png": png(row), "cls": row % 3}
            writer.write({**sample, "json": {"label": NAMES[row % 3], "score": 0.5}})
    return str(folder / f"part-{{000..{tars - 1:03d}}}.tar")


def theirs(pattern: str) -> list[tuple[str, bytes, int]]:
    found = peer.WebDataset(pattern, shardshuffle=False)
    return [(one["__key__"], one["png"], int(one["cls"])) for one in found]


def ours(data: Any) -> list[tuple[str, bytes, int]]:
    pictures = [item.read_bytes() for item in data.images.items]
    return list(zip(data.columns["file"], pictures, data.labels.tolist(), strict=True))


def test_the_samples_are_those_of_the_package(tmp_path: Path) -> None:
    pattern = write(tmp_path)
    data = load_dataset(pattern)
    assert ours(data) == theirs(pattern)
    assert len(data) == 15
    assert data.classes == ("0", "1", "2")
    assert one_size(data.images) == (4, 5)
    decoded = next(data.batches(15)).images[7].permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(decoded, np.asarray(Image.open(io.BytesIO(png(7)))))
    named = load_dataset(str(tmp_path), label="json")
    assert named.classes == ("ant", "bee", "cat")
    assert named.labels.tolist() == data.labels.tolist()
    assert load_dataset(pattern).fingerprint == data.fingerprint


@pytest.mark.parametrize("count", [2, 5, 7])
def test_parts_are_disjoint_and_make_the_whole(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = write(tmp_path)
    whole = theirs(pattern)
    parts = [ours(load_dataset(pattern, shard=f"{i}/{count}", classes=3)) for i in range(count)]
    assert sorted(row for part in parts for row in part) == whole
    assert all(part == sorted(part) and part for part in parts)
    if count <= 5:  # whole tars, dealt as the package deals them to nodes
        monkeypatch.setenv("WORLD_SIZE", str(count))
        for rank, part in enumerate(parts):
            monkeypatch.setenv("RANK", str(rank))
            dealt = list(peer.split_by_node(named_files(pattern)))
            monkeypatch.delenv("RANK")
            assert part == [row for name in dealt for row in theirs(name)]
    else:
        assert parts == [whole[i::count] for i in range(count)]


def test_tars_in_storage_are_brought_once_and_only_those_of_the_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path / "cache"))
    pattern = write(tmp_path / "tars")
    files = fsspec.filesystem("memory")
    files.put(str(tmp_path / "tars") + "/", "/wds/", recursive=True)
    try:
        part = load_dataset("memory://wds/part-{000..004}.tar", shard="1/4", classes=3)
        assert ours(part) == ours(load_dataset(pattern, shard="1/4", classes=3))
        brought = sorted((tmp_path / "cache" / "shards").iterdir())
        assert len(brought) == 1
        times = [path.stat().st_mtime_ns for path in brought]
        load_dataset("memory://wds/part-{000..004}.tar", shard="1/4", classes=3)
        assert [path.stat().st_mtime_ns for path in brought] == times
        with pytest.raises(UserError, match=r"part-009\.tar cannot be read: there is no such"):
            load_dataset("memory://wds/part-009.tar")
    finally:
        files.rm("/wds", recursive=True)


def tar(path: Path, members: dict[str, bytes | str]) -> str:
    """Members by hand; a text is a link to that place."""
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return str(path)


def test_what_a_tar_must_not_do(tmp_path: Path) -> None:
    """Nothing is unpacked: names that climb are names, links and devices are passed over."""
    members: dict[str, bytes | str] = {"../../up.png": png(1), "../../up.cls": b"0"}
    data = load_dataset(tar(tmp_path / "a.tar", {"secret.txt": "/etc/passwd", **members}))
    assert data.columns["file"] == ("../../up",)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar"]


@pytest.mark.parametrize(
    ("members", "options", "says"),
    [
        ({"a.png": png(1)}, {}, "a: expected a label, there are png"),
        ({"a.cls": b"1"}, {}, "a: expected one picture, there are cls"),
        ({"a.png": png(1), "a.jpg": png(1), "a.cls": b"1"}, {}, "Name its ending with image="),
        ({"a.png": png(1), "a.json": b"[1]"}, {}, "expected a JSON object"),
        ({"a.png": png(1), "a.json": b"{"}, {}, "holds no label"),
        ({"a.png": png(1), "a.json": b"[" * 100_000}, {}, "nested too deeply"),
        ({"a.png": png(1), "a.cls": b"9"}, {"classes": 3}, "neither one of the 3 classes"),
        ({"a.png": png(1)[:40], "a.cls": b"0"}, {}, "1 of 1 images are broken: a"),
        ({"a.png": png(1), "a.png ": b"", "b": b"0"}, {}, "expected a label"),
        ({}, {}, "no samples are there"),
        ({"a.png": png(1), "a.cls": b"0"}, {"shard": "2/2"}, "i from 0 to n - 1"),
        ({"a.png": png(1), "a.cls": b"0"}, {"shard": "0/2"}, "Give classes="),
        ({"a.png": png(1), "a.cls": b"0"}, {"shard": "0/2", "classes": 1, "split": "val"}, "one"),
    ],
)
def test_what_is_wrong_with_a_tar_is_said(
    tmp_path: Path, members: dict[str, bytes | str], options: dict[str, Any], says: str
) -> None:
    with pytest.raises((BadDataError, BadParameterError)) as problem:
        load_dataset("webdataset", path=tar(tmp_path / "a.tar", members), **options)
    assert says in str(problem.value)


def test_pictures_of_too_many_pixels_are_refused_in_tars_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pictures of their own: what another test decoded may still be held.
    data = load_dataset(tar(tmp_path / "b.tar", {"a.png": png(901), "a.cls": b"0"}))
    monkeypatch.setattr("stockpot.datasets.pictures.MOST_PIXELS", 19)
    with pytest.raises(BadDataError, match="5 x 4 pixels; at most 19 in all are decoded"):
        next(data.batches(3))
    with pytest.raises(ValueError, match="5 x 4 pixels; at most 19"):
        one_size(data.images)
    with pytest.raises(BadDataError, match="5 x 4 pixels; at most 19"):
        load_dataset(tar(tmp_path / "a.tar", {"a.png": png(902), "a.cls": b"0"}))


def test_tars_that_are_none(tmp_path: Path) -> None:
    pattern = write(tmp_path, tars=1)
    whole = Path(named_files(pattern)[0]).read_bytes()
    for number, content in enumerate([b"", b"no tar" * 200, whole[:700], whole[:-9000]]):
        (tmp_path / f"x{number}.tar").write_bytes(content)
        with pytest.raises(BadDataError):
            load_dataset(str(tmp_path / f"x{number}.tar"))


def test_patterns() -> None:
    import braceexpand  # the package's own

    for pattern in ("a{08..11}b.tar", "{x,y}-{0..2}.tar", "plain.tar", "s3://b/{000..001}.tar"):
        assert named_files(pattern) == list(braceexpand.braceexpand(pattern))
    with pytest.raises(BadDataError, match="counts up"):
        named_files("{9..1}.tar")


def test_measured_and_checked_from_a_recipe(tmp_path: Path, pico_vit: Path) -> None:
    with peer.TarWriter(str(tmp_path / "a.tar")) as writer:
        for row in range(8):
            writer.write({"__key__": f"{row}", "png": png(row), "cls": row % 4})
    classes = tmp_path / "classes.json"
    classes.write_text(json.dumps(["ant", "bee", "cat", "dog"]))
    options = ("-d", f"classes={classes}")
    done = invoke("measure", pico_vit, "--data", tmp_path / "a.tar", "--with", "clean", *options)
    assert done.exit_code == 0, done.output
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"version: 1\ndata: {{d: {{dataset: '{tmp_path}/a{{1..2}}.tar'}}}}\n"
        f"models: {{m: {{load: '{pico_vit}'}}}}\n"
        "measure: {models: [m], with: [{measure: clean, data: d}]}\n"
    )
    found = invoke("validate", recipe)
    assert found.exit_code == 1
    assert "a1.tar" in found.output


def test_tars_that_were_written_anew_are_read_anew(tmp_path: Path) -> None:
    pattern = write(tmp_path, tars=2)
    whole = kept_dataset(pattern, {})
    assert kept_dataset(pattern, {}) is whole
    write(tmp_path, tars=2, each=2)  # another number of samples under the same names
    forget_datasets()  # as every call begins
    assert len(kept_dataset(pattern, {})) == 4 != len(whole)

"""Written folders load with safetensors and transformers, and appear whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from stockpot.checkpoints import hashes
from stockpot.checkpoints.folder import parse_size, staged_folder
from stockpot.checkpoints.hashes import FileHashes
from stockpot.checkpoints.source import TensorInfo
from stockpot.checkpoints.write import ShardWriter
from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.fuse.run import fuse
from stockpot.fuse.stream import Stream

STATE = {
    "a": torch.randn(6, 5),
    "b": torch.randn(7).bfloat16(),
    "c": torch.tensor(3),
    "d": torch.empty(0, 4),
    "e": torch.randn(2, 2).half(),
}
INFOS = {name: TensorInfo(tuple(v.shape), v.dtype) for name, v in STATE.items()}


def test_pieces_in_any_order_make_the_file(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, INFOS, max_shard=1 << 20) as writer:
        writer.write("e", STATE["e"])
        writer.write("a", STATE["a"].view(-1)[17:], start=17)
        writer.write("a", STATE["a"].view(-1)[:17], start=0)
        for name in "cbd":
            writer.write(name, STATE[name])
    got = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(got[name], want) for name, want in STATE.items())
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_shards_have_an_index(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, INFOS, max_shard=100) as writer:
        for name, value in STATE.items():
            writer.write(name, value)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(info.nbytes for info in INFOS.values())
    for name, file in index["weight_map"].items():
        assert torch.equal(load_file(tmp_path / file)[name], STATE[name])
    assert len(set(index["weight_map"].values())) == 2


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with staged_folder(out, needs=10) as folder:
        (folder / "x").write_text("1")
        assert not out.exists()
    assert (out / "x").read_text() == "1"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def fail_half_way(out: Path, problem: Exception) -> None:
    with staged_folder(out, needs=10) as folder:
        (folder / "half").write_text("...")
        raise problem


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_half_way(tmp_path / "out", ZeroDivisionError())
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("mine")
    with (
        pytest.raises(BadCheckpointError, match="exists already"),
        staged_folder(tmp_path / "out", needs=1),
    ):
        pass
    assert (tmp_path / "out" / "precious").read_text() == "mine"


def test_too_little_space_is_found_before_the_work(tmp_path: Path) -> None:
    with (
        pytest.raises(BadCheckpointError, match="GB are free"),
        staged_folder(tmp_path / "out", needs=1 << 60),
    ):
        raise AssertionError("not reached")


def test_a_disk_that_fills_up_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpointError, match="disk is full"):
        fail_half_way(tmp_path / "out", OSError(errno.ENOSPC, "No space left on device"))
    assert not list(tmp_path.iterdir())


def test_a_killed_run_leaves_no_model_and_is_cleaned_up(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from stockpot.checkpoints.folder import staged_folder
        with staged_folder(Path(sys.argv[1]), needs=1) as folder:
            (folder / "half").write_text("half a model")
            print("ready", flush=True)
            time.sleep(60)
        """
    )
    out = tmp_path / "out"
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(out)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert not out.exists()
    assert len(list(tmp_path.iterdir())) == 1
    with staged_folder(out, needs=1):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_sizes_are_read_as_people_write_them() -> None:
    assert parse_size("5GB") == 5_000_000_000
    assert parse_size("1.5 GiB") == int(1.5 * 2**30)
    assert parse_size("500mb") == 500_000_000
    assert parse_size("100") == 100
    assert parse_size(7) == 7
    for wrong in ("", "GB", "five", "0"):
        with pytest.raises(BadParameterError, match="such as 5GB"):
            parse_size(wrong)


def test_hashes_are_those_of_sha256sum(tmp_path: Path) -> None:
    save_file({"x": torch.randn(1000)}, tmp_path / "a.safetensors")
    (tmp_path / "empty").write_bytes(b"")
    files = [tmp_path / "a.safetensors", tmp_path / "empty"]
    found = FileHashes(files).result()
    if shutil.which("sha256sum"):
        lines = subprocess.run(
            ["sha256sum", *files], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert [line.split()[0] for line in lines] == [found[file] for file in files]


def test_the_hubs_cache_already_knows_its_hashes(tmp_path: Path) -> None:
    blob = tmp_path / ("ab" * 32)
    blob.write_bytes(b"anything")
    link = tmp_path / "model.safetensors"
    link.symlink_to(blob)
    assert FileHashes([link]).result() == {link: "ab" * 32}


def test_of_a_large_pool_only_what_was_just_read_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else hashing reads far ahead, and what memory cannot hold is read from the disk twice."""
    monkeypatch.setattr(hashes, "_MUCH", 3_000_000)
    monkeypatch.setattr(hashes, "_BLOCK", 1000)
    asked: dict[Path, list[float]] = {}
    plain = hashes._sha256

    def noting(begun: hashes._Begun, limit: Callable[[Path], float]) -> str | None:
        found = plain(begun, limit)
        asked.setdefault(begun.path, []).append(begun.place)
        return found

    monkeypatch.setattr(hashes, "_sha256", noting)
    files = [tmp_path / f"{name}.safetensors" for name in "abc"]
    for file in files:
        file.write_bytes(file.name.encode() * 100_000)
    found = FileHashes(files)
    with found.following():
        hashes.tell_read(files[0], 500_000)
        hashes.tell_read(files[1], 7000)
        hashes.tell_read(files[1], 9000)
        hashes.tell_read(tmp_path / "another", 1)
        wanted = {files[0]: 500_000, files[1]: 9000}
        for _ in range(500):
            if {path: places[-1] for path, places in asked.items()} == wanted:
                break
            time.sleep(0.01)
        time.sleep(0.05)
        assert {path: places[-1] for path, places in asked.items()} == wanted
    for file in files:
        assert found.result()[file] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert not hashes._told


def test_who_waits_for_hashes_need_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "_MUCH", 0)
    file = tmp_path / "a.safetensors"
    file.write_bytes(b"weights")
    assert FileHashes([file]).result() == {file: hashlib.sha256(b"weights").hexdigest()}
    FileHashes([file]).stop()


def test_a_fusion_tells_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that all may be hashed from memory before the fusion is done."""
    members = [tmp_path / f"{n}.safetensors" for n in range(2)]
    for n, member in enumerate(members):
        save_file({"x": torch.full((300_000,), float(n)), "y": torch.ones(300_000)}, member)
    read: dict[Path, int] = {}

    def note(path: Path, stop: int) -> None:
        read[path] = max(stop, read.get(path, 0))

    monkeypatch.setattr(hashes, "_told", [note])
    # Else the fusion of so little is done before anybody has read ahead.
    plain = Stream.slab
    monkeypatch.setattr(Stream, "slab", lambda *given: time.sleep(0.3) or plain(*given))
    fuse("average", members, out=tmp_path / "out")
    assert set(read) == set(members)
    assert all(stop == path.stat().st_size for path, stop in read.items())


def test_a_large_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hashes, "_LARGE", 10)
    path = tmp_path / "weights"
    path.write_bytes(b"0123456789abcdef")
    want = hashlib.sha256(path.read_bytes()).hexdigest()
    assert FileHashes([path]).result() == {path: want}
    assert not (tmp_path / "cache").exists()  # too fresh to be sure of
    monkeypatch.setattr(hashes, "_SETTLED", 0.0)
    assert FileHashes([path]).result() == {path: want}
    monkeypatch.setattr(hashes, "_sha256", lambda *_: "computed again")
    assert FileHashes([path]).result() == {path: want}
    path.write_bytes(b"fedcba9876543210")
    assert FileHashes([path]).result() == {path: "computed again"}
    (tmp_path / "cache" / "sha256.json").write_text("broken")
    assert FileHashes([path]).result() == {path: "computed again"}

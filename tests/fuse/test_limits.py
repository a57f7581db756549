"""Fusion within small limits: of open files, of address space, of what is read at a time."""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from stockpot.checkpoints.alignment import align
from stockpot.checkpoints.open import open_checkpoint, read_tensors
from stockpot.checkpoints.state_dict import StateDictSource
from stockpot.errors import BadCheckpointError
from stockpot.fuse import execute
from stockpot.fuse import stream as streams
from stockpot.fuse.read_ahead import ReadAhead
from stockpot.fuse.run import fuse

SHARDS = 6
DATA = 220 << 20
"""What the command may have besides files and torch itself, which takes 180 MB in a build for
processors and 740 MB in one for GPUs: the arenas of threads take some more on a busy machine."""
LIMITED = f"""
import os, resource, subprocess, sys
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # a thread for each core takes its own
taken = "import torch; print(next(l for l in open('/proc/self/status') if 'VmData' in l))"
told = subprocess.check_output([sys.executable, "-c", taken], text=True)
most = 1024 * int(told.split()[1]) + {DATA}
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@contextmanager
def limited(kind: int, most: int) -> Iterator[None]:
    """As `ulimit` does it, and taken back."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def sharded(folder: Path, seed: float) -> Path:
    """A model of `SHARDS` files with one tensor each."""
    folder.mkdir()
    names = [f"model-{n:05d}-of-{SHARDS:05d}.safetensors" for n in range(1, SHARDS + 1)]
    for number, name in enumerate(names):
        save_file({f"layer.{number}": torch.full((4, 3), seed + number)}, folder / name)
    places = {f"layer.{number}": name for number, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


@pytest.fixture
def many(tmp_path: Path) -> list[Path]:
    """Eleven times six files: more than may be open."""
    return [sharded(tmp_path / f"m{n}", float(n)) for n in range(11)]


@pytest.fixture
def few_files() -> Iterator[int]:
    most = 40 + len(os.listdir("/proc/self/fd"))
    with limited(resource.RLIMIT_NOFILE, most):
        yield most


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors as Linux does")
class TestOpenFiles:
    def test_members_of_more_shards_than_files_may_be_open(
        self, many: list[Path], few_files: int, tmp_path: Path
    ) -> None:
        out = fuse("average", many, out=tmp_path / "out")
        for number, values in enumerate(read_tensors(out).values()):
            assert torch.equal(values, torch.full((4, 3), 5.0 + number))

    def test_models_of_more_shards_than_files_may_be_open(
        self, many: list[Path], few_files: int, tmp_path: Path
    ) -> None:
        """A model per member, each in its shards, are written at once."""
        base = sharded(tmp_path / "base", -1.0)
        out = fuse("tall_mask", many, base=base, out=tmp_path / "out", max_shard=48)
        assert len(list(out.glob("*/model-*.safetensors"))) == 11 * SHARDS

    def test_nothing_stays_open(self, many: list[Path], tmp_path: Path) -> None:
        before = len(os.listdir("/proc/self/fd"))
        fuse("average", many, out=tmp_path / "out")
        assert len(os.listdir("/proc/self/fd")) == before


def test_reading_ahead_that_is_cut_short_keeps_nothing_open(many: list[Path]) -> None:
    """No collector is waited for: the files would be open until it happens to run."""
    alignment = align([open_checkpoint(path) for path in many])
    kept = ref(alignment.members[0])
    gc.disable()
    try:
        with ReadAhead(alignment, step=1, threads=1):
            pass
        del alignment
        assert kept() is None
    finally:
        gc.enable()


def with_a_large_head(path: Path, value: float, head: int, suffix: str = "") -> Path:
    """A file of a few numbers and a head of zeros that takes no room on the disk."""
    own, large = f"layer.weight{suffix}", f"head.weight{suffix}"
    entries = {
        own: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
        large: {"dtype": "F32", "shape": [head], "data_offsets": [16, 16 + 4 * head]},
    }
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(torch.full((4,), value).numpy().tobytes())
        file.truncate(8 + len(text) + 16 + 4 * head)
    return path


def test_files_larger_than_the_memory(tmp_path: Path) -> None:
    """Each is four times the address space that is left."""
    room = 1 << 28
    files = [
        with_a_large_head(tmp_path / f"{n}.safetensors", float(n), head=room) for n in range(3)
    ]
    with limited(resource.RLIMIT_AS, address_space() + room):
        got = fuse("average", files, head="drop")
    assert torch.equal(got["layer.weight"], torch.ones(4))


def test_a_mapping_that_is_refused_is_read_instead(tmp_path: Path) -> None:
    path = with_a_large_head(tmp_path / "a.safetensors", 3.0, head=1 << 28)
    source = open_checkpoint(path)
    with limited(resource.RLIMIT_AS, address_space() + (1 << 27)):
        assert torch.equal(source.read("layer.weight"), torch.full((4,), 3.0))


def test_a_file_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"w": torch.ones(3)}, path)
    source = open_checkpoint(path)
    save_file({"w": torch.zeros(5)}, path)
    with pytest.raises(BadCheckpointError, match="was changed while it was read"):
        source.stretch("w", 0, 3)
    path.unlink()
    with pytest.raises(BadCheckpointError, match="cannot be read"):
        source.read("w")


class Counting(StateDictSource):
    """Weights that note the longest stretch that was asked for."""

    longest = 0

    def stretch(self, name: str, start: int, stop: int) -> Tensor:
        Counting.longest = max(Counting.longest, stop - start)
        return self.state[name].reshape(-1)[start:stop]

    def read(self, name: str) -> Tensor:
        Counting.longest = max(Counting.longest, self.state[name].numel())
        return super().read(name)


METHODS: dict[str, dict[str, Any]] = {
    "model_stock": {},
    "karcher": {},
    "della": {"rescale": "l1"},
    "sce": {"density": 0.3},
}


@pytest.mark.parametrize("method", METHODS)
def test_no_tensor_is_in_memory_whole(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In stretches they give what they give of the whole, up to the rounding of a sum."""
    generator = torch.Generator().manual_seed(3)
    base = {"w": torch.randn(90, 40, generator=generator)}
    pool = [{"w": base["w"] + 0.1 * torch.randn(90, 40, generator=generator)} for _ in range(3)]
    anchor = None if method == "karcher" else base
    whole = fuse(method, pool, base=anchor, **METHODS[method])
    for room in (streams, execute):
        monkeypatch.setattr(room, "STRETCH", 400)
    monkeypatch.setattr(Counting, "longest", 0)
    sources = [Counting(state, label=str(n)) for n, state in enumerate(pool)]
    parts = fuse(method, sources, base=anchor, **METHODS[method])
    assert 0 < Counting.longest <= 400
    torch.testing.assert_close(parts["w"], whole["w"], rtol=0, atol=1e-6)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="limits as Linux has them")
class TestTheCommand:
    """A process of its own, under `ulimit`: a hundred members that it could not hold at once."""

    MEMBERS, FILES, EACH = 100, 2, 1 << 20

    @pytest.fixture
    def pool(self, tmp_path: Path) -> list[Path]:
        """Sparse files that read as zeros but for a few weights; 800 MB of them in all."""
        found = []
        for number in range(self.MEMBERS):
            folder = tmp_path / f"m{number}"
            folder.mkdir()
            for part in range(self.FILES):
                path = folder / f"model-{part + 1:05d}-of-{self.FILES:05d}.safetensors"
                with_a_large_head(path, float(number), head=self.EACH, suffix=f".{part}")
            found.append(folder)
        return found

    def test_a_hundred_members_under_small_limits(self, pool: list[Path], tmp_path: Path) -> None:
        """64 files may be open where 200 are read, and memory is a quarter of what they hold."""
        out, base = tmp_path / "out", pool[0]
        words = ["-m", "stockpot", "fuse", "task_arithmetic", *map(str, pool), "--base", str(base)]
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, *words, "-o", str(out)],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "STOCKPOT_CACHE": str(tmp_path / "cache")},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        source = open_checkpoint(out)
        for part in range(self.FILES):
            wanted = torch.full((4,), 0.3 * sum(range(self.MEMBERS)))
            torch.testing.assert_close(source.read(f"layer.weight.{part}"), wanted)
            assert source.tensors()[f"head.weight.{part}"].numel == self.EACH

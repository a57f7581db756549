"""What a plan says of memory, against what a process that does it takes."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pico import CLASSES, make_classifier
from processes import Running
from stockpot.fuse.cost import INTERPRETER, LIBRARIES
from stockpot.fuse.learning.memory import held_pictures
from stockpot.fuse.run import fuse, plan
from stockpot.fuse.sparse.select import TABLE
from stockpot.fuse.spectral.decompose import leading_triples
from task_pools import random_dataset

SIDE = 32
MANY = 60
MERGES = ("average", "ties", "pcb", "model_stock", "breadcrumbs")
DECOMPOSE = ("dop", "doge_ta", "iso_c", "iso_cts", "knots", "opcm", "tsv_m", "wudi")
CASES: dict[str, dict[str, Any]] = {
    "adamerging": {"steps": 1, "batch_size": 128},  # activations
    "joint": {"steps": 1, "batch_size": 8},  # the optimiser's own weights
    "greedy_soup": {"batch_size": 128},  # no backward pass
}


class Wide(nn.Module):
    """Few multiplications, many activations, and as many weights."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        grow = [nn.Conv2d(3, 24, 1), *(part for _ in range(4) for part in (nn.GELU(), nn.ReLU()))]
        self.grow = nn.Sequential(*grow, nn.AdaptiveAvgPool2d(8), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(24 * 8 * 8, 2048), nn.Linear(2048, len(CLASSES)))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.grow(pixels))
        return found


def question(seed: int = 0) -> dict[str, Any]:
    base, *members = (make_classifier(Wide(seed + i), size=SIDE) for i in range(3))
    return {"members": members, "base": base, "device": "cpu",
            "tasks": [random_dataset(CLASSES, n=128, side=SIDE)] * 2}  # fmt: skip


def pool_of(count: int, side: int = 1024) -> dict[str, Any]:
    """Members that share their memory with the base, so that what is seen is the walk's alone."""
    weights = {"layer.weight": torch.randn(side, side)}
    return {"members": [weights] * count, "base": weights, "device": "cpu", "threads": 2}


def matrices(side: int, count: int = 3) -> dict[str, Any]:
    """Members that changed four matrices each, two of which are merged at a time."""
    torch.manual_seed(0)
    base = {f"encoder.layers.{n}.weight": torch.randn(side, side) for n in range(4)}
    members = [{k: v + 0.01 * torch.randn(side, side) for k, v in base.items()}
               for _ in range(count)]  # fmt: skip
    return {"members": members, "base": base, "device": "cpu", "threads": 2}


def few_steps(method: str) -> dict[str, Any]:
    return {"steps": 2} if method in ("dop", "doge_ta", "wudi") else {}


def _private() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def _peaks(out: str) -> None:
    """What each fusion takes beyond what its process had: itself, and with a plan."""
    asked = question()
    # Libraries that are imported when they are first used are no part of it.
    fuse("adamerging", **asked, steps=1, batch_size=1)
    keep = ctypes.CDLL("libc.so.6")
    found = {}
    for method, settings in CASES.items():
        keep.malloc_trim(0)
        before = _private()
        with _watched() as peaks:
            fuse(method, **asked, **settings)
        found[method] = max(peaks) - before
    Path(out).write_text(json.dumps(found))


def _walk(method: str, count: int, out: str) -> None:
    """The same of a merge of so many members, without what it makes."""
    _beyond(method, pool_of(2, side=64), pool_of(count), out)


def _decompose(method: str, side: int, out: str) -> None:
    """The same of matrices that changed."""
    few = few_steps(method)
    _beyond(method, matrices(300) | few, matrices(side) | few, out)


def _beyond(method: str, first: dict[str, Any], asked: dict[str, Any], out: str) -> None:
    fuse(method, **first)
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = _private()
    with _watched() as peaks:
        made = fuse(method, **asked)
    Path(out).write_text(str(max(peaks) - before - sum(each.nbytes for each in made.values())))


@contextmanager
def _watched() -> Iterator[list[int]]:
    """The process's private memory, looked at again and again."""
    seen, done = [_private()], threading.Event()

    def look() -> None:
        while not done.wait(0.002):
            seen.append(_private())

    watcher = threading.Thread(target=look)
    watcher.start()
    yield seen
    done.set()
    watcher.join()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the memory")
def test_the_memory_that_a_plan_states_is_what_learning_takes(tmp_path: Path) -> None:
    ended = Running(_peaks, str(tmp_path / "peaks")).wait()
    assert ended.returncode == 0, ended.stderr
    taken = json.loads((tmp_path / "peaks").read_text())
    asked = question()
    for method, settings in CASES.items():
        said = plan(method, **asked, **settings).peak_bytes - INTERPRETER - LIBRARIES
        # 1.1 to 1.3 where it was measured; allocators of other systems keep more or less.
        assert 0.8 < said / taken[method] < 1.8, (method, taken[method], said)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the memory")
@pytest.mark.parametrize("method", DECOMPOSE)
def test_the_memory_that_a_plan_states_for_decompositions(method: str, tmp_path: Path) -> None:
    side = 640
    ended = Running(_decompose, method, side, str(tmp_path / "peak")).wait()
    assert ended.returncode == 0, ended.stderr
    taken = int((tmp_path / "peak").read_text())
    said = plan(method, **matrices(side), **few_steps(method)).peak_bytes - INTERPRETER
    assert taken < 1.25 * said + 20e6, (taken, said)
    assert said < 1.5 * taken + 40e6, (taken, said)


def test_a_table_that_is_no_matrix_is_not_counted_as_one() -> None:
    def said(name: str) -> int:
        weights = {name: torch.zeros(4096, 64), "layer.weight": torch.zeros(64, 64)}
        members = [weights] * 2
        return plan("dop", members=members, base=weights, device="cpu", threads=2).peak_bytes

    assert said("embeddings.weight") - INTERPRETER < (said("head.weight") - INTERPRETER) / 4


def test_directions_that_are_not_kept_leave_no_memory_behind() -> None:
    generator = torch.Generator().manual_seed(0)
    for side in (64, 400):  # by an SVD, and by the Gram matrix
        matrix = torch.randn(side, side, generator=generator)
        found = leading_triples(matrix, torch.tensor(0.0), 8)
        assert found.left.untyped_storage().nbytes() == found.left.nbytes
        assert found.right.untyped_storage().nbytes() == found.right.nbytes


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the memory")
@pytest.mark.parametrize("count", [2, MANY])
@pytest.mark.parametrize("method", MERGES)
def test_the_memory_that_a_plan_states_for_many_members(
    method: str, count: int, tmp_path: Path
) -> None:
    ended = Running(_walk, method, count, str(tmp_path / "peak")).wait()
    assert ended.returncode == 0, ended.stderr
    taken = int((tmp_path / "peak").read_text())
    said = plan(method, **pool_of(count)).peak_bytes - INTERPRETER
    # What was freed is kept by the allocator or not; most methods need less than they may.
    assert taken < 1.5 * said + 30e6, (taken, said)
    assert said < 1.5 * taken + 80e6, (taken, said)


def test_members_that_are_read_one_after_the_other_take_no_more_memory() -> None:
    for method, counted in (("average", 0), ("model_stock", 0), ("ties", 1), ("pcb", 2)):
        few, many = (plan(method, **pool_of(count)).peak_bytes for count in (8, MANY))
        assert many - few == 2 * counted * TABLE * (MANY - 8)  # two threads count them
    for method in ("breadcrumbs", "iso_c"):
        few, many = (plan(method, **pool_of(count)).peak_bytes for count in (8, MANY))
        assert few == many
    few, many = (plan("doge_ta", targets="*", **pool_of(count)).peak_bytes for count in (8, MANY))
    assert many - INTERPRETER > 3 * (few - INTERPRETER)  # all members' changes at once


def test_tasks_that_share_their_pictures_pick_out_batches_of_their_own() -> None:
    data, model = random_dataset(CLASSES, n=128, side=SIDE), make_classifier(Wide(0), size=SIDE)
    pictures = data.images.pixels.nbytes  # type: ignore[union-attr]
    one, three = (held_pictures([data] * count, model, 16) for count in (1, 3))
    assert one == 2 * pictures  # they all fit into the batches that are picked out at once
    assert three == one + 2 * pictures

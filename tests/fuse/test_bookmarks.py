"""Learning that was stopped goes on where it stood, and comes to the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stockpot.fuse.learning import bookmark
from stockpot.fuse.run import fuse
from task_pools import ClipPool, make_clip_pool

STEPS = 6
METHODS: dict[str, dict[str, Any]] = {
    "adamerging": {"steps": STEPS},
    "concrete": {"steps": STEPS, "adapt_steps": STEPS, "merge": "adamerging_layer"},
    "wemoe": {"steps": STEPS, "lr": 0.01},
    "surgery": {"steps": STEPS, "surgery_steps": 2},
    "learned_soup": {"epochs": STEPS, "lr": 0.05},
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ClipPool:
    return make_clip_pool(tmp_path_factory.mktemp("pool"))


@pytest.fixture(autouse=True)
def save_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookmark, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(bookmark, "TIMES_ITS_COST", 0.0)


class StoppedError(Exception):
    """As by a key, or by the end of a machine."""


class Watch:
    """Counts steps of learning, and stops after so many."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.seen: list[tuple[str, int]] = []
        self._stop_after = stop_after

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != "learning corrections":
            self.seen.append((what, done))
        if len(self.seen) == self._stop_after:
            raise StoppedError


def run(pool: ClipPool, method: str, out: Path, watch: Watch, **changes: Any) -> dict[str, Any]:
    base = None if method == "learned_soup" else pool.base
    tasks = list(pool.tasks.values())
    folder = fuse(
        method, pool.members, base=base, tasks=tasks, out=out, progress=watch, batch_size=4,
        **METHODS[method], **changes,
    )  # fmt: skip
    return {
        f"{file.name}/{name}": value
        for file in sorted(folder.glob("*.safetensors"))
        for name, value in load_file(file).items()
    }


@pytest.mark.parametrize(
    ("method", "stop_after"),
    [("adamerging", 4), ("concrete", 3), ("concrete", STEPS + 3), ("wemoe", 4), ("surgery", 5),
     ("learned_soup", 3)],
)  # fmt: skip
def test_it_comes_to_the_same_weights(
    pool: ClipPool, tmp_path: Path, method: str, stop_after: int
) -> None:
    whole = Watch()
    expected = run(pool, method, tmp_path / "whole", whole)
    out = tmp_path / "stopped"
    with pytest.raises(StoppedError):
        run(pool, method, out, Watch(stop_after))
    assert not out.exists()
    rest = Watch()
    found = run(pool, method, out, rest)
    # The step that was stopped had not been saved yet.
    assert rest.seen == whole.seen[stop_after - 1 :]
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stopped", "whole"]


def test_other_settings_start_anew(pool: ClipPool, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        run(pool, "adamerging", tmp_path / "out", Watch(4))
    watch = Watch()
    run(pool, "adamerging", tmp_path / "out", watch, lr=0.01)
    assert len(watch.seen) == STEPS


def test_a_spoilt_bookmark_is_no_obstacle(pool: ClipPool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    bookmark.bookmark_of(out, "").write_bytes(b"spoilt")
    watch = Watch()
    run(pool, "adamerging", out, watch)
    assert len(watch.seen) == STEPS
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

"""MASS merges for each image the members that its formula names, and as `tsv_m` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import stockpot
from other_machine import on_another_machine
from stockpot.fuse.run import fuse
from stockpot.models.modules.subspace import SubspaceExperts
from task_pools import ClipPool, make_clip_pool


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ClipPool:
    return make_clip_pool(tmp_path_factory.mktemp("pool"))


def module(pool: ClipPool, out: Path, data: Any, **settings: Any) -> Any:
    folder = fuse("mass", pool.members, base=pool.base, out=out, **settings)
    return stockpot.load_model(folder, classes=data.classes)


@torch.no_grad()
def logits(model: Any, data: Any) -> torch.Tensor:
    found: torch.Tensor = model(data.images.pixels)
    return found


def inner(model: Any) -> SubspaceExperts:
    found = model.network.inner
    assert isinstance(found, SubspaceExperts)
    return found


def test_all_members_at_once_are_tsv_m(pool: ClipPool, tmp_path: Path) -> None:
    data = pool.tasks["ants"]
    model = module(pool, tmp_path / "all", data, threshold=0.0, scale=0.7)
    folder = fuse("tsv_m", pool.members, base=pool.base, scale=0.7, out=tmp_path / "tsv",
                  exclude=("text_*", "*projection*", "logit_scale"))  # fmt: skip
    want = logits(stockpot.load_model(folder, classes=data.classes), data)
    torch.testing.assert_close(logits(model, data), want, rtol=1e-4, atol=1e-4)


def test_who_is_asked_follows_the_residuals(
    pool: ClipPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pool.tasks["foxes"]
    on_another_machine(monkeypatch)
    model = module(pool, tmp_path / "out", data, threshold=0.3, temperature=0.5, most=2)
    experts = inner(model)
    # Noise of many strengths, so that not all images ask the same.
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randn(64, 3, 16, 16, generator=draw) * torch.linspace(0, 8, 64).view(-1, 1, 1, 1)
    pixels += 3 * torch.randn(64, 3, 1, 1, generator=draw)
    seen = experts._features(pixels).double().numpy()
    down = experts._part(f"{experts._route}.weight:down").double().numpy()
    distances = np.stack(
        [np.linalg.norm(seen - seen @ own.T @ own, axis=1) for own in down], axis=1
    )
    usual = -(distances - distances.mean(1, keepdims=True)) / distances.std(
        1, keepdims=True, ddof=1
    )
    weights = np.exp(usual / 0.5)
    weights /= weights.sum(1, keepdims=True)
    got = experts.shares(pixels)
    np.testing.assert_allclose(got.numpy(), weights, rtol=1e-3, atol=1e-4)
    for row, members in zip(weights, experts.asked(pixels), strict=True):
        best = sorted(np.argsort(-row)[:2])
        assert list(members) == ([m for m in best if row[m] > 0.3] or [int(row.argmax())])
    assert len(set(experts.asked(pixels))) > 1


def test_a_single_member_answers_with_its_leading_directions(
    pool: ClipPool, tmp_path: Path
) -> None:
    data = pool.tasks["ants"]
    experts = inner(module(pool, tmp_path / "out", data, threshold=1.0))
    assert all(len(members) == 1 for members in experts.asked(data.images.pixels / 255.0))
    plain = dict(experts.network.named_parameters())
    member = stockpot.load_model(pool.members["numbers"], classes=data.classes)
    theirs = dict(member.network.named_parameters())
    place = list(pool.members).index("numbers")
    name = f"{experts._route}.weight"
    change = (theirs[name] - plain[name]).detach().double().numpy()
    left, values, right = np.linalg.svd(change, full_matrices=False)
    rank = min(change.shape) // 3
    want = plain[name].detach().double().numpy() + left[:, :rank] * values[:rank] @ right[:rank]
    got = experts.merged((place,))[name].detach().double().numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)

"""The laws that every finishing step obeys, after whatever method: one row per step.

A step that is registered without a row here fails the suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_fusers import State, assert_same, awkward_change, make_base, make_member

from other_machine import on_another_machine
from stockpot.fuse.finish import finishers
from stockpot.fuse.run import fuse


class Row(NamedTuple):
    """A step, and parameters with which it changes nothing."""

    name: str
    neutral: Mapping[str, Any] = MappingProxyType({})
    members: int = 3
    """Of how many members the neutral parameters are neutral."""


ROWS = [
    Row("subspace_boosting", {"beta": 1.0}),
    Row("larv", {"reach": 0.0}),
    Row("svc", members=1),
]
METHODS = ("average", "task_arithmetic", "ties", "tsv_m", "emr")
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def models(method: str, members: Any, base: Any, **settings: Any) -> list[State]:
    made = fuse(method, members, base=base, **settings)
    return list(made.values()) if method == "emr" else [made]


def pool(count: int = 3) -> tuple[list[State], State]:
    base = make_base()
    return [make_member(base, seed) for seed in range(count)], base


def test_every_step_has_a_row() -> None:
    assert sorted(row.name for row in ROWS) == finishers.names()


@every_row
@pytest.mark.parametrize("method", METHODS)
def test_where_nothing_changed_the_base_stays(row: Row, method: str) -> None:
    base = make_base()
    for model in models(method, [dict(base)] * 3, base, then=row.name):
        assert_same(model, base)


@every_row
@pytest.mark.parametrize("method", METHODS)
def test_what_is_no_matrix_stays_as_it_was_fused(row: Row, method: str) -> None:
    members, base = pool()
    plain, finished = (models(method, members, base, then=then) for then in (None, row.name))
    for before, after in zip(plain, finished, strict=True):
        assert list(before) == list(after)
        for name, value in before.items():
            assert torch.equal(after[name], value) == (value.ndim != 2), name


@every_row
def test_neutral_parameters_change_nothing(row: Row) -> None:
    members, base = pool(row.members)
    scale = 1.0 if row.members == 1 else 0.3
    settings = {"base": base, "scale": scale}
    plain = fuse("task_arithmetic", members, **settings)
    finished = fuse("task_arithmetic", members, **settings, then={row.name: dict(row.neutral)})
    for name, value in plain.items():
        torch.testing.assert_close(finished[name], value, rtol=0, atol=1e-7)


@every_row
def test_order_of_members(row: Row) -> None:
    members, base = pool()
    turned = [members[2], members[0], members[1]]
    forward, backward = (fuse("average", m, base=base, then=row.name) for m in (members, turned))
    for name in forward:
        torch.testing.assert_close(forward[name], backward[name], rtol=1e-4, atol=2e-6)


@every_row
@pytest.mark.parametrize("method", ["task_arithmetic", "iso_c"])
def test_another_machine_changes_nothing(
    row: Row, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make_base()
    members = [
        {
            name: value + awkward_change(value.shape, number + len(name))
            if value.ndim == 2
            else value.clone()
            for name, value in base.items()
        }
        for number in range(3)
    ]
    here = fuse(method, members, base=base, then=row.name)
    on_another_machine(monkeypatch)
    there = fuse(method, members, base=base, then=row.name)
    for name, value in here.items():
        torch.testing.assert_close(there[name], value, rtol=1e-5, atol=1e-6)


@every_row
@pytest.mark.parametrize("method", ["ties", "dare", "model_stock"])
def test_streamed_equals_in_memory(row: Row, method: str, tmp_path: Path) -> None:
    members, base = pool()
    for number, state in enumerate([base, *members]):
        # Several stretches, and cheap to decompose.
        draw = torch.randn(6600, 40, generator=torch.Generator().manual_seed(5))
        state["encoder.large.weight"] = draw + 0.01 * number * torch.cos(draw + number)
        save_file(state, tmp_path / f"{number}.safetensors")
    base_file, *files = (tmp_path / f"{number}.safetensors" for number in range(4))
    want = fuse(method, members, base=base, then=row.name, threads=1)
    out = fuse(method, files, base=base_file, then=row.name, threads=3, out=tmp_path / "out")
    got = {k: v for shard in out.glob("*.safetensors") for k, v in load_file(shard).items()}
    assert_same({name: got[name] for name in want}, want)


@every_row
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtypes_are_kept(row: Row, dtype: torch.dtype) -> None:
    members, base = pool()
    cast = [
        {k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}
        for state in (base, *members)
    ]
    made = fuse("task_arithmetic", cast[1:], base=cast[0], then=row.name)
    for name, value in cast[0].items():
        assert made[name].dtype == value.dtype
        assert torch.isfinite(made[name].double()).all()

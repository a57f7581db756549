"""The laws that every fusion method obeys: one row per method, one test per law.

A method that is registered without a row here fails the suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from state_network import architecture, law_data
from torch import Tensor

from other_machine import on_another_machine
from stockpot.checkpoints.open import read_tensors
from stockpot.errors import BadCheckpointError, UserError
from stockpot.fuse import fusers
from stockpot.fuse.run import fuse

State = dict[str, Tensor]


class Row(NamedTuple):
    """A method, how to call it, and what it promises."""

    name: str
    params: Mapping[str, Any] = MappingProxyType({})
    members: int = 3
    base: bool = True
    symmetric: bool = False
    ends: tuple[tuple[dict[str, Any], str], ...] = ()
    """Parameters at which the result is exactly one of the inputs; `alone` is a single member."""
    several: bool = False
    """Whether it makes one model per member."""
    small: bool = False
    """Whether its folders are a small change of the base, which opening them undoes."""
    data: bool = False
    """Whether it learns from data: the states are then given an architecture and a task."""


AT_BASE = (({"scale": 0.0}, "base"),)
ALONE = (({}, "alone"),)
ROWS = [
    Row("average", base=False, symmetric=True, ends=ALONE),
    Row("uniform_soup", base=False, symmetric=True, ends=ALONE),
    Row(
        "weighted",
        {"weights": [0.5, 0.3, 0.2]},
        base=False,
        ends=(({"weights": [1, 0, 0]}, "0"), ({"weights": [0, 0, 1]}, "2")),
    ),
    Row("passthrough", members=1, base=False, ends=ALONE),
    Row("wise_ft", members=2, base=False, ends=(({"alpha": 0}, "0"), ({"alpha": 1}, "1"))),
    Row("slerp", members=2, base=False, ends=(({"t": 0}, "0"), ({"t": 1}, "1"))),
    Row("karcher", base=False, symmetric=True, ends=ALONE),
    Row("nuslerp", members=2, ends=(({"t": 0}, "0"), ({"t": 1, "along": "last"}, "1"))),
    Row("multislerp", symmetric=True, ends=ALONE),
    Row("task_arithmetic", symmetric=True, ends=AT_BASE),
    Row("expo", symmetric=True, ends=(({"alpha": 0.0}, "alone"),)),
    Row("ties", symmetric=True, ends=AT_BASE),
    Row("dare", ends=AT_BASE),
    Row("della", ends=AT_BASE),
    Row("breadcrumbs", symmetric=True, ends=AT_BASE),
    Row("magmax", ends=AT_BASE),
    Row("sce", symmetric=True, ends=AT_BASE),
    Row("arcee_fusion", members=1, ends=(({"spread": -1e9}, "0"),)),
    Row("nearswap", members=1, ends=(({"distance": 0}, "base"), ({"distance": 1e9}, "0"))),
    Row("ram", {"reinforce": 0.1}, symmetric=True, ends=AT_BASE),
    Row("pcb", symmetric=True, ends=AT_BASE),
    Row("consensus_ta", symmetric=True, ends=AT_BASE),
    Row("model_stock", symmetric=True),
    Row("tsv_m", symmetric=True, ends=AT_BASE),
    Row("iso_c", symmetric=True, ends=AT_BASE),
    Row("iso_cts", symmetric=True, ends=AT_BASE),
    Row("wudi", {"steps": 5}, symmetric=True, ends=AT_BASE),
    Row("doge_ta", {"steps": 5}, ends=AT_BASE),
    Row("opcm", ends=AT_BASE + ALONE),
    Row("dop", {"steps": 5}, ends=ALONE),
    Row("knots", ends=AT_BASE),
    Row("emr", several=True, ends=ALONE),
    Row("tall_mask", several=True, ends=ALONE),
    Row("bitdelta", several=True, small=True, ends=(({"scale": 0, "others": "base"}, "base"),)),
    Row("randes", several=True, small=True, ends=AT_BASE),
    Row("adamerging", {"steps": 2}, data=True, ends=(({"steps": 0, "init": 0.0}, "base"),)),
    Row("concrete", {"steps": 2}, data=True, ends=(({"steps": 0, "scale": 0.0}, "base"),)),
    Row("tatr", {"examples": 4}, data=True, symmetric=True, ends=AT_BASE),
    Row(
        "fw_hard",
        {"steps": 2, "examples": 8},
        data=True,
        ends=(({"init": 0.0, "scale": 0.0}, "base"),),
    ),
    Row(
        "fw_soft",
        {"steps": 2, "examples": 8, "adapt_steps": 2},
        data=True,
        ends=(({"steps": 0}, "base"),),
    ),
    # Training is no fusion: the laws hold where it begins.
    Row("joint", {"steps": 0}, data=True, ends=(({}, "base"),)),
    Row("ada_svd", {"examples": 8}, data=True, symmetric=True, ends=AT_BASE),
    Row("fisher", {"examples": 8}, base=False, data=True, symmetric=True, ends=ALONE),
    Row("regmean", {"examples": 8}, base=False, data=True, symmetric=True, ends=ALONE),
    Row("regmean_pp", {"examples": 8}, base=False, data=True, symmetric=True, ends=ALONE),
    Row("esm", {"examples": 8}, data=True, symmetric=True, ends=AT_BASE),
    Row("greedy_soup", base=False, data=True, ends=ALONE),
    Row("learned_soup", {"epochs": 1}, base=False, data=True, ends=ALONE),
]
APART = ["pleas", "zipit"]
"""These move units of networks whose graph they know; their laws are in
tests/fuse/test_trained_apart.py."""
MODULES = ["dawe", "ensemble", "mass", "rank_one_moe", "smile", "surgery", "twin", "wemoe"]
"""These make folders, not state dicts; their laws are in tests/fuse/test_module_fusers.py
and test_ensembles.py."""
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def test_every_method_has_a_row() -> None:
    assert sorted([*(row.name for row in ROWS), *APART, *MODULES]) == fusers.names()


def make_base() -> State:
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator) * 0.1  # noqa: E731
    return {
        "embeddings.patch_embedding.weight": draw(6, 3, 4, 4),
        "encoder.layers.0.fc1.weight": draw(24, 12),
        "encoder.layers.0.fc1.bias": draw(24),
        "encoder.layers.0.norm.weight": 1 + draw(12),
        "encoder.layers.1.fc1.weight": draw(12, 24),
        "bn.running_mean": draw(12),
        "bn.running_var": draw(12).abs() + 0.01,
        "bn.num_batches_tracked": torch.tensor(17),
        "scale": torch.tensor(2.5),
    }


def make_member(base: State, seed: int) -> State:
    generator = torch.Generator().manual_seed(100 + seed)
    member = {}
    for name, value in base.items():
        if not value.is_floating_point():
            member[name] = value.clone()
            continue
        change = torch.randn(value.shape, generator=generator) * 0.05
        member[name] = value * change.exp() if "var" in name else value + change
    return member


def make_pool(row: Row) -> tuple[list[State], State | None]:
    base = make_base()
    return [make_member(base, i) for i in range(row.members)], base if row.base else None


def run(row: Row, members: Any, base: Any, **settings: Any) -> dict[str, State]:
    """The models a method makes, by name; a single one is called `model`."""
    if row.data:
        state = base if base is not None else next(iter(states_of(members)))
        base, settings = architecture(state), {**settings, "tasks": law_data()}
    result = fuse(row.name, members, base=base, **{**row.params, **settings})
    return result if row.several else {"model": result}


def states_of(members: Any) -> list[State]:
    return list(members.values() if isinstance(members, dict) else members)


def assert_same(got: State, want: State) -> None:
    assert list(got) == list(want)
    for name in want:
        assert got[name].dtype == want[name].dtype, name
        assert torch.equal(got[name], want[name]), name


@every_row
def test_equal_inputs_come_back_unchanged(row: Row) -> None:
    same = make_base()
    members = [dict(same) for _ in range(row.members)]
    for model in run(row, members, same if row.base else None).values():
        assert_same(model, same)


def test_all_methods_but_one_have_an_end() -> None:
    # model_stock needs two members, and its share of the base follows from their angle.
    assert [row.name for row in ROWS if not row.ends] == ["model_stock"]


@pytest.mark.parametrize("row", [row for row in ROWS if row.ends], ids=lambda row: row.name)
def test_ends_are_bit_exact(row: Row) -> None:
    members, base = make_pool(row)
    for params, end in row.ends:
        pool = members[:1] if end == "alone" else members
        want = base if end == "base" else members[0 if end == "alone" else int(end)]
        assert want is not None
        for got, name in product(run(row, pool, base, **params).values(), want):
            # A method that is not linear averages BatchNorm statistics, wherever its scale is.
            if end == "alone" or "running" not in name or fusers.get(row.name).tags.linear:
                assert torch.equal(got[name], want[name]), name


@every_row
def test_symmetry_is_tagged(row: Row) -> None:
    assert fusers.get(row.name).tags.symmetric == row.symmetric


@pytest.mark.parametrize("row", [row for row in ROWS if row.symmetric], ids=lambda row: row.name)
def test_order_of_members(row: Row) -> None:
    members, base = make_pool(row)
    forward, backward = (
        run(row, pool, base)["model"] for pool in (members, [members[2], members[0], members[1]])
    )
    for name in forward:
        torch.testing.assert_close(forward[name], backward[name], rtol=1e-4, atol=2e-6)


def awkward_change(shape: torch.Size, seed: int) -> Tensor:
    """Of a matrix: rank two, as a small LoRA; or equal singular values; or none at all."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = shape
    if seed % 3 == 0:
        left, right = (torch.randn(size, 2, generator=generator) for size in shape)
        return 0.02 * left @ right.T
    change = torch.zeros(rows, columns)
    if (
        seed % 3 == 1
    ):  # a Hadamard matrix: eight equal values, more than a member's share of the rank
        pair = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
        change[:8, :8] = 2.0**-6 * torch.kron(torch.kron(pair, pair), pair)
    return change


@every_row
def test_another_machine_changes_nothing(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    # Vectors of a zero, bases of equal singular values and signs are a decomposition's own choice.
    grid = 2.0**10
    base = {
        name: (value * grid).round() / grid if value.is_floating_point() else value
        for name, value in make_base().items()
    }
    if not row.data:
        draw = torch.randn(300, 260, generator=torch.Generator().manual_seed(2))
        base["encoder.layers.2.large.weight"] = draw
    members = []
    for number in range(row.members):
        members.append(
            {
                name: value + awkward_change(value.shape, number + len(name))
                if value.ndim == 2
                else value.clone()
                for name, value in base.items()
            }
        )
    kept = {"density": 1.0} if row.name == "doge_ta" else {}
    here = run(row, members, base if row.base else None, **kept)
    on_another_machine(monkeypatch)
    there = run(row, members, base if row.base else None, **kept)
    for model, want in here.items():
        for name in want:
            torch.testing.assert_close(there[model][name], want[name], rtol=1e-5, atol=1e-6)


@every_row
def test_streamed_equals_in_memory(row: Row, tmp_path: Path) -> None:
    members, base = make_pool(row)
    large = torch.randn(530, 501, generator=torch.Generator().manual_seed(5))  # several stretches
    pool = [base, *members] if base is not None else members
    for number, state in enumerate(pool):
        state["encoder.large.weight"] = large + 0.01 * number * torch.cos(large + number)
    paths = []
    for number, state in enumerate(pool):
        path = tmp_path / f"{number}.safetensors"
        save_file(state, path)
        paths.append(path)
    base_path: Any = paths.pop(0) if base is not None else None
    in_memory = run(row, members, base, threads=1)
    data: dict[str, Any] = {}
    if row.data:
        base_path, data = architecture(base or members[0]), {"tasks": law_data()}
    out = fuse(
        row.name, paths, base=base_path, out=tmp_path / "out", threads=3, max_shard="500KB",
        **row.params, **data,
    )  # fmt: skip
    for (_, want), path in zip(in_memory.items(), paths, strict=False):
        folder = out / path.stem if row.several else out
        if row.small:
            opened = read_tensors(folder)
            assert_same({name: opened[name] for name in want}, want)
            continue
        got: State = {}
        shards = sorted(folder.glob("*.safetensors"))
        assert len(shards) > 1
        for shard in shards:
            got.update(load_file(shard))
        assert_same({name: got[name] for name in want}, want)


@every_row
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_keys_shapes_and_dtypes_are_kept(row: Row, dtype: torch.dtype) -> None:
    members, base = make_pool(row)
    cast = lambda state: {  # noqa: E731
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in state.items()
    }
    models = run(row, [cast(m) for m in members], cast(base) if base is not None else None)
    for model in models.values():
        for name, value in members[0].items():
            assert model[name].shape == value.shape
            assert model[name].dtype == (dtype if value.is_floating_point() else value.dtype)
            assert torch.isfinite(model[name].double()).all()


@every_row
def test_integers_and_tied_weights(row: Row) -> None:
    members, base = make_pool(row)
    for state in [*members, *([base] if base is not None else [])]:
        state["head.weight"] = state["encoder.layers.0.fc1.weight"]
    for model in run(row, members, base).values():
        assert torch.equal(model["bn.num_batches_tracked"], torch.tensor(17))
        assert model["head.weight"] is model["encoder.layers.0.fc1.weight"]


@every_row
def test_nan_is_refused_by_name(row: Row) -> None:
    members, base = make_pool(row)
    place = min(1, len(members) - 1)
    members[place]["encoder.layers.0.fc1.weight"][3, 4] = float("nan")
    labelled = {f"m{i}": member for i, member in enumerate(members)}
    message = rf"m{place}.*encoder\.layers\.0\.fc1\.weight.*NaN"
    with pytest.raises(BadCheckpointError, match=message):
        run(row, labelled, base)


@every_row
@pytest.mark.parametrize("size", [1e25, 1e38])
def test_finite_comes_out_finite_or_is_refused(row: Row, size: float) -> None:
    """Changes of every length, and where a method takes as many, more members than ranks."""
    base = make_base()
    if not row.data:
        base["encoder.head.weight"] = torch.ones(2, 3)
    count = 5 if row.members == 3 and "weights" not in row.params else row.members
    members = [make_member(base, i) for i in range(count)]
    for number, member in enumerate(members):
        shape = member["encoder.layers.1.fc1.weight"].tanh()
        member["encoder.layers.1.fc1.weight"] = shape * 3 * size * (-1) ** (number // 2)
    try:
        models = run(row, members, base if row.base else None)
    except UserError as problem:
        models, refused = {}, str(problem)
    assert models or any(name in refused for name in base)
    for model in models.values():
        assert all(torch.isfinite(value.double()).all() for value in model.values())


@every_row
def test_batch_norm_statistics_stay_sound(row: Row) -> None:
    members, base = make_pool(row)
    for number, member in enumerate(members):
        member["bn.running_var"] = member["bn.running_var"] * 10.0**-number
    wild = {
        "weighted": {"weights": [3.0, -1.0, -1.0]},
        "wise_ft": {"alpha": 4.0},
        "slerp": {"t": 4.0},
        "task_arithmetic": {"scale": 9.0},
        "expo": {"alpha": 9.0},
    }
    for model in run(row, members, base, **wild.get(row.name, {})).values():
        for name in ("bn.running_mean", "bn.running_var"):
            assert torch.isfinite(model[name]).all()
        assert (model["bn.running_var"] > 0).all()


@pytest.mark.gpu
@every_row
def test_the_device_does_not_matter(row: Row) -> None:
    members, base = make_pool(row)
    on_cpu, on_gpu = (run(row, members, base, device=device) for device in ("cpu", "cuda"))
    for name, want in on_cpu.items():
        for key in want:
            torch.testing.assert_close(on_gpu[name][key], want[key], rtol=1e-3, atol=1e-4)

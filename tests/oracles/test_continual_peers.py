"""Members that arrive one after the other: as FusionBench merges them (`data/fuse/README.md`)."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from spectral_reference import full_rank, triples
from torch import Tensor

import hundred
from other_machine import on_another_machine
from stockpot.fuse.fuser import Slab
from stockpot.fuse.run import fuse, plan

DATA = Path(__file__).parent / "data" / "fuse"
WANT = load_file(DATA / "continual.safetensors")
AWKWARD = [DATA / f"m{i}.safetensors" for i in range(3)]
State = dict[str, Tensor]

# Recorded name -> method, members, parameters. FusionBench's OPCM ran in fp64: in fp32 a hundred
# decompositions in a row add up to 9e-5.
RECORDED: dict[str, tuple[str, int, dict[str, Any]]] = {
    "opcm_0.5_many": ("opcm", 100, {}),
    "opcm_0.2_many": ("opcm", 100, {"alpha": 0.2}),
    "dop_many": ("dop", 100, {"steps": 2, "lr": 1e-3, "rule": "fusionbench"}),
    "dop_pareto": ("dop", 4, {"steps": 20, "lr": 1e-3, "rule": "fusionbench", "momentum": 0.0}),
    "dop_fixed_u": (
        "dop", 4,
        {"steps": 20, "lr": 1e-3, "rule": "fusionbench", "balance": "fixed", "alpha": 0.6,
         "space": "u", "energy": 0.9},
    ),
    "continual_ta": ("task_arithmetic", 100, {"scale": 0.3}),
}  # fmt: skip


def wanted(case: str) -> State:
    found = {k.removeprefix(f"{case}/"): v for k, v in WANT.items() if k.startswith(f"{case}/")}
    assert found
    return found


@pytest.mark.parametrize("case", RECORDED)
def test_many_members(case: str) -> None:
    method, count, params = RECORDED[case]
    base = hundred.network()
    members = [hundred.tuned(base, number) for number in range(count)]
    got = fuse(method, members, base=base, **params)
    for name, values in wanted(case).items():
        torch.testing.assert_close(got[name], values, rtol=1e-5, atol=4e-6)


def test_dop_of_changes_that_lack_rank() -> None:
    """Its losses know no vectors of a zero; with `mgda` the other program divides by a zero."""
    got = fuse("dop", AWKWARD, base=DATA / "base.safetensors", steps=20, balance="fixed",
               rule="fusionbench")  # fmt: skip
    for name, values in wanted("dop_awkward").items():
        torch.testing.assert_close(got[name], values, rtol=1e-5, atol=3e-7)


Matrix = NDArray[np.float64]


def opcm_change(changes: list[Matrix], matrix: bool) -> tuple[Matrix, bool]:
    """By the formula, over the range of what is merged; and whether that had full rank throughout.

    One singular value after the other, without masks; none of the pool's is met twice.
    """
    total, full = changes[0], True
    for change in changes[1:]:
        added = change.copy()
        if matrix:
            full = full and full_rank(total)
            left, values, right = triples(total)
            leading = int(np.sum(np.cumsum(values) / max(values.sum(), 1e-300) <= 0.5))
            for i in range(len(values)):
                for j in range(len(values)):
                    if i == j or max(i, j) < leading:
                        inside = left[:, i] @ change @ right[j]
                        added -= inside * np.outer(left[:, i], right[j])
        total = total + added
    return total, full


@pytest.mark.parametrize("machine", ["this", "another"])
def test_opcm_of_changes_that_lack_rank(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = load_file(DATA / "base.safetensors")
    members = [load_file(path) for path in AWKWARD]
    merged, full = {}, set()
    lengths = np.zeros(len(members))
    for name, start in base.items():
        changes = [(member[name] - start).double().numpy() for member in members]
        lengths += [np.sum(change**2) for change in changes]
        matrix = start.ndim == 2 and "embed" not in name
        merged[name], whole = opcm_change(changes, matrix)
        if whole and np.any(merged[name]):
            full.add(name)
    factor = np.sqrt(lengths).mean() / np.sqrt(sum(np.sum(m**2) for m in merged.values()))
    if machine == "another":
        on_another_machine(monkeypatch)
    got = fuse("opcm", AWKWARD, base=DATA / "base.safetensors")
    peer = wanted("opcm_awkward")
    ratios = []
    for name, change in merged.items():
        want = (base[name] + torch.from_numpy(change * factor)).float()
        torch.testing.assert_close(got[name], want, rtol=1e-5, atol=3e-7)
        if name in full:
            other = (peer[name] - base[name]).double().flatten()
            mine = torch.from_numpy(change).flatten()
            ratios.append(float(other @ mine / (mine @ mine)))
            torch.testing.assert_close(other, ratios[-1] * mine, rtol=1e-4, atol=1e-6)
    # The other program's change is ours wherever its SVD had no choice, times one number: that
    # of the whole model's length, in which its choices elsewhere count.
    assert len(ratios) > 20
    assert max(ratios) - min(ratios) < 1e-4
    assert len(base) - len(full) >= 5


def test_memory_does_not_grow_with_members() -> None:
    """One merged change is held, whatever their number; members are read one at a time."""
    base = hundred.network()
    alive: set[int] = set()
    most = 0
    original = Slab.member

    def member(slab: Slab, index: int) -> Tensor:
        nonlocal most
        values = original(slab, index).clone()
        if index >= 0:
            alive.add(id(values))
            weakref.finalize(values, alive.discard, id(values))
            most = max(most, len(alive))
        return values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slab, "member", member)
        for method in ("opcm", "dop"):
            few = {"steps": 1} if method == "dop" else {}
            fuse(method, [hundred.tuned(base, n) for n in range(20)], base=base, threads=1, **few)
    assert 0 < most <= 3

    def said(layers: int) -> int:
        weights = {f"{n}.weight": torch.zeros(8, 8) for n in range(layers)}
        return plan("opcm", [weights] * 2, base=weights, threads=2).peak_bytes

    assert said(7) - said(3) == 4 * 8 * 8 * 4

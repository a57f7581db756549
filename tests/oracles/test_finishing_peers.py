"""Finishing steps equal a peer's recorded output, or their published formula in numpy.

Where changes lack rank the peers boost or calibrate whatever vectors their SVD returns; there the
formula is taken over the range of the change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from spectral_reference import full_rank, triples

from stockpot.fuse.run import fuse

DATA = Path(__file__).parent / "data" / "fuse"
BASE = DATA / "base.safetensors"
MEMBERS = [DATA / f"m{i}.safetensors" for i in range(3)]
Matrix = NDArray[np.float64]
State = dict[str, torch.Tensor]
PLAIN: dict[str, dict[str, Any]] = {
    "task_arithmetic": {"scale": 0.3},
    "ties": {"density": 0.2, "scale": 0.3, "reduce": "sum"},
}


def matrices(state: State) -> dict[str, Matrix]:
    return {k: v.double().numpy() for k, v in state.items() if v.ndim == 2}


def small_pool() -> tuple[State, list[State]]:
    return load_file(BASE), [load_file(path) for path in MEMBERS]


def large_pool() -> tuple[State, list[State]]:
    """A hundred members, more than the rank of any matrix; one changes by rank two only."""
    draw = torch.Generator().manual_seed(3)
    shapes = {"layers.0.w": (24, 16), "layers.1.w": (16, 24), "layers.2.w": (12, 12)}
    base = {name: torch.randn(*shape, generator=draw) for name, shape in shapes.items()}
    common = {k: torch.randn(v.shape, generator=draw) * 0.02 for k, v in base.items()}
    members = []
    for number in range(100):
        member = {}
        for name, start in base.items():
            change = 0.02 * torch.randn(start.shape, generator=draw) + common[name]
            if name == "layers.2.w":
                sides = [torch.randn(12, 2, generator=draw) for _ in range(2)]
                change = 0.02 * sides[0] @ sides[1].T * (number < 2)
            member[name] = start + change
        members.append(member)
    return base, members


def boosted(change: Matrix, beta: float) -> Matrix:
    left, values, right = triples(change)
    if not len(values):
        return change
    place = int(np.argmax(np.cumsum(values) / values.sum() >= beta))
    return left * np.maximum(values, values[place]) @ right


def calibrated(change: Matrix, members: list[Matrix], alpha: float) -> Matrix:
    left, values, right = triples(change)
    factors = []
    for place in range(len(values)):
        merged = left[:, place] @ change
        responses = [left[:, place] @ member for member in members]
        along = [merged @ own / max(own @ own, 1e-12) for own in responses]
        factors.append(len(members) / sum(max(alpha, one) for one in along))
    return left * (values * factors) @ right


def larv_factors(base: dict[str, Matrix], changes: dict[str, Matrix]) -> dict[str, float]:
    """The formula, with commutators as matrices; layers are numbered by name here."""

    def rank(matrix: Matrix) -> float:
        energy = np.linalg.svd(matrix, compute_uv=False) ** 2
        shares = energy / energy.sum()
        shares = shares[shares > 0]
        return float(np.exp(-(shares * np.log(shares)).sum()))

    conflicts = []
    for name, change in changes.items():
        start = base[name]
        size = np.linalg.norm(start) * np.linalg.norm(change)
        outer = np.linalg.norm(start @ change.T - change @ start.T)
        inner = np.linalg.norm(start.T @ change - change.T @ start)
        conflicts.append((outer + inner) / (2 * size))
    usual = (np.array(conflicts) - np.mean(conflicts)) / np.std(conflicts)
    found = {}
    for place, (name, change) in enumerate(changes.items()):
        score = rank(base[name]) / rank(change) * np.sqrt((place + 1) / len(changes))
        score /= 1 + np.log1p(np.exp(usual[place]))
        found[name] = 1 + 0.5 * np.tanh(3 * (score - 1))
    return found


def close(got: State, base: State, want: dict[str, Matrix]) -> None:
    for name, change in want.items():
        wanted = (base[name].double() + torch.from_numpy(change)).float()
        torch.testing.assert_close(got[name], wanted, rtol=1e-5, atol=5e-7, msg=name)


@pytest.mark.parametrize("method", PLAIN)
def test_svc_is_fusionbenchs(method: str) -> None:
    base, members = small_pool()
    case = {"task_arithmetic": "task_arithmetic", "ties": "ties_sum"}[method]
    recorded = {
        name.removeprefix(f"svc_{case}/"): values
        for name, values in load_file(DATA / "fusionbench_svc.safetensors").items()
        if name.startswith(f"svc_{case}/")
    }
    got = fuse(method, MEMBERS, base=BASE, **PLAIN[method], then={"svc": {"alpha": 0.1}})
    plain = matrices(fuse(method, MEMBERS, base=BASE, **PLAIN[method]))
    start, others = matrices(base), [matrices(member) for member in members]
    formula = {
        name: calibrated(plain[name] - start[name], [m[name] - start[name] for m in others], 0.1)
        for name in start
    }
    close(got, base, formula)
    full = [name for name in start if full_rank(plain[name] - start[name])]
    assert len(full) >= 7
    assert len(recorded) == len(start) == 13
    for name in full:
        torch.testing.assert_close(got[name], recorded[name], rtol=1e-5, atol=5e-7)


@pytest.mark.parametrize(("pool", "method"), [(small_pool, "ties"), (large_pool, "average")])
@pytest.mark.parametrize("beta", [0.0, 0.01, 0.4])
def test_subspace_boosting(pool: Any, method: str, beta: float) -> None:
    base, members = pool()
    plain = fuse(method, members, base=base)
    got = fuse(method, members, base=base, then={"subspace_boosting": {"beta": beta}})
    start = matrices(base)
    close(got, base, {k: boosted(v - start[k], beta) for k, v in matrices(plain).items()})


def test_svc_of_a_hundred_members() -> None:
    base, members = large_pool()
    plain = matrices(fuse("average", members))
    got = fuse("average", members, base=base, then="svc")
    start, others = matrices(base), [matrices(member) for member in members]
    want = {
        k: calibrated(v - start[k], [m[k] - start[k] for m in others], 0.1)
        for k, v in plain.items()
    }
    close(got, base, want)


def test_larv() -> None:
    base, members = large_pool()
    plain, start = matrices(fuse("task_arithmetic", members, base=base)), matrices(base)
    changes = {name: plain[name] - start[name] for name in start}
    factors = larv_factors(start, changes)
    assert len({round(one, 3) for one in factors.values()}) == 3
    got = fuse("task_arithmetic", members, base=base, then="larv")
    close(got, base, {name: changes[name] * factors[name] for name in start})
    tiers = dict(
        zip(sorted(factors, key=lambda name: factors[name]), (0.25, 1.0, 2.0), strict=True)
    )
    got = fuse("task_arithmetic", members, base=base, then={"larv": {"tiers": [0.25, 1.0, 2.0]}})
    close(got, base, {name: changes[name] * tiers[name] for name in start})

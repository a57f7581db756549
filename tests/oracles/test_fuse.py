"""Fusions equal those of FusionBench and mergekit on a small, awkward pool.

The references are in `data/fuse`, whose README says how they were made.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from spectral_reference import doge_ta, full_rank, iso_c, iso_cts, tsv_m
from torch import Tensor

from commands import invoke
from other_machine import on_another_machine
from stockpot.checkpoints.record import read_record
from stockpot.errors import BadParameterError
from stockpot.fuse.run import fuse

DATA = Path(__file__).parent / "data" / "fuse"
BASE = DATA / "base.safetensors"
MEMBERS = [DATA / f"m{i}.safetensors" for i in range(3)]

# Reference -> method, parameters. These agree in every bit.
EXACT: dict[str, tuple[str, dict[str, Any]]] = {
    "fusionbench/average": ("average", {}),
    "fusionbench/weighted": ("weighted", {"weights": [1.0, 2.0, 4.0]}),
    "fusionbench/weighted_raw": ("weighted", {"weights": [1.4, -0.6, 0.2], "normalize": False}),
    "fusionbench/task_arithmetic": ("task_arithmetic", {"scale": 0.3}),
    "fusionbench/ties_sum": ("ties", {"density": 0.2, "scale": 0.3, "reduce": "sum"}),
    "fusionbench/ties_mean": ("ties", {"density": 0.2, "scale": 0.3, "reduce": "mean"}),
    "fusionbench/ties_max": ("ties", {"density": 0.2, "scale": 0.3, "reduce": "max"}),
    "fusionbench/magmax": ("magmax", {"scale": 0.5}),
    "fusionbench/expo": ("expo", {"alpha": 0.1}),
    "mergekit/linear": ("average", {}),
    "mergekit/task_arithmetic": ("task_arithmetic", {"scale": 1.0, "weights": [0.3, 0.3, 0.3]}),
    "mergekit/sce": ("sce", {"density": 0.5}),
    "mergekit/sce_all": ("sce", {"density": 1.0}),
}
# Exact where no two equal magnitudes straddle the limit: there, torch's sort decides, and its
# choice depends on the instruction set of the machine.
TIED: dict[str, tuple[str, dict[str, Any]]] = {
    "mergekit/ties": ("ties", {"density": 0.2, "scale": 1.0, "scope": "tensor"}),
    "mergekit/ties_weighted": (
        "ties",
        {"density": 0.4, "scale": 0.7, "scope": "tensor", "weights": [0.5, 1.0, 2.0]},
    ),
    "mergekit/breadcrumbs": ("breadcrumbs", {"density": 0.5, "gamma": 0.1, "scale": 1.0}),
    "mergekit/breadcrumbs_ties": (
        "breadcrumbs",
        {"density": 0.5, "gamma": 0.1, "scale": 1.0, "elect": True},
    ),
}
# The same up to rounding: here sums run in fp64.
CLOSE: dict[str, tuple[str, dict[str, Any]]] = {
    "fusionbench/slerp": ("slerp", {"t": 0.3}),
    "fusionbench/model_stock": ("model_stock", {"pairs": "angle"}),
    "fusionbench/wudi": ("wudi", {"steps": 50}),
    "mergekit/slerp": ("slerp", {"t": 0.3}),
    "mergekit/model_stock": ("model_stock", {"pairs": "cosine"}),
    "mergekit/karcher": ("karcher", {}),
}
# An SVD stands behind these: what they make of changes that lack rank is the SVD's choice.
SPECTRAL = {"tsv_m": tsv_m, "iso_c": iso_c, "iso_cts": iso_cts}


def reference(name: str) -> dict[str, Tensor]:
    program, _, case = name.partition("/")
    tensors = load_file(DATA / f"{program}.safetensors")
    return {k.removeprefix(f"{case}/"): v for k, v in tensors.items() if k.startswith(f"{case}/")}


def ours(method: str, params: dict[str, Any]) -> dict[str, Tensor]:
    members = MEMBERS[:2] if method == "slerp" else MEMBERS
    base = None if method in ("average", "weighted", "slerp", "karcher") else BASE
    return fuse(method, members, base=base, **params)


def straddling(params: dict[str, Any]) -> set[str]:
    """Tensors in which equal magnitudes lie on both sides of a limit."""
    base, members = load_file(BASE), [load_file(path) for path in MEMBERS]
    found = set()
    for name, start in base.items():
        for member in members:
            size = (member[name] - start).abs().flatten().sort().values
            kept = max(1, int(params["density"] * len(size)))
            dropped = int(params.get("gamma", 0) * len(size))
            for limit in (len(size) - dropped, len(size) - dropped - kept):
                if 0 < limit < len(size) and size[limit] == size[limit - 1]:
                    found.add(name)
    return found


@pytest.mark.parametrize("name", EXACT)
def test_bit_for_bit(name: str) -> None:
    got, want = ours(*EXACT[name]), reference(name)
    assert set(got) == set(want)
    for key in want:
        assert torch.equal(got[key], want[key]), key


@pytest.mark.parametrize("name", TIED)
def test_bit_for_bit_where_ranks_are_unique(name: str) -> None:
    got, want = ours(*TIED[name]), reference(name)
    ambiguous = straddling(TIED[name][1])
    assert len(ambiguous) < len(want) / 2
    for key in want.keys() - ambiguous:
        assert torch.equal(got[key], want[key]), key


@pytest.mark.parametrize("name", CLOSE)
def test_up_to_rounding(name: str) -> None:
    got, want = ours(*CLOSE[name]), reference(name)
    assert set(got) == set(want)
    for key in want:
        if name == "fusionbench/model_stock" and "layers.0.mlp.fc1" in key:
            continue  # the changes cancel: the reference divides by 1e-8 there, we keep the base
        assert torch.isfinite(got[key]).all(), key
        if not torch.isfinite(want[key]).all():
            assert "layers.0.mlp.fc1" in key  # the reference divides by the length of no change
            continue
        torch.testing.assert_close(got[key], want[key], rtol=1e-5, atol=3e-7)


@cache
def spectral_references(method: str) -> tuple[dict[str, Tensor], set[str]]:
    """What a method makes of the pool by its formula, and where every change has full rank."""
    base, members = load_file(BASE), [load_file(path) for path in MEMBERS]
    changes = {
        name: [(member[name] - start).double().numpy() for member in members]
        for name, start in base.items()
    }
    full = {
        name
        for name, each in changes.items()
        if each[0].ndim == 2 and all(full_rank(change) for change in [*each, sum(each)])
    }
    if method == "doge_ta":
        merged = doge_ta(changes)
    else:
        merged = {k: SPECTRAL[method](each) for k, each in changes.items() if each[0].ndim == 2}
    return {k: (base[k] + torch.from_numpy(v)).float() for k, v in merged.items()}, full


@pytest.mark.parametrize("machine", ["this", "another"])
@pytest.mark.parametrize("method", ["tsv_m", "iso_c", "iso_cts", "doge_ta"])
def test_spectral_methods(method: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    formula, full = spectral_references(method)
    want = reference(f"fusionbench/{method}")
    if machine == "another":
        on_another_machine(monkeypatch)
    got = ours(method, {})
    assert set(got) == set(want)
    assert len(full & set(formula)) >= 7
    assert len(set(formula) - full) == 5
    for key in want:
        if key in formula:
            torch.testing.assert_close(got[key], formula[key], rtol=1e-5, atol=3e-7)
        if key in full or key not in formula:
            # The formula is the other program's wherever that has one answer.
            torch.testing.assert_close(got[key], want[key], rtol=1e-5, atol=3e-7)


@pytest.mark.parametrize(
    ("name", "params"), [("emr", {}), ("tall_mask", {"rule": "fusionbench"})], ids=["emr", "tall"]
)
def test_models_per_member(name: str, params: dict[str, Any]) -> None:
    models = fuse(name, {f"m{i}": path for i, path in enumerate(MEMBERS)}, base=BASE, **params)
    assert list(models) == ["m0", "m1", "m2"]
    for index, got in enumerate(models.values()):
        for key, want in reference(f"fusionbench/{name}_{index}").items():
            torch.testing.assert_close(got[key], want, rtol=1e-5, atol=1e-7)


# Reference -> method, and a preset with what the reference deviates from it by: the given wins.
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "fusionbench/ties_sum": ("ties", {"preset": "fusionbench"}),
    "fusionbench/ties_mean": ("ties", {"preset": "paper", "scale": 0.3}),
    "mergekit/ties": ("ties", {"preset": "mergekit", "density": 0.2}),
    "mergekit/breadcrumbs": ("breadcrumbs", {"preset": "mergekit", "density": 0.5, "gamma": 0.1}),
    "mergekit/breadcrumbs_ties": (
        "breadcrumbs",
        {"preset": "mergekit_ties", "density": 0.5, "gamma": 0.1},
    ),
    "mergekit/sce_all": ("sce", {"preset": "mergekit"}),
    "fusionbench/model_stock": ("model_stock", {"preset": "fusionbench"}),
    "mergekit/model_stock": ("model_stock", {"preset": "mergekit"}),
    "fusionbench/task_arithmetic": ("task_arithmetic", {"preset": "fusionbench"}),
    "mergekit/task_arithmetic": (
        "task_arithmetic",
        {"preset": "mergekit", "weights": [0.3, 0.3, 0.3]},
    ),
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_programs_defaults(name: str) -> None:
    method, params = PRESETS[name]
    got, want = ours(method, params), reference(name)
    exact = [key for key in want if "layers.0.mlp" not in key]  # there, magnitudes tie
    assert len(exact) > 10
    for key in exact:
        assert torch.allclose(got[key], want[key], rtol=0, atol=1e-6), key


def test_the_papers_ties_is_of_scale_one() -> None:
    got, base = ours("ties", {"preset": "paper"}), load_file(BASE)
    for name, values in reference("fusionbench/ties_mean").items():
        change = (values - base[name]) / 0.3
        assert torch.allclose(got[name] - base[name], change, rtol=0, atol=1e-5), name


def test_presets_of_methods_that_drop_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """FusionBench divides by the share kept; mergekit keeps all unless told otherwise."""
    import stockpot.fuse.sparse.dare

    base, pool = load_file(BASE), [load_file(path) for path in MEMBERS]

    def alternating(slab: Any, count: int, **_: Any) -> Tensor:
        return torch.arange(count).remainder(2) * 0.99

    monkeypatch.setattr(stockpot.fuse.sparse.dare, "uniform", alternating)
    dropped = ours("dare", {"preset": "fusionbench"})
    kept = ours("dare", {"preset": "mergekit"})
    elected = ours("dare", {"preset": "mergekit_ties"})
    ranked = ours("della", {"preset": "mergekit"})
    linear = ours("della", {"preset": "mergekit_linear", "scale": 0.5})
    for name, start in base.items():
        changes = torch.stack([member[name] - start for member in pool]).double()
        total = changes.sum(dim=0)
        every_other = torch.arange(start.numel()).remainder(2).eq(0).view(start.shape)
        agreeing = changes.sign() == torch.where(total >= 0, 1.0, -1.0)
        agreed = (changes * agreeing).sum(dim=0)
        for got, want in (
            (dropped, 0.3 * total * every_other / 0.5),
            (kept, total),
            (elected, agreed),
            (ranked, agreed / agreeing.sum(dim=0).clamp(min=1)),
            (linear, 0.5 * total),
        ):
            change = got[name].double() - start.double()
            assert torch.allclose(change, want, rtol=0, atol=2e-6), name


def test_fusionbenchs_dare_with_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    """When all survive, every change is doubled: the same are trimmed, and 0.5 times 2 is 1."""
    import stockpot.fuse.sparse.dare

    monkeypatch.setattr(
        stockpot.fuse.sparse.dare, "uniform", lambda slab, count, **_: torch.zeros(count)
    )
    got, base = ours("dare", {"preset": "fusionbench_ties"}), load_file(BASE)
    for name, values in reference("fusionbench/ties_sum").items():
        change = (values - base[name]) / 0.3
        assert torch.allclose(got[name] - base[name], change, rtol=0, atol=1e-5), name


def test_a_preset_is_in_the_record_and_in_show(tmp_path: Path) -> None:
    out = fuse("ties", MEMBERS, base=BASE, preset="fusionbench", scale=0.5, out=tmp_path / "out")
    record = read_record(out)
    assert record is not None
    said = {key: record.parameters[key] for key in ("preset", "scale", "reduce")}
    assert said == {"preset": "fusionbench", "scale": 0.5, "reduce": "sum"}
    shown = json.loads(invoke("show", "ties", "--json").output)
    (row,) = [row for row in shown["parameters"] if row["name"] == "preset"]
    assert "paper (density=0.2, scale=1.0, reduce=mean, scope=model)" in row["doc"]
    with pytest.raises(BadParameterError, match="preset"):
        fuse("ties", MEMBERS, base=BASE, preset="mine")

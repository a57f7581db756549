"""Fusions equal those of FusionBench and mergekit on a small, awkward pool.

The references are in `data/fuse`, whose README says how they were made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

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
# The same up to rounding: here sums run in fp64, or an SVD stands behind them.
CLOSE: dict[str, tuple[str, dict[str, Any]]] = {
    "fusionbench/slerp": ("slerp", {"t": 0.3}),
    "fusionbench/model_stock": ("model_stock", {"pairs": "angle"}),
    "fusionbench/tsv_m": ("tsv_m", {}),
    "fusionbench/iso_c": ("iso_c", {}),
    "fusionbench/iso_cts": ("iso_cts", {"common": 0.8}),
    "fusionbench/wudi": ("wudi", {"steps": 50}),
    "fusionbench/doge_ta": ("doge_ta", {}),
    "mergekit/slerp": ("slerp", {"t": 0.3}),
    "mergekit/model_stock": ("model_stock", {"pairs": "cosine"}),
    "mergekit/karcher": ("karcher", {}),
}


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


@pytest.mark.parametrize(
    ("name", "params"), [("emr", {}), ("tall_mask", {"rule": "fusionbench"})], ids=["emr", "tall"]
)
def test_models_per_member(name: str, params: dict[str, Any]) -> None:
    models = fuse(name, {f"m{i}": path for i, path in enumerate(MEMBERS)}, base=BASE, **params)
    assert list(models) == ["m0", "m1", "m2"]
    for index, got in enumerate(models.values()):
        for key, want in reference(f"fusionbench/{name}_{index}").items():
            torch.testing.assert_close(got[key], want, rtol=1e-5, atol=1e-7)

"""A hundred members at once, as FusionBench and mergekit merge them (`data/fuse/README.md`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import hundred
from stockpot.fuse.run import fuse

WANT = load_file(Path(__file__).parent / "data" / "fuse" / "hundred.safetensors")
BASE = hundred.network()
MEMBERS = {f"m{n}": hundred.tuned(BASE, n) for n in range(hundred.COUNT)}
IN_TURN = [1.0 + n % 3 for n in range(hundred.COUNT)]
FREE = ("average", "weighted", "karcher")
"""Methods that take no base."""

# These agree in every bit: FusionBench adds up as we do, one member after the other.
EXACT: dict[str, tuple[str, dict[str, Any]]] = {
    "fusionbench/average": ("average", {}),
    "fusionbench/weighted": ("weighted", {"weights": IN_TURN}),
    "fusionbench/task_arithmetic": ("task_arithmetic", {"scale": 0.02}),
    "fusionbench/ties_mean": ("ties", {"density": 0.2, "scale": 0.3, "reduce": "mean"}),
    "fusionbench/ties_max": ("ties", {"density": 0.2, "scale": 0.3, "reduce": "max"}),
    "fusionbench/magmax": ("magmax", {"scale": 0.5}),
    "fusionbench/expo": ("expo", {"alpha": 0.1}),
}
# And these up to the rounding of a sum of a hundred.
CLOSE: dict[str, tuple[str, dict[str, Any]]] = {
    "fusionbench/ties_sum": ("ties", {"density": 0.2, "scale": 0.3, "reduce": "sum"}),
    "fusionbench/model_stock": ("model_stock", {"pairs": "angle"}),
    "fusionbench/iso_c": ("iso_c", {}),
    "fusionbench/iso_cts": ("iso_cts", {}),
    "fusionbench/wudi": ("wudi", {"steps": 50}),
    "mergekit/linear": ("weighted", {"weights": IN_TURN}),
    "mergekit/task_arithmetic": (
        "task_arithmetic", {"scale": 1.0, "weights": [0.01 * one for one in IN_TURN]},
    ),
    "mergekit/ties": ("ties", {"preset": "mergekit", "density": 0.2, "weights": IN_TURN}),
    "mergekit/breadcrumbs": (
        "breadcrumbs",
        {"preset": "mergekit", "density": 0.5, "gamma": 0.1, "weights": [0.01] * hundred.COUNT},
    ),
    "mergekit/breadcrumbs_ties": (
        "breadcrumbs",
        {"preset": "mergekit_ties", "density": 0.5, "gamma": 0.1, "weights": IN_TURN},
    ),
    "mergekit/model_stock": ("model_stock", {"pairs": "cosine"}),
    "mergekit/karcher": ("karcher", {}),
    "mergekit/sce": ("sce", {"density": 0.5}),
}  # fmt: skip


def recorded(case: str) -> dict[str, Tensor]:
    return {k.removeprefix(f"{case}/"): v for k, v in WANT.items() if k.startswith(f"{case}/")}


def both(method: str, case: str, params: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
    """What we make of it and what was recorded, tensor by tensor."""
    got = fuse(method, MEMBERS, base=None if method in FREE else BASE, **params)
    want = recorded(case)
    assert set(got) == set(want)
    return [(got[name], values) for name, values in want.items()]


@pytest.mark.parametrize("case", EXACT)
def test_bit_for_bit(case: str) -> None:
    method, params = EXACT[case]
    assert all(torch.equal(*pair) for pair in both(method, case, params))


@pytest.mark.parametrize("case", CLOSE)
def test_up_to_rounding(case: str) -> None:
    method, params = CLOSE[case]
    for got, want in both(method, case, params):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("method", "params"), [("emr", {}), ("tall_mask", {"rule": "fusionbench"})]
)
def test_models_per_member(method: str, params: dict[str, Any]) -> None:
    models = fuse(method, MEMBERS, base=BASE, **params)
    assert list(models) == list(MEMBERS)
    for number in (0, 1, 99):
        for name, values in recorded(f"fusionbench/{method}_{number}").items():
            torch.testing.assert_close(models[f"m{number}"][name], values, rtol=1e-5, atol=2e-6)


def test_singular_vectors_of_a_hundred() -> None:
    """One for each, as the rank is 100: they fill the space, which makes it the less exact."""
    generator = torch.Generator().manual_seed(5)
    changes = [0.1 * torch.randn(100, 100, generator=generator) for _ in range(hundred.COUNT)]
    base = torch.zeros(100, 100)
    got = fuse("tsv_m", [{"wide": one} for one in changes], base={"wide": base})
    torch.testing.assert_close(
        got["wide"], recorded("fusionbench/tsv_m")["wide"], rtol=1e-4, atol=1e-4
    )

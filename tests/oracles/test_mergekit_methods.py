"""Methods that came from mergekit equal what mergekit made: an awkward pool, and a hundred members.

`data/fuse/README.md` says how `mergekit_later.safetensors` was recorded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import hundred
from stockpot.fuse.run import fuse

DATA = Path(__file__).parent / "data" / "fuse"
RECORDED = load_file(DATA / "mergekit_later.safetensors")
BASE = load_file(DATA / "base.safetensors")
POOL = [load_file(DATA / f"m{i}.safetensors") for i in range(3)]
MANY = [hundred.member(number) for number in range(hundred.COUNT)]
ONE_OF_THREE = [1.0 + number % 3 for number in range(hundred.COUNT)]
OPPOSITE = "encoder.layers.0.mlp.fc1.weight"
"""The first two members changed it in opposite directions: no arc is the shortest, and which one
mergekit takes is the rounding of a cosine. Ours is the straight line."""


def reference(case: str) -> dict[str, Tensor]:
    return {k.partition("/")[2]: v for k, v in RECORDED.items() if k.startswith(f"{case}/")}


# Reference -> method, members, base, parameters. These agree in every bit.
EXACT: dict[str, tuple[str, list[Any], Any, dict[str, Any]]] = {
    "nearswap": ("nearswap", POOL[:1], BASE, {"distance": 0.01}),
    "arcee_fusion": ("arcee_fusion", POOL[2:], BASE, {}),
    "ram": ("ram", POOL, BASE, {"tol": 1e-3}),
    "ramplus": ("ram", POOL, BASE, {"tol": 0.02, "reinforce": 0.3, "cap": 0.5}),
}
# The same up to rounding: lengths and angles are computed in fp64 here, and the order in which
# torch adds up a hundred rows depends on how long they are.
CLOSE: dict[str, tuple[str, list[Any], Any, dict[str, Any]]] = {
    "nuslerp": ("nuslerp", POOL[:2], None, {"t": 0.3}),
    "nuslerp_base": ("nuslerp", POOL[:2], BASE, {"t": 0.3}),
    "nuslerp_rows": ("nuslerp", POOL[:2], BASE, {"t": 0.3, "along": "first"}),
    "nuslerp_last": ("nuslerp", POOL[:2], None, {"t": 0.75, "along": "last"}),
    "multislerp": ("multislerp", POOL, None, {"weights": [1.0, 2.0, 4.0]}),
    "multislerp_raw": ("multislerp", POOL[:2], BASE, {"weights": [0.5, 0.9], "normalize": False}),
    "hundred_multislerp": ("multislerp", MANY, hundred.base(), {"weights": ONE_OF_THREE}),
    "hundred_multislerp_free": ("multislerp", MANY, None, {}),
    "hundred_ram": ("ram", MANY, hundred.base(), {"preset": "mergekit"}),
    "hundred_ramplus": (
        "ram",
        MANY,
        hundred.base(),
        {"preset": "mergekit_plus", "reinforce": 0.3, "cap": 0.5},
    ),
}


@pytest.mark.parametrize("case", EXACT)
def test_bit_for_bit(case: str) -> None:
    method, members, base, params = EXACT[case]
    got, want = fuse(method, members, base=base, **params), reference(case)
    assert set(got) == set(want)
    for name, values in want.items():
        assert torch.equal(got[name], values), name


@pytest.mark.parametrize("case", CLOSE)
def test_up_to_rounding(case: str) -> None:
    method, members, base, params = CLOSE[case]
    got, want = fuse(method, members, base=base, **params), reference(case)
    assert set(got) == set(want)
    for name, values in want.items():
        if method == "nuslerp" and base is not None and name == OPPOSITE:
            values = BASE[name] + 0.7 * (POOL[0][name] - BASE[name])
            values += 0.3 * (POOL[1][name] - BASE[name])
        torch.testing.assert_close(got[name], values, rtol=1e-5, atol=1e-6, msg=name)


def test_ram_may_count_changes_in_the_whole_model() -> None:
    """A member's factor follows from all its tensors: here 4 shared and 5 alone, and 4 and 3."""
    base = {"a": torch.zeros(6), "b": torch.zeros(10)}
    first = {"a": torch.ones(6), "b": torch.tensor([1.0] * 3 + [0.0] * 7)}
    second = {"a": torch.tensor([3.0] * 4 + [0.0] * 2), "b": torch.tensor([0.0] * 7 + [1.0] * 3)}
    got = fuse("ram", [first, second], base=base, reinforce=0.5, cap=1.0, scope="model")
    one, two = 1 + 0.5 * 4 / 5, 1 + 0.5 * min(1.0, 4 / 3)
    torch.testing.assert_close(got["a"], torch.tensor([2.0] * 4 + [one] * 2))
    torch.testing.assert_close(got["b"], torch.tensor([one] * 3 + [0.0] * 4 + [two] * 3))

"""One grammar for values by group, by depth and by member; equal values are one value."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import stockpot
from commands import invoke
from stockpot.errors import BadParameterError

NAMES = ("layers.0.attn.weight", "layers.0.mlp.weight", "layers.1.attn.weight")
METHODS = {
    "task_arithmetic": ("scale", "weights"),
    "ties": ("density", "scale", "weights"),
    "dare": ("density", "scale", "weights"),
    "della": ("density", "scale", "epsilon"),
    "breadcrumbs": ("density", "gamma", "scale"),
    "tsv_m": ("weights", "scale"),
}


def states() -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    generator = torch.Generator().manual_seed(0)
    base, *others = (
        {name: torch.randn(6, 5, generator=generator) for name in NAMES} for _ in range(3)
    )
    return base, dict(zip("ab", others, strict=True))


def merged(method: str, **params: Any) -> dict[str, Tensor]:
    base, members = states()
    return stockpot.fuse(method, members, base=base, **params)  # type: ignore[no-any-return]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in NAMES)


@pytest.mark.parametrize("method", METHODS)
def test_equal_values_for_all_members_are_one_value(method: str) -> None:
    for key in METHODS[method]:
        one = [0.5, 0.5] if key == "weights" else 0.3 if key == "density" else 0.05
        all_alike = {"members": {"b": one[0], "a": one[1]}} if key == "weights" else {
            "members": [one, one]
        }  # fmt: skip
        assert same(merged(method, **{key: one}), merged(method, **{key: all_alike})), key


def test_a_scale_for_each_member_multiplies_its_change() -> None:
    """In closed form: theta_0 + sum of s_i w_i (theta_i - theta_0)."""
    base, members = states()
    found = merged("task_arithmetic", scale={"members": {"b": 0.7, "a": 0.2}}, weights=[1.0, 2.0])
    for name in NAMES:
        wanted = base[name].double()
        for factor, member in ((0.2, "a"), (1.4, "b")):
            wanted = wanted + factor * (members[member][name].double() - base[name].double())
        torch.testing.assert_close(found[name].double(), wanted, rtol=0, atol=1e-6)


def test_a_density_for_each_member_is_what_the_method_called_densities() -> None:
    wanted = merged("ties", densities=[0.2, 0.8])
    assert same(merged("ties", density={"members": [0.2, 0.8]}), wanted)
    assert not same(merged("ties", density={"depth": [0.2, 0.8]}), wanted)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("ties", {"density": [0.2, 0.8]}),
        ("ties", {"density": "[0.2, 0.8]"}),  # as on a command line
        ("ties", {"density": {"*attn*": [0.2, 0.8], "*": 0.5}}),
        ("task_arithmetic", {"scale": (0.2, 0.8)}),
        ("breadcrumbs", {"gamma": [0.0, 0.1]}),
        ("della", {"epsilon": [0.0, 0.1]}),
    ],
)
def test_a_list_that_may_mean_members_or_depth_is_refused(
    method: str, params: dict[str, object]
) -> None:
    with pytest.raises(BadParameterError, match=r"may mean members or depth.*\{members: \["):
        merged(method, **params)


def test_a_list_that_can_mean_one_thing_is_short_for_it() -> None:
    weighted = merged("task_arithmetic", weights=[0.2, 0.8])
    assert same(weighted, merged("task_arithmetic", weights={"members": [0.2, 0.8]}))
    by_depth = merged("iso_c", scale={"depth": [0.2, 0.8]})
    assert same(by_depth, merged("iso_c", scale=[0.2, 0.8]))
    assert not same(by_depth, merged("iso_c", scale=0.5))


def test_groups_depth_and_members_stand_inside_one_another() -> None:
    found = merged(
        "task_arithmetic",
        scale={"*attn*": {"members": [{"depth": [0.1, 0.3]}, 0.5]}, "*": {"depth": [0.4, 0.8]}},
    )
    first = merged("task_arithmetic", scale={"members": [0.1, 0.5]})
    last = merged("task_arithmetic", scale={"members": [0.3, 0.5]})
    rest = merged("task_arithmetic", scale=0.4)
    for name, wanted in zip(NAMES, (first, rest, last), strict=True):
        assert torch.equal(found[name], wanted[name]), name


@pytest.mark.parametrize(
    ("method", "params", "told"),
    [
        ("ties", {"density": {"members": [0.1]}}, "density: expected one per member"),
        ("ties", {"density": {"members": {"a": 0.1, "z": 0.2}}}, "a value for each of a, b"),
        ("ties", {"reduce": {"members": ["mean", "sum"]}}, "reduce cannot differ between members"),
        ("iso_c", {"scale": {"members": [1, 2]}}, "None of its parameters can"),
        ("ties", {"density": {"depth": 0.3}}, "expected a list"),
        ("ties", {"density": {"members": [0.1, 3]}}, "share from 0 to 1"),
    ],
)
def test_what_cannot_be_is_said(method: str, params: dict[str, Any], told: str) -> None:
    with pytest.raises(BadParameterError, match=told):
        merged(method, **params)


def test_the_command_line_says_it_the_same_way(tmp_path: Any) -> None:
    from safetensors.torch import load_file, save_file

    base, members = states()
    for name, state in {"base": base, **members}.items():
        save_file(state, tmp_path / f"{name}.safetensors")
    done = invoke(
        "fuse", "ties", f"a={tmp_path}/a.safetensors", f"b={tmp_path}/b.safetensors", "--base",
        tmp_path / "base.safetensors", "-p", "density={members: {a: 0.2, b: 0.8}}", "-o",
        tmp_path / "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    made = load_file(tmp_path / "out" / "model.safetensors")
    assert same(made, merged("ties", density={"members": [0.2, 0.8]}))

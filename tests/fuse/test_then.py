"""`then`: one grammar for what follows a fusion, in Python, recipes and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from commands import invoke
from stockpot.checkpoints.record import read_record
from stockpot.errors import UserError
from stockpot.fuse.finish.then import read_steps
from stockpot.fuse.record import fusion_record
from stockpot.fuse.run import fuse, plan, sweep
from stockpot.recipe import RecipeError, RecipeFile
from stockpot.run.check import check
from stockpot.run.order import order_of

State = dict[str, torch.Tensor]
BOOST = {"subspace_boosting": {"beta": 0.2}}


def pool() -> tuple[State, list[State]]:
    draw = torch.Generator().manual_seed(0)
    names = [f"layers.{n}.{part}.weight" for n in range(2) for part in ("attn", "mlp")]
    base = {name: torch.randn(9, 7, generator=draw) for name in names}
    members = [
        {k: v + 0.1 * torch.randn(v.shape, generator=draw) for k, v in base.items()}
        for _ in range(3)
    ]
    return base, members


def same(one: State, other: State) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_one_grammar() -> None:
    forms: list[Any] = [
        ["svc", BOOST],
        "[svc, {subspace_boosting: {beta: 0.2}}]",
        {"svc": None, **BOOST},
        ["svc", "subspace_boosting: {beta: 0.2}"],
    ]
    for form in forms:
        assert [tuple(step) for step in read_steps(form)] == [
            ("svc", {}), ("subspace_boosting", {"beta": 0.2})
        ]  # fmt: skip
    assert read_steps(None) == read_steps([]) == []


def test_python_and_the_command_line_make_the_same(tmp_path: Path) -> None:
    base, members = pool()
    paths = []
    for number, state in enumerate([base, *members]):
        paths.append(tmp_path / f"m{number}.safetensors")
        save_file(state, paths[-1])
    want = fuse("ties", members, base=base, then=["svc", BOOST])
    assert not same(want, fuse("ties", members, base=base, then=[BOOST, "svc"]))  # in order
    for number, words in enumerate(
        (
            ("--then", "svc", "--then", "{subspace_boosting: {beta: 0.2}}"),
            ("-p", "then=[svc, {subspace_boosting: {beta: 0.2}}]"),
        )
    ):
        out = tmp_path / f"out{number}"
        done = invoke("fuse", "ties", *paths[1:], "--base", paths[0], *words, "-o", out)
        assert done.exit_code == 0, done.output
        assert same(want, load_file(next(out.glob("*.safetensors"))))
        record = read_record(out)
        assert record is not None
        assert [list(step) for step in record.parameters["then"]] == [
            ["svc"], ["subspace_boosting"]
        ]  # fmt: skip
        assert record.parameters["then"][1]["subspace_boosting"]["beta"] == 0.2
    twice = ("--then", "svc", "-p", "then=svc")
    assert "give one" in invoke("fuse", "ties", *paths[1:], *twice, "-o", tmp_path / "x").output


def test_the_record_knows_what_followed() -> None:
    base, members = pool()
    plain, boosted, others = (
        fusion_record("ties", members, base=base, **more)
        for more in ({}, {"then": BOOST}, {"then": "subspace_boosting"})
    )
    assert "then" not in plain.parameters  # records of before stay what they are
    assert len({one.digest for one in (plain, boosted, others)}) == 3


def test_a_sweep_over_what_follows() -> None:
    base, members = pool()
    made = sweep("ties", members, base=base, key="then", values=["svc", "larv"])
    for label, state in made.items():
        assert same(state, fuse("ties", members, base=base, then=label.partition("=")[2]))


def test_parameters_may_differ_from_layer_to_layer() -> None:
    base, members = pool()
    mixed = {"subspace_boosting": {"beta": {"*attn*": 0.5, "*": 0.0}}}
    got = fuse("ties", members, base=base, then=mixed, density={"*mlp*": 0.9})
    for beta, part in ((0.5, "attn"), (0.0, "mlp")):
        then = {"subspace_boosting": {"beta": beta}}
        alone = fuse("ties", members, base=base, then=then, density={"*mlp*": 0.9})
        other = "mlp" if part == "attn" else "attn"
        assert all(torch.equal(got[k], alone[k]) for k in got if part in k)
        assert not any(torch.equal(got[k], alone[k]) for k in got if other in k)


def test_larv_sees_every_tensor_as_its_own_parameters_made_it() -> None:
    base, members = pool()
    params = {"density": {"*mlp*": 1.0, "*": 0.1}, "scope": "tensor"}
    plain = fuse("ties", members, base=base, **params)
    got = fuse("ties", members, base=base, **params, then="larv")
    # One merged model as the only member is that model, whatever made it.
    want = fuse("task_arithmetic", [plain], base=base, scale=1.0, then="larv")
    for name in got:
        torch.testing.assert_close(got[name], want[name], rtol=0, atol=1e-6)


def test_a_plan_counts_the_looks() -> None:
    base, members = pool()
    looks = [
        plan("ties", members, base=base, then=then).passes
        for then in (None, "svc", ["svc", "larv"])
    ]
    assert [count - looks[0] for count in looks] == [0, 0, 1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"then": "larvae"}, "Did you mean larv"),
        ({"then": {"svc": {"alpah": 1}}}, "Did you mean alpha"),
        ({"then": {"svc": {"alpha": 0}}}, "alpha"),
        ({"then": {"svc": 3}}, "then: expected a step"),
        ({"then": 3}, "then: expected a step"),
        ({"then": "[svc"}, "then: expected a step"),
        ({"then": {"larv": {"gain": {"*mlp*": 1.0}}}}, "larv looks at the whole model"),
        ({"then": {"larv": {"tiers": []}}}, "tiers"),
        ({"then": "svc", "base": None, "method": "average"}, "then: needs a base"),
        ({"then": "svc", "method": "slerp"}, "then: slerp"),
        ({"then": "svc", "method": "smile"}, "then: smile makes a module"),
    ],
)
def test_mistakes_are_told(settings: dict[str, Any], said: str) -> None:
    base, members = pool()
    method = settings.pop("method", "ties")
    members = members[:1] if method == "slerp" else members
    with pytest.raises(UserError) as problem:
        fuse(method, members, **{"base": base, **settings})
    assert said in str(problem.value)


RECIPE = """version: 1
data: {icons: {dataset: icons, split: test, limit: 4}}
models: {plain: {load: icons-vit-plain}, colour: {load: icons-vit-colour}, base: {load: icons-vit}}
fuse:
  soup: {method: average, models: [plain, colour], base: base, then: THEN}
measure: {with: [{measure: clean, data: icons}]}
"""


def test_in_a_recipe(tmp_path: Path) -> None:
    file = RecipeFile(RECIPE.replace("THEN", "[svc, {subspace_boosting: {beta: 0.2}}]"), "r.yaml")
    check(file)
    made = order_of(file.recipe, "soup", tmp_path)
    assert made.settings["then"] == ["svc", BOOST]
    for text, said in (
        (RECIPE.replace("THEN", "svcc"), "Did you mean svc"),
        (RECIPE.replace("THEN", "svc").replace("base: base, ", ""), "then: needs a base"),
    ):
        with pytest.raises(RecipeError, match=said):
            check(RecipeFile(text, "r.yaml"))


def test_finishers_are_listed_and_shown() -> None:
    assert "subspace_boosting" in invoke("list", "finishers").output
    assert "2602.05536" in invoke("show", "svc").output

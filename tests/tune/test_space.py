"""What may be searched: text to ranges, signatures to ranges, knobs to parameters."""

from __future__ import annotations

import pytest

from stockpot.errors import BadParameterError, UserError
from stockpot.fuse import fusers
from stockpot.tune.question import default_point, spaces_of
from stockpot.tune.space import Choice, Range, Space, derived, read_node

MEMBERS = {"a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("text", "knob"),
    [
        ("0.1:0.9", Range(0.1, 0.9)),
        ("1e-5:1e-3:log", Range(1e-5, 1e-3, log=True)),
        ("1:30", Range(1, 30, whole=True)),  # to YAML 1.1 this is ninety
        ("-0.5:0.5", Range(-0.5, 0.5)),
        ("mean,sum", Choice(("mean", "sum"))),
        ("true,false", Choice((True, False))),
        ("0.5", Choice((0.5,))),
        (["mean", "sum"], Choice(("mean", "sum"))),
    ],
)
def test_a_knob_is_read(text: object, knob: object) -> None:
    assert read_node(text, "x") == knob


@pytest.mark.parametrize("text", ["1:0", "a:b", "0:1:log", "0:1:cubic", "0:inf"])
def test_a_range_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(BadParameterError, match="space: x"):
        read_node(text, "x")


def test_a_grid_goes_from_end_to_end() -> None:
    assert Range(0.0, 1.0).points(5) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert Range(1e-4, 1e-2, log=True).points(3) == [1e-4, 1e-3, 1e-2]
    assert Range(1, 3, whole=True).points(9) == [1, 2, 3]


def test_a_tree_gives_a_knob_for_every_leaf() -> None:
    tree = {
        "weights": Range(0, 1),
        "density": read_node("{members: 0.1:0.9}", "density"),
        "scale": read_node('{"*attn*": 0:1, "*": {depth: [0:1, 0.5:1]}}', "scale"),
        "reduce": Choice(("mean", "sum")),
    }
    space = Space("ties", tree, ("a", "b"), frozenset({"weights"}), frozenset({"weights", "scale"}))
    knobs = space.knobs()
    assert list(knobs) == [
        "weights.a", "weights.b", "density.a", "density.b", "scale.*attn*", "scale.*.depth.0",
        "scale.*.depth.1", "reduce",
    ]  # fmt: skip
    assert knobs["weights.a"] == Range(0, 1), "a weight need not be whole"
    values = dict(zip(knobs, [1, 2, 3, 4, 5, 6, 7, "sum"], strict=True))
    assert space.params(values) == {
        "weights": [1, 2],
        "density": {"members": [3, 4]},
        "scale": {"*attn*": 5, "*": {"depth": [6, 7]}},
        "reduce": "sum",
    }


@pytest.mark.parametrize("method", fusers.names())
def test_every_method_has_knobs_that_it_accepts(method: str) -> None:
    """Both ends of every derived range, and the defaults, pass the method's own checks."""
    entry = fusers.get(method)
    tags = entry.tags
    count = max(tags.at_least, (tags.members or 2) - (tags.pair and tags.members == 2))
    members = {name: name for name in "abcdef"[: max(1, count)]}
    if not derived(entry):
        return
    base = None if tags.apart else "base"
    space = spaces_of([method], members, base, {}, {})[method]
    for end in (0, -1):
        values = {
            name: knob.options[end] if isinstance(knob, Choice) else (knob.low, knob.high)[end]
            for name, knob in space.knobs().items()
        }
        entry.validate(space.params(values))
    point = default_point(space)
    if point is not None:
        params, own = space.params(point), {row.name: row.default for row in entry.parameters}
        assert all(own[k] in (None, v) or set(v) == {1.0} for k, v in params.items())


@pytest.mark.parametrize(
    ("space", "told"),
    [
        ({"densty": "0:1"}, "no parameter 'densty'. Did you mean density"),
        ({"density": {"members": {"a": "0:1", "z": "0:1"}}}, "a range for each of a, b"),
        ({"density": "0:3"}, "expected a share from 0 to 1"),
    ],
)
def test_what_cannot_be_searched_is_said_before_any_merge(space: object, told: str) -> None:
    with pytest.raises(UserError, match=told):
        spaces_of(["ties"], MEMBERS, "base", space, {})  # type: ignore[arg-type]


def test_a_parameter_is_searched_or_fixed_not_both() -> None:
    with pytest.raises(BadParameterError, match="a range and a value"):
        spaces_of(["ties"], MEMBERS, "base", {"density": "0.1:1"}, {"density": 0.2})
    assert "density" not in spaces_of(["ties"], MEMBERS, "base", {}, {"density": 0.2})["ties"].tree

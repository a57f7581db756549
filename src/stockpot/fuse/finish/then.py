"""The grammar of `then`: which steps follow a fusion, and with which parameters.

One grammar in Python, in recipes and on the command line:

    subspace_boosting                          a step
    [svc, subspace_boosting]                   several, one after the other
    {subspace_boosting: {beta: 0.02}}          with parameters
    [svc, {subspace_boosting: {beta: 0.02}}]   both

A parameter may differ from tensor to tensor as that of a method may (`fuse/parameters.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stockpot.errors import BadParameterError
from stockpot.foreign import YamlError, read_value
from stockpot.fuse import FuserTags
from stockpot.fuse.finish import finishers
from stockpot.fuse.finish.finisher import Finisher, SurveyFinisher
from stockpot.fuse.parameters import assign, check_parameters
from stockpot.registry import Entry

THEN = "then"


class Step(NamedTuple):
    """A finishing step as it was asked for."""

    name: str
    params: Mapping[str, Any]


class Built(NamedTuple):
    """A step for every tensor: the distinct ones, and which of them each tensor has."""

    name: str
    distinct: tuple[Finisher | SurveyFinisher, ...]
    of: Mapping[str, int]


def split_then(params: Mapping[str, Any]) -> tuple[dict[str, Any], list[Step]]:
    """Part the parameters of a fusion into those of its method and the steps that follow."""
    own = {key: value for key, value in params.items() if key != THEN}
    return own, read_steps(params.get(THEN))


def read_steps(given: Any) -> list[Step]:
    """The steps; those of a text, a list or a mapping."""
    if given is None:
        return []
    if isinstance(given, str):
        try:
            given = read_value(given)
        except YamlError:
            raise _strange(given) from None
    if isinstance(given, str):
        finishers.get(given)  # raises with suggestions
        return [Step(given, {})]
    if isinstance(given, Mapping):
        found = []
        for name, params in given.items():
            if not isinstance(params, Mapping | None):
                raise _strange(given)
            found.append(Step(finishers.get(str(name)).name, dict(params or {})))
        return found
    if isinstance(given, list | tuple):
        return [step for one in given for step in read_steps(one)]
    raise _strange(given)


def _strange(given: Any) -> BadParameterError:
    return BadParameterError(
        f"then: expected a step, a list of them, or a mapping of steps to parameters, got {given!r}"
        ".",
        hint="Steps: " + ", ".join(finishers.names()) + ".",
        parameter=THEN,
    )


def check_fusion(entry: Entry[FuserTags], params: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a fusion and of what follows it, as `check_parameters` gives them."""
    own, steps = split_then(params)
    found = check_parameters(entry, own)
    if steps:
        found[THEN] = [{one.name: check_parameters(finishers.get(one.name), one.params)}
                       for one in steps]  # fmt: skip
    return found


def check_base(entry: Entry[FuserTags], params: Mapping[str, Any], with_base: bool) -> None:
    """What follows a fusion works on its change from a base."""
    if not params.get(THEN):
        return
    if entry.tags.pair:
        raise BadParameterError(
            f"then: {entry.name} goes from one model to another, and no change is merged.",
            parameter=THEN,
        )
    if not with_base:
        raise BadParameterError(
            "then: needs a base: the model that the members were fine-tuned from.",
            hint="Give it as base (--base).",
            parameter=THEN,
        )


def build(step: Step, names: Sequence[str], members: Sequence[str]) -> Built:
    """A step with its parameters for every tensor."""
    entry = finishers.get(step.name)
    sets = assign(entry, step.params, names, members)
    made = tuple(entry.function(**values) for values in sets.distinct)
    if len(made) > 1 and isinstance(made[0], SurveyFinisher):
        raise BadParameterError(
            f"then: {step.name} looks at the whole model; expected one value per parameter, got "
            "values that differ from tensor to tensor.",
            parameter=THEN,
        )
    return Built(step.name, made, sets.of)

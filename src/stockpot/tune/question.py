"""What a search is asked, found and checked before any merge: members, data, spaces, a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stockpot.checkpoints.member_names import by_name
from stockpot.checkpoints.record import MEMBER, Record, plain
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.tasks.sets import expanded
from stockpot.errors import BadDataError, BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.parameters import check_members, check_parameters
from stockpot.models.classifier import Classifier
from stockpot.models.inputs import data_inputs, model_input
from stockpot.tune.objectives import Objective
from stockpot.tune.space import Choice, Range, Space, derived, read_space

Member = str | Path | Classifier
Data = str | Path | Dataset | Sequence[str | Path | Dataset]


def read_data(data: Data, split: str | None, options: Mapping[str, Any]) -> list[Dataset]:
    """Datasets by name, sets of tasks taken apart, in one split; given ones as they are."""
    given = [data] if isinstance(data, str | Path | Dataset) else list(data)
    found: list[Dataset] = []
    for one in given:
        if isinstance(one, Dataset):
            found.append(one)
            continue
        found += [load_dataset(name, split=split, **options) for name in expanded(str(one))]
    return found


def check_apart(validation: Sequence[Dataset], test: Sequence[Dataset]) -> None:
    """The test must not be what the search sees."""
    known = {one.fingerprint for one in validation}
    for one in test:
        if one.fingerprint in known:
            raise BadDataError(
                f"tune: the test images {one} are those that the search sees.",
                hint="Give another split (--test-split), or none with --no-test.",
            )


def spaces_of(
    methods: Sequence[str],
    members: Mapping[str, Member],
    base: Member | None,
    given: Mapping[str, Any],
    fixed: Mapping[str, Any],
) -> dict[str, Space]:
    """The space of every method: as given, or by its signature.

    Of several methods, `ties.density` is the one of ties, and `density` that of all that have it.
    """
    found = {}
    used: set[str] = set()
    for method in methods:
        entry = fusers.get(method)
        check_members(entry, len(members), base is not None)
        names = [row.name for row in entry.parameters if row.name != "preset"]
        own = {}
        for key, value in given.items():
            scope, dot, name = key.partition(".")
            if dot and scope in methods:
                if scope == method:
                    own[name] = value
                    used.add(key)
            elif key in names or len(methods) == 1:
                own[key] = value
                used.add(key)
        held = {key: value for key, value in fixed.items() if key in names}
        tree = read_space(own, names, method) if own else derived(entry, list(held))
        twice = [key for key in tree if key in held]
        if twice:
            raise BadParameterError(f"tune: {twice[0]} has a range and a value (-p); give one.")
        fields = entry.schema.model_fields
        lists = {n for n in names if "list" in str(fields[n].annotation)}
        floats = {n for n in names if "float" in str(fields[n].annotation)}
        missing = [
            row.name
            for row in entry.parameters
            if row.required and row.name not in tree and row.name not in held
        ]
        tree |= {name: derived(entry)[name] for name in missing}
        space = Space(method, tree, tuple(members), frozenset(lists), frozenset(floats))
        middle = {name: _some(knob) for name, knob in space.knobs().items()}
        check_parameters(entry, {**held, **space.params(middle)})
        found[method] = space
    unused = [key for key in given if key not in used]
    if unused:
        raise BadParameterError(
            f"space: none of {', '.join(methods)} has a parameter {unused[0]!r}."
        )
    return found


def _some(knob: Range | Choice) -> Any:
    """A value of a knob."""
    return knob.options[0] if isinstance(knob, Choice) else knob.points(3)[-1]


def default_point(space: Space, prefix: str = "") -> dict[str, Any] | None:
    """The knobs at the method's own defaults; none where one lies outside of its range."""
    entry = fusers.get(space.method)
    rows = {row.name: row.default for row in entry.parameters}
    found: dict[str, Any] = {}
    for name, knob in space.knobs(prefix).items():
        key = name.removeprefix(prefix).partition(".")[0]
        value = rows[key]
        if value is None and key in space.lists:
            value = 1.0
        if isinstance(knob, Choice):
            if value not in knob.options:
                return None
        elif not isinstance(value, int | float) or not knob.low <= value <= knob.high:
            return None
        found[name] = value
    return found


def tuning_record(
    methods: Sequence[str],
    members: Sequence[Member] | Mapping[str, Member],
    *,
    base: Member | None,
    data: Sequence[Dataset],
    unseen: Sequence[Dataset],
    objectives: Sequence[Objective],
    spaces: Mapping[str, Space],
    fixed: Mapping[str, Any],
    seed: int,
    **how: Any,
) -> Record:
    """The record of a search: its digest tells it from every other."""
    named = by_name(members)
    inputs = [model_input(MEMBER, one, name) for name, one in named.items()]
    if base is not None:
        inputs.append(model_input("base", base))
    for role, sets in (("validation", data), ("unseen", unseen)):
        inputs += [one for each in sets for one in data_inputs(role, each)]
    knobs = {
        method: {name: str(knob) for name, knob in space.knobs().items()}
        for method, space in spaces.items()
    }
    asked = [{"name": one.name, "params": dict(one.params)} for one in objectives]
    return Record(
        verb="tune",
        method=",".join(methods),
        parameters=plain({"space": knobs, "fixed": dict(fixed), "objectives": asked, **how}),
        seed=seed,
        inputs=inputs,
    )

"""What a search is asked, found and checked before any merge: members, data, spaces, a record."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from stockpot.checkpoints.member_names import by_name
from stockpot.checkpoints.record import MEMBER, Record, plain
from stockpot.datasets.by_content.image_hashes import image_hashes
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.tasks.sets import expanded
from stockpot.errors import BadDataError, BadParameterError, did_you_mean
from stockpot.fuse import fusers
from stockpot.fuse.finish.then import THEN, check_base, check_fusion
from stockpot.fuse.learning.assemble import find_data
from stockpot.fuse.parameters import check_members
from stockpot.fuse.request import Options
from stockpot.models.classifier import Classifier
from stockpot.models.inputs import data_inputs, model_input
from stockpot.tune.objectives import Objective, read_objectives
from stockpot.tune.space import Choice, Range, Space, derived, read_space

Member = str | Path | Classifier
OPTIONS = {THEN, *(one.name for one in fields(Options))}
"""What may be said of every fusion beside its parameters."""
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
    """The test must not be what the search sees, nor hold all of it: a limit takes a part."""
    for one in test:
        for other in validation:
            same = one.fingerprint == other.fingerprint
            if same or (one.name == other.name and _holds(one, other)):
                raise BadDataError(
                    f"tune: the test images {one} are those that the search sees.",
                    hint="Give another split (--test-split), or none with --no-test.",
                )


def _holds(whole: Dataset, part: Dataset) -> bool:
    hashes = image_hashes(part.images)
    return bool(np.isin(hashes, image_hashes(whole.images)).all())


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
        check_base(entry, fixed, base is not None)
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
        steps = {key: value for key, value in fixed.items() if key == THEN}
        check_fusion(entry, {**held, **steps, **space.params(middle)})
        found[method] = space
    known = {row.name for method in methods for row in fusers.get(method).parameters}
    strange = [key for key in fixed if key not in known | OPTIONS]
    if strange:
        raise BadParameterError(
            f"tune: none of {', '.join(methods)} has a parameter {strange[0]!r}."
            f"{did_you_mean(strange[0], sorted(known))}"
        )
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


@dataclass(frozen=True)
class Question:
    """What is searched, on what it is judged, and the record by which a search is known."""

    methods: list[str]
    members: dict[str, Any]
    objectives: list[Objective]
    spaces: dict[str, Space]
    data: list[Dataset]
    unseen: list[Dataset]
    record: Record


def ask(
    method: str | Sequence[str],
    members: Sequence[Member] | Mapping[str, Member],
    data: Data,
    *,
    base: Member | None = None,
    objectives: str | Sequence[str] = "clean",
    unseen: Data = (),
    space: Mapping[str, Any] | None = None,
    sampler: str = "tpe",
    points: int = 5,
    prune: str = "none",
    split: str = "val",
    limit: int | None = None,
    tasks: Any = None,
    measure_params: Mapping[str, Mapping[str, Any]] | None = None,
    data_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    params: Mapping[str, Any],
) -> Question:
    """Find and check everything; the arguments are those of `stockpot.tune`."""
    given = method.split(",") if isinstance(method, str) else method
    methods = [one.strip() for one in given]
    named: dict[str, Any] = dict(by_name(members, taken=() if base is None else ("base",)))
    wanted = read_objectives(objectives, measure_params)
    spaces = spaces_of(methods, named, base, space or {}, params)
    if "split" in (data_options or {}):
        raise BadParameterError(
            "data_options: got a split, which is an option of its own here.",
            hint="Give --split, and --test-split for what the choice is scored on.",
        )
    options = {**(data_options or {}), **({} if limit is None else {"limit": limit})}
    seen, beside = read_data(data, split, options), read_data(unseen, split, options)
    inputs = [model_input(MEMBER, one, name) for name, one in named.items()]
    if base is not None:
        inputs.append(model_input("base", base))
    for role, sets in (("validation", seen), ("unseen", beside)):
        inputs += [one for each in sets for one in data_inputs(role, each)]
    if any(fusers.get(one).tags.learns for one in methods):
        learned_from = find_data(tasks, tuple(named))
        inputs += [one for each in learned_from for one in data_inputs("data", each)]
    knobs = {
        one: {name: str(knob) for name, knob in own.knobs().items()} for one, own in spaces.items()
    }
    asked = [{"name": one.name, "params": dict(one.params)} for one in wanted]
    how: dict[str, Any] = {"sampler": sampler, "prune": prune}
    how |= {"points": points} if sampler == "grid" else {}
    record = Record(
        verb="tune",
        method=",".join(methods),
        parameters=plain({"space": knobs, "fixed": dict(params), "objectives": asked, **how}),
        seed=seed,
        inputs=inputs,
    )
    return Question(methods, named, wanted, spaces, seen, beside, record)


_ELSEWHERE = {"test", "test_split", "storage", "trials", "prefer", "device", "batch_size"}


def tuning_record(
    method: str | Sequence[str],
    members: Mapping[str, Member],
    data: Data,
    *,
    trials: int,
    prefer: str = "",
    **settings: Any,
) -> Record:
    """The record of the model that a search of so many trials chooses; nothing is searched."""
    taken = set(inspect.signature(ask).parameters) - {"params"}
    own = {key: value for key, value in settings.items() if key in taken}
    params = {k: v for k, v in settings.items() if k not in taken and k not in _ELSEWHERE}
    record = ask(method, members, data, params=params, **own).record
    more = {"trials": trials, **({"prefer": prefer} if prefer else {})}
    return record.model_copy(update={"parameters": {**record.parameters, **more}})

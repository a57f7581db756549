"""A storage summed up: trials with their commands, the front, the choice and what it is worth."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stockpot.models.classifier import Classifier
from stockpot.results.tuning import TunedObjective, TunedSelection, TunedTrial, TuneResult
from stockpot.tune.objectives import Objective
from stockpot.tune.search import FOUND, METHOD, PARAMS, SECONDS, flags_of
from stockpot.tune.selection import balanced, front_of, selection
from stockpot.tune.study import PROBLEM

_SHARES = ("ece", "nuclear_norm")
"""Metrics beside accuracies that are shown as percentages."""


def trial_row(
    trial: Any, members: Mapping[str, Any], base: Any, tasks: Sequence[str], named: bool
) -> TunedTrial:
    """A trial with its scores and the command that makes it again."""
    kept = trial.user_attrs
    states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    found = kept.get(FOUND, {}) if trial.state.name == "COMPLETE" else {}
    method, params = str(kept[METHOD]), dict(kept.get(PARAMS, {}))
    return TunedTrial(
        number=trial.number,
        state=states[trial.state.name],
        method=method,
        params=params,
        values={name: one["value"] for name, one in found.items()},
        tasks={name: one["tasks"] for name, one in found.items()},
        seconds=kept.get(SECONDS, 0.0),
        problem=kept.get(PROBLEM, ""),
        command=fuse_command(method, params, members, base, tasks, named),
    )


def fuse_command(
    method: str,
    params: Mapping[str, Any],
    members: Mapping[str, Any],
    base: Any,
    tasks: Sequence[str] = (),
    named: bool = False,
) -> str:
    """The command that makes the same weights; nothing where models have no place."""
    sources = [*members.values(), *([base] if base is not None else [])]
    if any(isinstance(one, Classifier | Mapping) for one in sources):
        return ""
    words = ["stockpot", "fuse", method]
    words += [f"{name}={one}" if named else str(one) for name, one in members.items()]
    words += ["--base", str(base)] if base is not None else []
    for task in tasks:
        words += ["--task", task]
    for key, value in params.items():
        words += ["-p", f"{key}={_written(value)}"]
    return shlex.join([*words, "-o", "OUT"])


def _written(value: Any) -> str:
    """A value as YAML that reads back the same: a number there needs a dot before its exponent."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, float):
        text = repr(value)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)}: {_written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_written, value)) + "]"
    return str(value)


def as_text(tasks: Any) -> list[str]:
    """Tasks as words of a command; none where they were given as images."""
    given = [tasks] if isinstance(tasks, str) else list(tasks or ())
    return [str(one) for one in given] if all(isinstance(one, str) for one in given) else []


def source_text(one: Any) -> str:
    """Where a member came from."""
    if isinstance(one, Classifier):
        return one.origin.source
    return "in memory" if isinstance(one, Mapping) else str(one)


def directions(study: Any, wanted: Sequence[Objective]) -> list[TunedObjective]:
    """Which way each objective goes: a measure's own scores say so when they are there."""
    done = next((t for t in study.get_trials(deepcopy=False) if FOUND in t.user_attrs), None)
    kept = done.user_attrs[FOUND] if done else {}
    return [
        TunedObjective(name=one.name, higher=kept.get(one.name, {}).get("higher", one.higher),
                       share=one.metric.endswith("accuracy") or one.metric in _SHARES)
        for one in wanted
    ]  # fmt: skip


def with_choice(found: TuneResult, prefer: str, defaults: int) -> TuneResult:
    """The front, the choice, and which trial is the default: one of the first so many."""
    names = [one.name for one in found.objectives]
    signs = np.asarray([1.0 if one.higher else -1.0 for one in found.objectives])
    done = [one for one in found.trials if one.state == "complete"]
    if not done:
        return found
    values = np.asarray([[one.values[name] for name in names] for one in done]) * signs
    front = front_of(values)
    if len(names) == 1:
        pick = int(values[:, 0].argmax())
    elif prefer:
        column = names.index(prefer)
        pick = max(front, key=lambda index: (values[index, column], values[index].sum()))
    else:
        pick = front[balanced(values[front])]
    default = None
    # Of several methods, the default that is best on validation images is the one to beat.
    ours = [i for i, one in enumerate(done) if one.number < defaults]
    if ours:
        own = values[ours]
        place = int(own[:, 0].argmax()) if len(names) == 1 else balanced(own)
        default = done[ours[place]].number
    return found.model_copy(update={
        "front": [done[index].number for index in front], "chosen": done[pick].number,
        "default": default,
    })  # fmt: skip


def with_selection(
    result: TuneResult,
    study: Any,
    wanted: Sequence[Objective],
    data: Sequence[Any],
    unseen: Sequence[bool],
    seed: int,
) -> TuneResult:
    """The bootstrap over the selection, where one objective chose and its images are known."""
    if len(wanted) != 1:
        return result
    objective = wanted[0]
    done = [t for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
    flags = [flags_of(one, objective.name) for one in done]
    if not flags or not all(flags):
        return result
    tasks = [np.stack([own[task] for own in flags]) for task in range(len(flags[0]))]
    groups = [
        None if one.groups is None else np.asarray(one.groups)
        for one, mark in zip(data, unseen, strict=True)
        if mark == objective.unseen
    ]
    found = selection(tasks, worst=objective.over == "worst", groups=groups, seed=seed)
    return result.model_copy(
        update={"selection": {objective.name: TunedSelection(**found._asdict())}}
    )

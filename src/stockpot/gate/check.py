"""`stockpot.check`: does a model meet requirements? From results, or measured until it is clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stockpot.errors import BadParameterError, UserError
from stockpot.gate.blocks import FIRST, Told, shuffled, watch
from stockpot.gate.judge import judge
from stockpot.gate.outcome import Checked, Outcome
from stockpot.gate.rules_file import UNDECIDED, Rules, RulesError, Undecided, load_rules
from stockpot.measure import measures
from stockpot.models.classifier import Classifier
from stockpot.results.paired.pairing import Results, by_model
from stockpot.results.schema import CellResult

if TYPE_CHECKING:
    from stockpot.datasets.dataset import Dataset
    from stockpot.measure.run import Source


def check(
    rules: str | Path | Rules,
    results: Results | None = None,
    *,
    baseline: Results | None = None,
    model: Source | None = None,
    data: str | Path | Dataset | None = None,
    baseline_model: Source | None = None,
    undecided: Undecided | None = None,
    block: int = FIRST,
    seed: int = 0,
    device: str = "auto",
    data_options: Mapping[str, Any] | None = None,
    model_options: Mapping[str, Any] | None = None,
    told: Told | None = None,
) -> Checked:
    """Hold a model to its requirements.

    Args:
        rules: a file of rules, or rules.
        results: of the model: a run folder (one model of it as `FOLDER:MODEL`), a file, or results.
        baseline: the same of what it is compared with.
        model: instead of results, a model to measure, in growing blocks of images until each rule
            is decided.
        data: what it is measured on.
        baseline_model: a model to measure beside it, instead of results of the baseline.
        undecided: whether a rule that the images do not decide lets the model `pass` or `fail`; as
            the rules say by default, and `fail` where they do not.
        block: images of the first block; together they grow by half from block to block.
        seed: of the order of images and of everything random in the measures.
        device: where the model is measured.
        data_options: of `load_dataset`.
        model_options: of `load_model`.
        told: called after each block with the number of images and where each rule stands.
    """
    asked = rules if isinstance(rules, Rules) else load_rules(rules, measures.names())
    if undecided is not None and undecided not in UNDECIDED:
        raise BadParameterError(f"undecided: expected pass or fail, got {undecided!r}.")
    policy = undecided or asked.undecided
    base = None if baseline is None else _side(baseline, "baseline")
    if model is None:
        if results is None or data is not None or baseline_model is not None:
            raise BadParameterError(
                "expected results of a model, or a model (--model) and data (--data) to measure."
            )
        return _of_results(asked, _side(results, "results"), base, policy)
    if results is not None or data is None:
        raise BadParameterError("a model is measured on data: give --data, and no results.")
    if base is not None and baseline_model is not None:
        raise BadParameterError("expected results of a baseline or a model of one, got both.")
    from stockpot.gate.measured import Measured

    subject = Measured(asked, model, data, base, baseline_model, seed, device,
                       dict(data_options or {}), dict(model_options or {}))  # fmt: skip
    order = shuffled(len(subject.data), subject.groups, seed)
    try:
        outcomes, ends, looked = watch(
            asked.rules, order, subject.look, grouped=subject.groups is not None,
            classes=subject.classes, first=block, told=told, data=subject.data.name,
        )  # fmt: skip
    except BadParameterError as problem:
        raise _placed(asked, problem) from problem
    rows: NDArray[np.int64] = np.concatenate(order)[: ends[-1]]
    return Checked(
        asked.name, _named(model), _named(baseline_model, base), tuple(outcomes),
        policy, tuple(np.diff(ends, prepend=0).tolist()), tuple(rows.tolist()), looked,
        subject.data.name, subject.data.fingerprint, seed,
    )  # fmt: skip


def _named(model: Source | None, cells: Sequence[CellResult] | None = None) -> str:
    if model is None:
        return cells[0].key.model if cells else ""
    if isinstance(model, Classifier):
        return model.origin.source
    return str(model) if isinstance(model, str | Path) else str(getattr(model, "__name__", model))


def _side(given: Results, option: str) -> list[CellResult]:
    """The results of the one model that a side has."""
    found = by_model(given, "", option)
    if len(found) > 1:
        raise UserError(
            f"{option}: expected results of one model, got those of {', '.join(found)}.",
            hint=f"Choose one: {given}:{next(iter(found))}."
            if isinstance(given, str | Path)
            else "",
        )
    return next(iter(found.values()))


def _of_results(
    asked: Rules, cells: Sequence[CellResult], base: Sequence[CellResult] | None, policy: Undecided
) -> Checked:
    settings = {name: settled(name, params) for name, params in asked.measure.items()}
    outcomes: list[Outcome] = []
    try:
        for rule in asked.rules:
            outcomes += judge(rule, cells, base, settings.get(rule.target.measure, {}))
    except BadParameterError as problem:
        raise _placed(asked, problem) from problem
    return Checked(
        asked.name, cells[0].key.model, base[0].key.model if base else "", tuple(outcomes), policy
    )


def settled(measure: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as results hold them, only those that are given."""
    whole = measures.get(measure).validate(dict(params))
    return {key: whole[key] for key in params}


def _placed(asked: Rules, problem: BadParameterError) -> UserError:
    """The complaint with the place of the rule that it is about."""
    about = str(problem).partition(":")[0].partition(" ")[0]
    line = next((rule.line for rule in asked.rules if str(rule.target) == about), 0)
    return RulesError(f"{asked.file}:{line}: {problem}") if line and asked.file else problem

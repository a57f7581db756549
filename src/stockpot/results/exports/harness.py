"""What lm-evaluation-harness and FusionBench write about a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stockpot.errors import UserError
from stockpot.results.exports.names import by_model, file_names, flat_name
from stockpot.results.schema import CellResult, Score
from stockpot.results.tables import overall


def lm_eval(results: Sequence[CellResult]) -> dict[str, str]:
    """The harness keeps `results[task]["metric,filter"]` and a `_stderr` beside each."""
    files, models = {}, by_model(results)
    named = file_names(models)
    for model, cells in models.items():
        document: dict[str, Any] = {
            "results": {},
            "configs": {},
            "versions": {},
            "n-samples": {},
            "higher_is_better": {},
            "model_name": model,
            "git_hash": cells[0].provenance.commit,
            "date": cells[0].provenance.created,
        }
        for cell in cells:
            task = f"{cell.key.measure}:{cell.key.data}"
            row: dict[str, Any] = {"alias": task}
            for score in cell.scores:
                name = flat_name(score)
                row[f"{name},none"] = score.value
                row[f"{name}_stderr,none"] = _standard_error(score)
            document["results"][task] = row
            document["configs"][task] = {
                "task": task,
                "dataset_path": cell.data.name,
                "test_split": cell.data.split,
                "metadata": {"version": cell.schema_version, "params": cell.key.params},
            }
            document["versions"][task] = cell.schema_version
            document["n-samples"][task] = {"original": cell.data.n, "effective": cell.data.n}
            document["higher_is_better"][task] = {
                flat_name(score): score.higher_is_better for score in cell.scores
            }
        text = json.dumps(document, indent=1, sort_keys=True) + "\n"
        files[f"{named[model]}.json"] = text
    return files


def fusionbench(results: Sequence[CellResult]) -> dict[str, str]:
    """FusionBench's report: accuracy and loss per task, and their plain mean."""
    files, models = {}, by_model(results)
    named = file_names(models)
    for model, cells in models.items():
        clean = [cell for cell in cells if cell.key.measure == "clean"]
        if not clean:
            raise UserError(f"a FusionBench report needs clean scores; {model} has none.")
        total = clean[0].model.parameters
        document: dict[str, Any] = {
            "model_info": {
                "trainable_params": total,
                "all_params": total,
                "trainable_percentage": 1.0,
            }
        }
        tasks = {
            cell.key.data: {"accuracy": cell.score("accuracy").value, "loss": _loss(cell)}
            for cell in clean
        }
        average = {
            key: _mean([task[key] for task in tasks.values()]) for key in ("accuracy", "loss")
        }
        text = json.dumps({**document, **tasks, "average": average}, indent=1) + "\n"
        files[f"{named[model]}.json"] = text
    return files


def _standard_error(score: Score) -> float | str:
    """A standard error from the 95 % interval; `N/A` (the harness's word) where there is none."""
    if score.ci_low is None or score.ci_high is None:
        return "N/A"
    return (score.ci_high - score.ci_low) / (2 * 1.959964)


def _loss(cell: CellResult) -> float | None:
    """Of a model all of whose outputs were no numbers there is none."""
    score = overall(cell, "nll")
    return None if score is None else score.value


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None

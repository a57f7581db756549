"""Result files in other people's formats.

| format | for | layout |
|---|---|---|
| `csv` | spreadsheets, R | one row per score, one file |
| `lm-eval` | tools that read lm-evaluation-harness results | one JSON per model |
| `eval-results` | a Hugging Face model repository | `<model>/.eval_results/<data>.yaml` |
| `fusionbench` | scripts that read FusionBench reports | one JSON per model |
| `robustbench` | a RobustBench `model_info` entry | `<data>/<threat>/<model>.json` |
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from stockpot.errors import UnknownNameError, UserError
from stockpot.files import write_atomic
from stockpot.results.schema import CellResult, Score

_SCORE_FIELDS = ("metric", "value", "n", "ci_low", "ci_high", "ci_method", "higher_is_better")


def export(results: Iterable[CellResult], format: str, out: str | Path) -> list[Path]:
    """Write results in one of the formats above and say which files were written."""
    if format not in _WRITERS:
        raise UnknownNameError("export format", format, _WRITERS)
    files = _WRITERS[format](list(results))
    target = Path(out)
    single_file = format == "csv"
    written = []
    for name, text in files.items():
        path = target if single_file else target / name
        write_atomic(path, text)
        written.append(path)
    return written


def _csv(results: list[CellResult]) -> dict[str, str]:
    conditions = sorted({key for r in results for s in r.scores for key in s.condition})
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head = ["model", "measure", "data", "split", *_SCORE_FIELDS, *conditions]
    writer.writerow([*head, "convention", "seed", "data_fingerprint", "model_fingerprint"])
    for r in results:
        for s in r.scores:
            writer.writerow(
                [
                    *(r.key.model, r.key.measure, r.data.name, r.data.split),
                    *(getattr(s, name) for name in _SCORE_FIELDS),
                    *(s.condition.get(name, "") for name in conditions),
                    *(r.convention, r.key.seed, r.data.fingerprint, r.model.fingerprint),
                ]
            )
    return {"results.csv": stream.getvalue()}


def _lm_eval(results: list[CellResult]) -> dict[str, str]:
    """The harness keeps `results[task]["metric,filter"]` and a `_stderr` beside each."""
    files = {}
    for model, cells in _by_model(results).items():
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
                name = _flat_name(score)
                row[f"{name},none"] = score.value
                row[f"{name}_stderr,none"] = _half_width(score)
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
                _flat_name(score): score.higher_is_better for score in cell.scores
            }
        files[f"{model}.json"] = json.dumps(document, indent=1, sort_keys=True) + "\n"
    return files


def _eval_results(results: list[CellResult]) -> dict[str, str]:
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    files = {}
    for model, cells in _by_model(results).items():
        entries = defaultdict(list)
        for cell in cells:
            for score in (s for s in cell.scores if "class" not in s.condition):
                interval = (
                    f", {score.ci_method} [{score.ci_low:.4f}, {score.ci_high:.4f}]"
                    if score.ci_low is not None and score.ci_high is not None
                    else ""
                )
                entries[cell.key.data].append(
                    EvalResultEntry(
                        dataset_id=cell.data.name,
                        task_id=f"{cell.key.measure}/{_flat_name(score)}",
                        value=score.value,
                        date=cell.provenance.created,
                        notes=f"n={score.n}, seed={cell.key.seed}{interval}, {cell.convention}",
                    )
                )
        for data, rows in entries.items():
            text = yaml.safe_dump(eval_result_entries_to_yaml(rows), sort_keys=False)
            files[f"{model}/.eval_results/{data}.yaml"] = text
    return files


def _fusionbench(results: list[CellResult]) -> dict[str, str]:
    """FusionBench's report: accuracy and loss per task, and their plain mean."""
    files = {}
    for model, cells in _by_model(results).items():
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
            cell.key.data: {
                "accuracy": cell.score("accuracy").value,
                "loss": cell.score("nll").value,
            }
            for cell in clean
        }
        average = {
            key: sum(task[key] for task in tasks.values()) / len(tasks)
            for key in ("accuracy", "loss")
        }
        files[f"{model}.json"] = _json({**document, **tasks, "average": average})
    return files


_THREATS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


def _robustbench(results: list[CellResult]) -> dict[str, str]:
    """RobustBench stores percents as text and one file per threat."""
    files = {}
    for model, cells in _by_model(results).items():
        for data in sorted({cell.data.name for cell in cells}):
            same = [cell for cell in cells if cell.data.name == data]
            clean = next((c for c in same if c.key.measure == "clean"), None)
            if clean is None:
                continue
            base = {
                "link": "",
                "name": model,
                "authors": "",
                "additional_data": None,
                "number_forward_passes": 1,
                "dataset": data,
                "venue": "",
                "architecture": clean.model.architecture,
                "eps": None,
                "clean_acc": _percent(clean.score("accuracy")),
                "reported": "",
            }
            for cell in same:
                for score in cell.scores:
                    norm = str(score.condition.get("norm", ""))
                    if score.metric == "robust_accuracy" and norm in _THREATS:
                        entry = base | {
                            "eps": str(score.condition.get("eps", "")),
                            "autoattack_acc": _percent(score),
                        }
                        files[f"{data}/{_THREATS[norm]}/{model}.json"] = _json(entry)
                    if score.metric == "mean_corruption_accuracy":
                        entry = base | {"corruptions_acc": _percent(score)}
                        files[f"{data}/corruptions/{model}.json"] = _json(entry)
    if not files:
        raise UserError(
            "a RobustBench entry needs a clean score and an adversarial or corruption score of "
            "the same model and data; these results have none.",
            hint="Measure with `--with clean,corruption` or `--with clean,adversarial`.",
        )
    return files


def _by_model(results: list[CellResult]) -> dict[str, list[CellResult]]:
    groups = defaultdict(list)
    for result in results:
        groups[result.key.model].append(result)
    return dict(groups)


def _flat_name(score: Score) -> str:
    parts = [score.metric, *(f"{k}={v}" for k, v in sorted(score.condition.items()))]
    return "/".join(parts).replace(",", ";")


def _half_width(score: Score) -> float | str:
    """A standard error from the 95 % interval; `N/A` (the harness's word) where there is none."""
    if score.ci_low is None or score.ci_high is None:
        return "N/A"
    return (score.ci_high - score.ci_low) / (2 * 1.959964)


def _percent(score: Score) -> str:
    return f"{100 * score.value:.2f}"


def _json(entry: dict[str, Any]) -> str:
    return json.dumps(entry, indent=1) + "\n"


_WRITERS: dict[str, Callable[[list[CellResult]], dict[str, str]]] = {
    "csv": _csv,
    "lm-eval": _lm_eval,
    "eval-results": _eval_results,
    "fusionbench": _fusionbench,
    "robustbench": _robustbench,
}
FORMATS = tuple(_WRITERS)

"""RobustBench's `model_info`: one JSON file per dataset, threat and model, percents as text.

An entry of its boards is what AutoAttack left standing, or a mean over all of ImageNet-C's or
3DCC's corruptions and severities; other attacks, other corruptions and parts of them get no file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from stockpot.errors import UserError
from stockpot.results.exports.names import by_model, file_name, file_names
from stockpot.results.schema import CellResult, Score
from stockpot.results.tables import overall

_THREATS = {"linf": "Linf", "l2": "L2"}
_WHOLE = re.compile(r"mce:(?!.*:\d+-of-\d+x\d+$).*?(?P<family>:[A-Z][\w-]*)?")
"""The convention of a whole benchmark: ImageNet-C's own, or with the name of another."""
_FIELDS = {None: "", ":ImageNet-3DCC": "_3d"}


def robustbench(results: Sequence[CellResult]) -> dict[str, str]:
    """The files by their place in `model_info`."""
    files: dict[str, dict[str, Any]] = {}
    others: set[str] = set()
    models = by_model(results)
    named = file_names(models)
    for model, cells in models.items():
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
                "reported": None,
            }
            for cell in same:
                entries = _entries(cell)
                if not entries and cell.key.measure in _WHY:
                    others.add(_WHY[cell.key.measure])
                for threat, found in entries:
                    path = f"{file_name(data)}/{threat}/{named[model]}.json"
                    entry = files.setdefault(path, dict(base))
                    if entry["eps"] is not None and found.get("eps") != entry["eps"]:
                        raise UserError(
                            f"{model} on {data}: {threat} was measured at eps {entry['eps']} and "
                            f"{found['eps']}, and RobustBench has one entry for both.",
                            hint="Export the result files of one radius.",
                        )
                    entry |= found
    if not files:
        why = " and ".join(sorted(others)) or "these results have none"
        raise UserError(
            "a RobustBench entry needs a clean score and one of AutoAttack or of all corruptions "
            f"of the same model and data; {why}.",
            hint="Measure with `--with clean,corruption`, or with `--with clean,adversarial -p "
            "adversarial.protocol=robustbench`.",
        )
    return {path: json.dumps(entry, indent=2) + "\n" for path, entry in files.items()}


_WHY = {
    "adversarial": "the attack was not AutoAttack as published",
    "corruption": "the corruptions were not all of ImageNet-C's or 3DCC's",
}


def _entries(cell: CellResult) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    if cell.key.measure == "adversarial" and _is_autoattack(cell):
        for score in cell.scores:
            norm = str(score.condition.get("norm", ""))
            if score.metric == "robust_accuracy" and norm in _THREATS:
                eps = str(score.condition.get("eps", ""))
                found.append((_THREATS[norm], {"eps": eps, "autoattack_acc": _percent(score)}))
    whole = _WHOLE.fullmatch(cell.convention)
    mean = overall(cell, "mean_corruption_accuracy")
    if mean is not None and whole and whole["family"] in _FIELDS:
        ending = _FIELDS[whole["family"]]
        entry = {f"corruptions_acc{ending}": _percent(mean)}
        # Without a baseline, or with another, an mCE is no number of theirs.
        mce = overall(cell, "mce")
        if mce is not None and cell.convention.startswith("mce:alexnet-"):
            entry[f"corruptions_mce{ending}"] = _percent(mce)
        found.append(("corruptions", entry))
    return found


def _is_autoattack(cell: CellResult) -> bool:
    """Whether a standard AutoAttack was run, by a protocol or by its name."""
    return "method=autoattack" in cell.convention and "(changed)" not in cell.convention


def _percent(score: Score) -> str:
    return f"{100 * score.value:.2f}"

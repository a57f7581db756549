"""The record of a check, as JSON: every rule, and which images were looked at."""

from __future__ import annotations

from typing import Any

from stockpot.gate.outcome import Checked
from stockpot.results.provenance import package_version

FORMAT = "stockpot-check:1"


def record(checked: Checked) -> dict[str, Any]:
    """The document."""
    found: dict[str, Any] = {
        "format": FORMAT,
        "stockpot": package_version("stockpot"),
        "name": checked.name,
        "model": checked.model,
        "baseline": checked.baseline,
        "passed": checked.passed,
        "undecided": checked.undecided,
        "rules": [
            {
                "rule": outcome.rule.text,
                "name": outcome.rule.name,
                "line": outcome.rule.line,
                "confidence": outcome.rule.confidence,
                "data": outcome.data,
                "status": outcome.status,
                "value": outcome.value,
                "baseline": outcome.baseline,
                "gain": outcome.gain,
                "low": outcome.low,
                "high": outcome.high,
                "threshold": outcome.threshold,
                "about": outcome.about,
                "images": outcome.n,
                "of": outcome.of,
                "words": outcome.words,
            }
            for outcome in checked.outcomes
        ],
    }
    if checked.rows:
        found["looked_at"] = {
            "data": checked.data,
            "fingerprint": checked.data_fingerprint,
            "seed": checked.seed,
            "blocks": list(checked.blocks),
            "images_by_measure": checked.looked,
            "rows": list(checked.rows),
        }
    return found

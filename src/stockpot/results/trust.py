"""What audits say of the models of other results: a number without one says that it has none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stockpot.results.schema import CellResult, Finding, Verdict

UNAUDITED = "unaudited: `stockpot audit` tells whether attacks on this model can be believed"
"""The note of a result under attack; where an audit lies beside it, its verdict stands instead."""

_ORDER: tuple[Verdict, ...] = ("cleared", "suspicious", "convicted")


UNRANKED = "not to be ranked with others"
"""How a note ends that says why a number of one model cannot be set beside those of others."""


def is_ranked(cell: CellResult) -> bool:
    """Whether its numbers may be the best of several."""
    return not any(UNRANKED in note for note in cell.notes)


def worst_of(findings: Iterable[Finding]) -> Verdict:
    """The verdict on a model; nobody is cleared by nothing."""
    return max((finding.verdict for finding in findings), key=_ORDER.index, default="suspicious")


def audited_notes(cell: CellResult, beside: Sequence[CellResult]) -> list[str]:
    """The notes of a result, with the verdicts of the audits of the same model beside it."""
    if UNAUDITED not in cell.notes:
        return cell.notes
    verdicts = [_told(other) for other in beside if _is_audit_of(other, cell)]
    others = [note for note in cell.notes if note != UNAUDITED]
    return [*others, *(verdicts or [UNAUDITED])]


def _is_audit_of(other: CellResult, cell: CellResult) -> bool:
    return bool(other.findings) and _identity(other) == _identity(cell)


def _identity(cell: CellResult) -> tuple[object, ...]:
    """By content, and by what was put around it: two models may share their weights."""
    key, model = cell.key, cell.model
    return (key.model, key.model_fingerprint, key.model_options, model.source, model.architecture)


def _told(audit: CellResult) -> str:
    against = [finding.name for finding in audit.findings if finding.verdict != "cleared"]
    why = f" ({', '.join(against)})" if against else ""
    return f"audited: {worst_of(audit.findings)}{why}"

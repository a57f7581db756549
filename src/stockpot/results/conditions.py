"""What the records of a result are about: clean images, a corruption, an attack, another set.

Results name them in one word (`fog:3`, `robust:linf:8/255`, `outside:sketches`); this is the one
place that takes the words apart.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from stockpot.results.schema import CellResult

Kind = Literal["clean", "corruption", "attack", "shift", "dynamic", "fact"]


class Condition(NamedTuple):
    """Under what images were shown; what does not apply is None."""

    kind: Kind
    corruption: str | None = None
    severity: float | None = None
    attack: str | None = None
    norm: str | None = None
    eps: str | None = None
    set: str | None = None

    @property
    def is_answer(self) -> bool:
        """Whether the record says that the answer was right, and not another fact of the image."""
        return self.kind != "fact"

    @property
    def title(self) -> str:
        """In the words of a page."""
        if self.kind == "corruption":
            return f"{str(self.corruption).replace('_', ' ')} {self.severity:g}"
        if self.kind == "attack":
            ball = " ".join(filter(None, (self.norm, self.eps)))
            return f"{self.attack} {ball}".strip()
        if self.kind == "shift":
            return str(self.set)
        return {"clean": "clean", "dynamic": "dynamic search"}.get(self.kind, self.kind)


_ANSWERS = {"correct", "withstood", "audited", "predicted", "union"}
"""Records that say whether an answer was right; others in one word are facts of the image."""


def condition_of(result: CellResult, record: str) -> Condition:
    """What a record of a result is about."""
    measure, params = result.key.measure, result.key.params
    first, _, rest = record.partition(":")
    if measure in ("corruption", "stream") and rest:
        name, _, severity = record.rpartition(":")
        return Condition("corruption", corruption=name, severity=float(severity))
    if first == "robust":
        norm, _, eps = rest.partition(":")
        return Condition("attack", attack=_attack(result), norm=norm, eps=eps)
    if record == "union":
        return Condition("attack", attack=f"{_attack(result)}, all threats")
    if record == "audited":
        norm, eps = params.get("norm", "linf"), params.get("eps", "8/255")
        return Condition("attack", attack="audit", norm=str(norm), eps=str(eps))
    if first == "outside":
        return Condition("shift", set=rest)
    if first == "transfer":
        if params.get("search") == "dynamic":
            return Condition("attack", attack=f"found on {rest}")
        norm, eps = params.get("norm", "linf"), params.get("eps", "8/255")
        return Condition("attack", attack=f"found on {rest}", norm=str(norm), eps=str(eps))
    if record == "withstood" or (measure == "published" and record == "correct"):
        return Condition("dynamic")
    if record in _ANSWERS:
        return Condition("clean")
    return Condition("fact")


def _attack(result: CellResult) -> str:
    params = result.key.params
    return str(params.get("method") or params.get("protocol") or "attack")

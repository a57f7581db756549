"""One requirement, as it is written: what it asks of which score, and how sure one must be.

corruption.mean_accuracy >= 0.45
adversarial.union: not worse than baseline by 1 point at 95 %
clean: no class loses more than 5 points
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from stockpot.errors import BadParameterError, did_you_mean

Kind = Literal["at_least", "at_most", "not_worse", "better", "each_class", "each_condition"]
MAIN = {"corruption": "mean_corruption_accuracy", "adversarial": "union_accuracy"}
"""The score that is meant where only the measure is named; elsewhere it is the accuracy."""

FORMS = (
    "SCORE >= NUMBER",
    "SCORE <= NUMBER",
    "SCORE: not worse than baseline [by N points]",
    "SCORE: better than baseline [by N points]",
    "SCORE: no class loses more than N points",
    "SCORE: no condition loses more than N points",
)
"""Each may end in `at C %`."""


@dataclass(frozen=True)
class Target:
    """A score: its measure, its metric, and under which condition."""

    measure: str
    metric: str
    where: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        about = ",".join(f"{key}={value}" for key, value in self.where.items())
        return f"{self.measure}.{self.metric}" + (f"[{about}]" if about else "")


@dataclass(frozen=True)
class Rule:
    """A requirement."""

    text: str
    """As it is written."""
    target: Target
    kind: Kind
    amount: float
    """The bound of a score, or how much may be lost (or must be gained) against the baseline."""
    in_points: bool
    """Whether the amount is a share of images, in hundredths; else it is in the score's unit."""
    confidence: float
    data: str = ""
    """The one dataset that is meant, where there are several."""
    name: str = ""
    line: int = 0

    @property
    def relative(self) -> bool:
        """Whether it compares with a baseline."""
        return self.kind not in ("at_least", "at_most")

    @property
    def alpha(self) -> float:
        """How often either decision may be wrong."""
        return 1 - self.confidence

    def __str__(self) -> str:
        return self.name or self.text

    def fits_shares(self) -> None:
        """Complain about an amount that a share of images cannot have: 45 for 45 %."""
        if not self.in_points and (self.amount > 1 or (self.relative and self.amount == 1)):
            unit = f"{self.amount:g} points" if self.relative else f"{self.amount:g} %"
            raise BadParameterError(
                f"{self.target}: expected a share of images, got {self.amount:g}; "
                f"write {unit} or {self.amount / 100:g}."
            )


_NUMBER = r"(?P<amount>\d*\.?\d+)"
_POINTS = _NUMBER + r"(?P<points>\s*(?:%|points?|pp))?"
_SCORE = re.compile(
    r"(?P<measure>[A-Za-z][\w-]*)(?:\.(?P<metric>[\w./+-]+))?(?:\[(?P<where>[^\]]*)\])?"
)
_SURE = re.compile(r"\s+at\s+(?P<sure>\d+(?:\.\d+)?)\s*%\s*$")
_SHAPES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("at_least", re.compile(rf">=\s*{_POINTS}")),
    ("at_most", re.compile(rf"<=\s*{_POINTS}")),
    ("not_worse", re.compile(rf"not\s+worse\s+than\s+(?:the\s+)?baseline(?:\s+by\s+{_POINTS})?")),
    ("better", re.compile(rf"better\s+than\s+(?:the\s+)?baseline(?:\s+by\s+{_POINTS})?")),
    ("each_class", re.compile(rf"no\s+class\s+loses\s+more\s+than\s+{_POINTS}")),
    ("each_condition", re.compile(rf"no\s+condition\s+loses\s+more\s+than\s+{_POINTS}")),
)


def parse_rule(text: str, measures: Sequence[str], confidence: float = 0.95) -> Rule:
    """A requirement from its text.

    Args:
        text: as in `FORMS`.
        measures: the measures there are.
        confidence: where the text does not say it.
    """
    plain = " ".join(text.split())
    start = _SCORE.match(plain)
    if start is None:
        raise BadParameterError(
            f"expected a score such as corruption.mean_accuracy, got {plain!r}."
        )
    target = _target(start, measures)
    rest = plain[start.end() :].lstrip(" :")
    sure = confidence
    if said := _SURE.search(f" {rest}"):
        sure, rest = float(said["sure"]) / 100, f" {rest}"[: said.start()].strip()
    if not 0.5 < sure < 1:
        raise BadParameterError(
            f"expected more than 50 % and less than 100 %, got {100 * sure:g} %."
        )
    for kind, shape in _SHAPES:
        if found := shape.fullmatch(rest):
            number, unit = found["amount"], (found["points"] or "").strip()
            amount = float(number) / (100 if unit else 1) if number else 0.0
            if kind in ("each_class", "each_condition") and not unit:
                raise BadParameterError(f"write {number} points or {number} %, got {rest!r}.")
            return Rule(plain, target, kind, amount, bool(unit or not number), sure)
    raise BadParameterError(
        f"{_complaint(rest)} Forms: {'; '.join(FORMS)}; each may end in at C %."
    )


def _complaint(rest: str) -> str:
    if not rest:
        return "a score alone asks nothing."
    if re.match(r"[<>](?!=)", rest):
        return f"write {rest[0]}= instead of {rest[0]}."
    return f"expected what the score must do, got {rest!r}."


def _target(found: re.Match[str], measures: Sequence[str]) -> Target:
    measure, metric = found["measure"], found["metric"] or ""
    if measure not in measures:
        near = did_you_mean(measure, measures)
        raise BadParameterError(f"no measure named {measure!r}.{near} `stockpot list measures`.")
    where = {}
    for pair in filter(None, (found["where"] or "").split(",")):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key or not value:
            raise BadParameterError(f"[{found['where']}]: expected KEY=VALUE by comma.")
        where[key] = value
    return Target(measure, metric or MAIN.get(measure, "accuracy"), where)

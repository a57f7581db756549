"""A rule while images come in: what is decided, when, and with which bounds.

Half of the allowed error is for looks after every block (`betting.py`), which may be many. The
other half is for one last look when there are no images left: all are there then, and the bounds of
`bounds.py`, which hold for one look, are narrower. Either kind of decision is wrong with half the
chance, so both together are wrong with the chance that the rule states.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stockpot.gate.betting import Bets
from stockpot.gate.bounds import difference_bounds, share_bounds
from stockpot.gate.evidence import Values
from stockpot.gate.outcome import Outcome, Status, status
from stockpot.gate.rule import Rule

Groups = NDArray[np.int64] | None


class Part:
    """What images have said so far about a score, or about one class or condition of it."""

    def __init__(self, relative: bool, largest_group: int) -> None:
        self._relative = relative
        self.bets = Bets(-1.0 if relative else 0.0, 1.0, largest_group)
        self._mine: list[Values] = []
        self._values: list[Values] = []
        self._groups: list[NDArray[np.int64]] = []

    def add(self, mine: Values, values: Values, groups: Groups) -> None:
        """Some more images: what the model has of them, and what is held against the limit."""
        self.bets.add(values, groups)
        self._mine.append(mine)
        self._values.append(values)
        if groups is not None:
            # Each block counts its groups from zero.
            known = sum(len(part) for part in self._groups)
            self._groups.append(groups + known)

    @property
    def mine(self) -> float:
        """The model's own score."""
        return float(np.concatenate(self._mine).mean())

    @property
    def n(self) -> int:
        """Images."""
        return self.bets.n

    def bounds(self, alpha: float, *, last: bool) -> tuple[float, float]:
        """One-sided bounds of a chance alpha each, after many looks or after the last one."""
        low, high = self.bets.bounds(alpha / 2)
        if last:
            groups = np.concatenate(self._groups) if self._groups else None
            bounds = difference_bounds if self._relative else share_bounds
            once = bounds(np.concatenate(self._values), alpha / 2, groups)
            low, high = max(low, once[0]), min(high, once[1])
        return low, high


@dataclass
class Tracked:
    """A rule while images come in."""

    rule: Rule
    total: int
    largest_group: int = 1
    names: tuple[str, ...] = ("",)
    """Classes or conditions that it is about, each by itself; or one, without a name."""
    parts: dict[str, Part] = field(default_factory=dict)
    status: Status = "not decided"
    higher_is_better: bool = True
    n: int = 0
    last: bool = False

    def add(self, name: str, mine: Values, theirs: Values | None, groups: Groups) -> None:
        """What some images say about a part."""
        if name not in self.parts:
            self.parts[name] = Part(self.rule.relative, self.largest_group)
        sign = 1 if self.higher_is_better else -1
        values = mine if theirs is None else sign * (mine - theirs)
        self.parts[name].add(mine, values, groups)

    @property
    def threshold(self) -> float:
        """What the mean is held against."""
        amount = self.rule.amount
        return amount if self.rule.kind in ("at_least", "at_most", "better") else -amount

    def look(self, *, last: bool = False) -> Status:
        """What is decided now; a decision stays.

        Args:
            last: whether there are no images left.
        """
        if self.status != "not decided" or not self.parts:
            return self.status
        # Capitals are quickly compared with what they must have reached; bounds take longer.
        wanted, m = -np.log(self.rule.alpha / 2), self.threshold
        above = {name: part.bets.above(m) for name, part in self.parts.items()}
        below = {name: part.bets.below(m) for name, part in self.parts.items()}
        if self.rule.kind == "at_most":
            above, below = below, above
        whole = len(self.parts) == len(self.names)
        if max(below.values()) >= wanted + np.log(len(self.names)):
            self.status = "fails"
        elif whole and min(above.values()) >= wanted:
            self.status = "holds"
        elif last:
            self.last = True
            self.status = self._at_last()
        return self.status

    def _at_last(self) -> Status:
        found = [self._said(name, len(self.names)) for name in self.parts]
        if "fails" in found:
            return "fails"
        each = [self._said(name, 1) == "holds" for name in self.parts]
        return "holds" if all(each) and len(self.parts) == len(self.names) else "not decided"

    def _said(self, name: str, many: int) -> Status:
        low, high = self.parts[name].bounds(self.rule.alpha / many, last=True)
        if self.rule.kind == "at_most":
            return status(-high, -low, -self.threshold)
        return status(low, high, self.threshold)

    def outcome(self, data: str) -> Outcome:
        """As an outcome, with the bounds that it was decided by."""
        rule, name = self.rule, self._telling()
        part = self.parts[name]
        # A claim about one of many is as sure as their number asks for.
        many = len(self.names) if self.status == "fails" else 1
        low, high = part.bounds(rule.alpha / many, last=self.last)
        what = {"each_class": "class ", "each_condition": "condition "}.get(rule.kind, "")
        gain = part.bets.mean if rule.relative else None
        sign = 1 if self.higher_is_better else -1
        theirs = None if gain is None else part.mine - sign * gain
        n, of = (part.n, part.n) if rule.kind == "each_class" else (self.n, self.total)
        return Outcome(rule, self.status, data, part.mine, theirs, low, high, gain,
                       self.threshold, n=n, of=of, about=f"{what}{name}")  # fmt: skip

    def _telling(self) -> str:
        """The part that decides: the one with most against it, else the one with least for it."""
        many = len(self.names) if self.status == "fails" else 1
        alpha, last = self.rule.alpha / many, self.last
        ends = {name: part.bounds(alpha, last=last) for name, part in self.parts.items()}
        return min(ends, key=lambda name: ends[name][1 if self.status == "fails" else 0])

"""What a rule came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stockpot.gate.rule import Rule
from stockpot.gate.rules_file import Undecided

Status = Literal["holds", "fails", "not decided"]


@dataclass(frozen=True)
class Outcome:
    """One rule on one dataset."""

    rule: Rule
    status: Status
    data: str = ""
    value: float | None = None
    """Of the model."""
    baseline: float | None = None
    low: float | None = None
    """One-sided bounds of the value, or of the gain over the baseline where a rule compares; more
    of a gain is better whatever the score."""
    high: float | None = None
    gain: float | None = None
    threshold: float | None = None
    """What value or gain was held against."""
    n: int = 0
    """Images that it was decided on."""
    of: int = 0
    """Images there are."""
    about: str = ""
    """The class or condition that decides."""
    why: str = ""
    """Where nothing could be computed."""
    in_points: bool = True

    @property
    def words(self) -> str:
        """One line of what was seen."""
        if self.why:
            return self.why
        images = f"{self.n:,} images" if self.n == self.of else f"{self.n:,} of {self.of:,} images"
        # It begins with a word: tables set what begins with a figure as numbers.
        place = f"in {self.about}, on {images}" if self.about else f"on {images}"
        if self.gain is None:
            interval = f"[{self._number(self.low)}, {self._number(self.high)}]"
            return f"{place}: {self._number(self.value)} {interval}{self._wanted}"
        interval = f"[{self._signed(self.low)}, {self._signed(self.high)}]"
        both = f"{self._number(self.value)} against {self._number(self.baseline)}"
        unit = " points" if self.in_points else ""
        return f"{place}: {both}, {self._signed(self.gain)}{unit} {interval}{self._wanted}"

    @property
    def _wanted(self) -> str:
        """How many images would decide it, were the model as it seems."""
        seen, limit = self.value if self.gain is None else self.gain, self.threshold
        if self.status != "not decided" or seen is None or limit is None:
            return ""
        if self.low is None or self.high is None:
            return ""
        gap = abs(seen - limit)
        half = seen - self.low if seen > limit else self.high - seen
        if gap <= half / 30:
            return "; it lies so near the limit that no number of images in reach decides it"
        # Bounds narrow with the square root of the images; a little slower where one looks often.
        wanted = _rounded(self.n * (half / gap) ** 2)
        return f"; about {wanted:,} would decide it if it is as it seems"

    def _number(self, value: float | None) -> str:
        if value is None:
            return "?"
        return f"{100 * value:.1f} %" if self.in_points else f"{value:.4g}"

    def _signed(self, value: float | None) -> str:
        if value is None:
            return "?"
        return f"{100 * value:+.1f}" if self.in_points else f"{value:+.4g}"


def _rounded(count: float) -> int:
    step = 10 ** max(0, len(str(int(count))) - 2)
    return int(-(-count // step) * step)


def status(low: float, high: float, threshold: float) -> Status:
    """Of the requirement to lie at or above a threshold."""
    if low >= threshold:
        return "holds"
    return "fails" if high < threshold else "not decided"


@dataclass(frozen=True)
class Checked:
    """What all rules came to."""

    name: str
    model: str
    baseline: str
    outcomes: tuple[Outcome, ...]
    undecided: Undecided
    blocks: tuple[int, ...] = ()
    """Images of each block, where a model was measured until the rules were decided."""
    rows: tuple[int, ...] = ()
    """Which images these were, in the order they were looked at."""
    looked: dict[str, int] = field(default_factory=dict)
    """Images by measure."""
    data: str = ""
    data_fingerprint: str = ""
    seed: int = 0

    def counted(self, wanted: Status) -> int:
        """How many rules came to this."""
        return sum(outcome.status == wanted for outcome in self.outcomes)

    def stands(self, outcome: Outcome) -> bool:
        """Whether an outcome lets the model pass."""
        if outcome.status == "not decided":
            return self.undecided == "pass"
        return outcome.status == "holds"

    @property
    def passed(self) -> bool:
        """Whether all of them let the model pass."""
        return all(self.stands(outcome) for outcome in self.outcomes)

    @property
    def summary(self) -> str:
        """One line."""
        words: dict[Status, str] = {
            "holds": "held",
            "fails": "failed",
            "not decided": "not decided",
        }
        parts = [f"{self.counted(one)} {told}" for one, told in words.items() if self.counted(one)]
        return f"{'passed' if self.passed else 'not passed'}: {', '.join(parts)}"

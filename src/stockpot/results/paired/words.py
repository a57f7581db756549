"""A comparison in words, and as a comment for a pull request."""

from __future__ import annotations

from collections.abc import Iterable

from stockpot.results.compare import Compared, Comparison
from stockpot.results.paired.changes import Change, Changes
from stockpot.results.tables import escaped_markdown, markdown

WORDS = {"held": "better", "did not hold": "worse", "not told apart": "not told apart"}


def word(row: Compared) -> str:
    """The verdict on the first of two: better, worse, or not told apart."""
    if not row.margin:
        return WORDS[row.verdict]
    if row.margin < 0 and row.verdict != "not told apart":
        return "not worse" if row.verdict == "held" else "worse"
    return row.verdict


def claim(found: Comparison) -> str:
    """What the verdicts are about."""
    margin = found.rows[0].margin
    if margin < 0:
        return f"A is not worse than B by {-100 * margin:g} points"
    return "A is better than B" + (f" by more than {100 * margin:g} points" if margin else "")


def summary(found: Comparison) -> str:
    """One sentence for people in a hurry."""
    parts = []
    for told in dict.fromkeys(map(word, found.rows)):
        names = [place(row) for row in found.rows if word(row) == told]
        parts.append(f"{told}: {', '.join(dict.fromkeys(names))}")
    return "; ".join(parts)


def place(row: Compared) -> str:
    """What a row is about."""
    return f"{_score(row.measure, row.metric)} on {row.data}"


def _score(measure: str, metric: str) -> str:
    return metric if metric.startswith(measure) else f"{measure} {metric}"


def correction(found: Comparison) -> str:
    """What verdicts and intervals claim."""
    sure = f"{100 * found.confidence:g} %"
    count = len(found.rows)
    many = f"all {count} rows together (Holm's correction)" if count > 1 else "the one row"
    return (
        f"Intervals are of {sure}, each for itself, over images or groups of them; verdicts are "
        f"sure by {sure} for {many}."
    )


def points(value: float) -> str:
    """A difference of shares, in points."""
    return f"{100 * value:+.1f}"


def interval(row: Compared | Change) -> str:
    """A difference with its interval, in points."""
    return f"{points(row.difference)} [{points(row.low)}, {points(row.high)}]"


def p_text(value: float) -> str:
    """A p value as it is written."""
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def told_apart(change: Change, confidence: float) -> bool:
    """Whether a change counts among all that it was picked from."""
    return change.p_adjusted <= 1 - confidence


def heading(part: Changes) -> str:
    """What changes are about."""
    by = "classes" if part.by == "class" else "conditions"
    what = _score(part.measure, part.metric) if part.by == "class" else part.measure
    return f"{part.first} against {part.second}: {by}, {what} on {part.data}"


def as_markdown(found: Comparison, *, most: int = 5) -> str:
    """A comment for a pull request."""
    pairs = dict.fromkeys((row.first, row.second) for row in found.rows)
    title = ", ".join(f"{a} against {b}" for a, b in pairs)
    rows = [
        [
            *map(escaped_markdown, (*([row.first, row.second] if len(pairs) > 1 else []), row.data,
                                    row.measure, row.metric)),
            f"{100 * row.a:.1f} %", f"{100 * row.b:.1f} %", interval(row),
            p_text(row.p_adjusted), f"**{word(row)}**" if row.verdict != "not told apart"
            else word(row),
        ]
        for row in found.rows
    ]  # fmt: skip
    columns = [*(["A", "B"] if len(pairs) > 1 else []), "data", "measure", "score", "A", "B",
               "A - B, points", "p (Holm)", "A is"]  # fmt: skip
    lines = [f"### {escaped_markdown(title)}", "", escaped_markdown(summary(found)), "",
             markdown(columns, rows), ""]  # fmt: skip
    for part in found.changes:
        told = [change for change in part.changes if told_apart(change, found.confidence)]
        if told:
            lines += ["<details><summary>" + escaped_markdown(heading(part)).replace("\\", "")
                      + f": {len(told)} of {part.of} changed</summary>", "",
                      markdown([part.by, "A", "B", "A - B, points", "p (Holm)"],
                               _change_rows(told[:most])), "", "</details>", ""]  # fmt: skip
    lines.append(correction(found))
    lines += [f"- left out: {escaped_markdown(line)}" for line in found.left_out]
    return "\n".join(lines) + "\n"


def _change_rows(changes: Iterable[Change]) -> list[list[str]]:
    return [
        [escaped_markdown(change.name), f"{100 * change.a:.1f} %", f"{100 * change.b:.1f} %",
         interval(change), p_text(change.p_adjusted)]
        for change in changes
    ]  # fmt: skip

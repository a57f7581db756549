"""How far a command is, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stockpot.results.schema import CellResult


def cell_row(result: CellResult) -> tuple[str, ...]:
    """A finished cell: model, measure, data, its first score and what it took."""
    from stockpot.results.headline import headline_columns, headline_rows

    # A measure that begins with the clean accuracy is about something else.
    found = headline_columns([result])
    columns = [each for each in found if not each.title.startswith("clean")][:1] or found[:1]
    shown = next(iter(headline_rows([result], columns).values())) if columns else []
    score = f"{columns[0].title} {shown[0].text}" if shown else "no score"
    key = result.key
    return key.model, key.measure, key.data, score, duration(result.cost.wall_seconds)


def progress_line(done: int, total: int, passed: int, seconds: float) -> str:
    """`320 of 1,000 (32 %), 64/s, 11 s left`, from what passed in so many seconds."""
    line = f"{done:,} of {total:,} ({100 * done // max(total, 1)} %)"
    if passed <= 0 or seconds <= 0:
        return line
    rate = passed / seconds
    return f"{line}, {rate_text(rate)}, {duration(max(total - done, 0) / rate)} left"


def duration(seconds: float) -> str:
    """Seconds as people write them: `0.8 s`, `42 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def rate_text(speed: float) -> str:
    """`64/s`, `0.5/s`."""
    return f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s"


def subject(what: str) -> str:
    """Who is under way; what stands after a colon changes all the time, such as the loss."""
    return what.partition(":")[0]

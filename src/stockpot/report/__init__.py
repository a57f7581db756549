"""Pages made from result files alone."""

from __future__ import annotations

from stockpot.verbs import speak

speak(__name__, "stockpot.report.page:report")

__all__: list[str] = []

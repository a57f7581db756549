"""Which parts of a picture a decision rests on: relevance maps, for masks and for people."""

from __future__ import annotations

from stockpot.verbs import speak

speak(__name__, "stockpot.explain.run:explain")

__all__: list[str] = []

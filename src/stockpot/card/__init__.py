"""The card of a model: one preset of measures within a time budget, and a verdict in words."""

from __future__ import annotations

from stockpot.verbs import speak

speak(__name__, "stockpot.card.make:card")

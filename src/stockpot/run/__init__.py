"""A recipe followed: what it asks for, which models are there already, and what is measured."""

from __future__ import annotations

from stockpot.verbs import speak

speak(__name__, "stockpot.run.follow:run")

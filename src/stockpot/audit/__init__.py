"""Whether an attack's answer about a model can be believed: every check of that in one verdict."""

from __future__ import annotations

from stockpot.verbs import speak

speak(__name__, "stockpot.audit.run:audit")

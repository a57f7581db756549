"""Searching a fusion's knobs, or the method itself, on validation images and any objectives."""

from stockpot.verbs import speak

speak(__name__, "stockpot.tune.run:tune")

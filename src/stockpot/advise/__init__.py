"""Looking at a pool of checkpoints before anything is fused, and saying what will work."""

from stockpot.verbs import speak

speak(__name__, "stockpot.advise.run:advise")

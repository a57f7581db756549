"""The adaptation study: methods on streams, as recipes/adaptation.yaml has them.

    stockpot data get cifar10
    python studies/adaptation/study.py runs/adaptation
    python studies/adaptation/tables.py runs/adaptation

What is finished lies in the run folder; stopped and started again, it goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import stockpot

METHODS = ("source", "bn", "tent", "sar", "eata", "cotta", "roid")
STREAMS = {
    ("single", "shuffled", 50): "single",
    ("continual", "shuffled", 50): "continual",
    ("mixed", "shuffled", 50): "mixed",
    ("continual", "dirichlet", 50): "continual, runs of labels",
    ("continual", "shuffled", 4): "continual, batches of 4",
}
"""Stream, order and batch -> how tables call it."""


if __name__ == "__main__":
    stockpot.run("recipes/adaptation.yaml", out=Path(sys.argv[1]))

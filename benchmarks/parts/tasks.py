"""The tasks of the embedded CLIP pool, as far as their pictures are on this machine."""

from __future__ import annotations

import stockpot
from stockpot.datasets.tasks.sets import expanded


def tasks_here() -> list[str]:
    """Those of `zoo5` that need not be fetched first; a line tells of the others."""
    here, missing = [], []
    for task in expanded("zoo5"):
        try:
            stockpot.load_dataset(task, limit=1)
        except stockpot.UserError:
            missing.append(task)
        else:
            here.append(task)
    if missing:
        print(f"not here: {', '.join(missing)} (stockpot data get {' '.join(missing)})", flush=True)
    return here

"""The figure of the pools with headroom, from the answers beside this file.

python studies/clip_headroom/figures.py
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from answers import Answers
from tables import HERE, PUBLISHED, seeds

from stockpot.charts import Mark, save, whiskers
from stockpot.results.contrast import Contrasts


def marks(found: Sequence[Answers]) -> list[Mark]:
    """Mean accuracy over tasks; 95 % intervals draw images and seeds anew together."""
    names = ("base", *PUBLISHED, "joint", "experts")
    contrasts = Contrasts(
        {
            name: {
                str(seed): {task: flags.astype(np.float32) for task, flags in of[name].items()}
                for seed, of in enumerate(found)
                if name in of
            }
            for name in names
        }
    )
    drawn = []
    for name in names:
        mean = contrasts.of({name: 1.0}, list(found[0][name]))
        assert mean is not None
        text = f"{100 * mean.value:.1f} [{100 * mean.low:.1f}, {100 * mean.high:.1f}]"
        drawn.append(Mark(name, mean.value, mean.low, mean.high, text))
    return sorted(drawn, key=lambda mark: mark.value)


if __name__ == "__main__":
    picture = whiskers(marks(seeds(HERE / "answers")), title="Mean accuracy over seven tasks (%)")
    save(picture, HERE / "merges.svg")

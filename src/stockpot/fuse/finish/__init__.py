"""What may follow a fusion: steps that work on the merged change, whatever method made it.

`then: subspace_boosting` in a recipe, `then=` in Python and `--then` on the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stockpot.registry import Kind, Tags

if TYPE_CHECKING:
    from stockpot.fuse.finish.finisher import Finisher, SurveyFinisher

finishers = Kind[Callable[..., "Finisher | SurveyFinisher"]](
    "finishers", noun="finishing step", package="stockpot.fuse.finish"
).tagged(Tags)

__all__ = ["finishers"]

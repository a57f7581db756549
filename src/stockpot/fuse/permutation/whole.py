"""Members with units of their own: whole networks, not changes of a base."""

from __future__ import annotations

from stockpot.checkpoints.locate import ON_A_BASE, Location
from stockpot.errors import BadParameterError
from stockpot.fuse.request import Request


def check_whole(request: Request) -> None:
    """Raise where a member is kept as a change of its base."""
    for label, spec in request.members.items():
        if isinstance(spec, Location) and spec.format in ON_A_BASE:
            raise BadParameterError(
                f"{request.method}: fuses whole networks; {label} is a change of its base (LoRA, "
                "or kept small), and has no units of its own.",
                hint="Members of one base need no matching: use average, ties or knots.",
            )

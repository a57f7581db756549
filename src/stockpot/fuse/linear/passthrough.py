"""Passthrough: layers of one or more models, one after the other (mergekit)."""

from __future__ import annotations

from stockpot.fuse import fusers
from stockpot.fuse.fuser import TensorFuser
from stockpot.fuse.stacking import Span


@fusers.register("passthrough", paper="https://github.com/arcee-ai/mergekit", stacks=True)
def passthrough(*, layers: list[Span] | None = None, scale: float = 1.0) -> TensorFuser:
    """Put layers of models one upon the other: a deeper or a shallower model.

    What lies before the layers comes from the first member, what lies behind them from the last;
    the config gets the new number of layers.

    Args:
        layers: for each member the first and the last of its layers, counted from 0, such as
            0-5,3-11; several of one member repeat or leave out layers; all by default.
        scale: multiplies the weights; `{"*o_proj*": 0}` silences a part.
    """
    return TensorFuser(lambda slab: slab.member(0) * scale, elementwise=True)

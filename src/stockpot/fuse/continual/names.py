"""Which tensors are merged as matrices."""

from __future__ import annotations

from fnmatch import fnmatchcase

from stockpot.checkpoints.layouts import plain_name
from stockpot.fuse.fuser import Slab

EMBEDDINGS = "*embed*"
"""Tables of vectors: matrices in shape, but nothing is multiplied by them."""


def is_matrix(slab: Slab, skip: str) -> bool:
    """Whether a tensor is a matrix whose name matches none of the globs."""
    globs = [glob.strip() for glob in skip.split(",") if glob.strip()]
    named = any(
        fnmatchcase(name, glob) for glob in globs for name in (slab.name, plain_name(slab.name))
    )
    return len(slab.info.shape) == 2 and not named

"""Which tensors are merged as matrices."""

from __future__ import annotations

from fnmatch import fnmatchcase

from stockpot.checkpoints.layouts import plain_name

EMBEDDINGS = "*embed*"
"""Tables of vectors: matrices in shape, but nothing is multiplied by them."""


def is_matrix(name: str, shape: tuple[int, ...], skip: str) -> bool:
    """Whether a tensor is a matrix whose name matches none of the globs."""
    globs = [glob.strip() for glob in skip.split(",") if glob.strip()]
    named = any(fnmatchcase(each, glob) for glob in globs for each in (name, plain_name(name)))
    return len(shape) == 2 and not named

"""Whether products of single-precision numbers may be rounded to TensorFloat-32, for a while."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def products(tf32: bool) -> Iterator[None]:
    """Convolutions and matrix products in TF32, or both in full precision; as before afterwards.

    By default torch convolves in TF32 and multiplies matrices in full precision.
    """
    if not torch.cuda.is_available():
        yield
        return
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    _allow(tf32, tf32)
    try:
        yield
    finally:
        _allow(*before)


def _allow(convolutions: bool, matrices: bool) -> None:
    with warnings.catch_warnings():
        # Newer names of these switches exist; torch.compile still reads these and refuses a mix.
        warnings.simplefilter("ignore")
        torch.backends.cudnn.allow_tf32 = convolutions
        torch.backends.cuda.matmul.allow_tf32 = matrices

"""Answers of models to images: a bit each, by part of a run and seed."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stockpot.files import write_atomic

Flags = NDArray[np.bool_]
Answers = dict[str, dict[str, Flags]]
"""By model and task (or task and corruption)."""


def write(file: Path, found: Mapping[str, Mapping[str, Flags]]) -> None:
    names = [f"{model}@{task}" for model, of in found.items() for task in of]
    flags = [of[task] for of in found.values() for task in of]
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        names=np.array(names),
        counts=np.array([len(each) for each in flags], np.int32),
        bits=np.packbits(np.concatenate(flags)),
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, stream.getvalue())


def read(file: Path) -> Answers:
    with np.load(file) as kept:
        names, counts = kept["names"], kept["counts"]
        bits = np.unpackbits(kept["bits"], count=int(counts.sum())).astype(bool)
    found: Answers = {}
    for name, flags in zip(names, np.split(bits, np.cumsum(counts)[:-1]), strict=True):
        model, _, task = str(name).partition("@")
        found.setdefault(model, {})[task] = flags
    return found

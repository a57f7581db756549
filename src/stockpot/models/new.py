"""New models: freshly initialised, for the classes of a dataset, written as a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from stockpot.checkpoints.folder import staged_folder
from stockpot.checkpoints.model_card import write_card
from stockpot.checkpoints.record import Input, Record, plain
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.words.conventions import words_of
from stockpot.models.dual_encoder import new_dual_encoder
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess
from stockpot.models.prompts import Prompts
from stockpot.results.provenance import provenance
from stockpot.types import ImageSize

DUAL_ENCODER = "clip"
"""The architecture with two towers, whose vocabulary comes from the data's captions."""


def new_record(
    architecture: str, data: Dataset, *, size: int = 64, seed: int = 0, **config: Any
) -> Record:
    """The record that `new_model` with these arguments would write; nothing is made."""
    words = _captions(data) if architecture == DUAL_ENCODER else data.classes
    content = hashlib.sha256(repr(words).encode()).hexdigest()
    # Of the data only the names of the classes are read, or their captions.
    return Record(
        verb="new",
        method=architecture,
        parameters=plain({"size": size, **config}),
        seed=seed,
        inputs=[Input(role="classes", name=str(data), fingerprint=content)],
    )


def new_model(
    architecture: str, data: Dataset, out: Path, *, size: int = 64, seed: int = 0, **config: Any
) -> int:
    """Write a new model and return the number of its parameters.

    Args:
        architecture: as transformers names it; `clip` makes a dual encoder.
        data: its classes, or the captions of a dual encoder.
        out: the folder to write.
        size: the side of the pictures that it will see.
        seed: of the weights.
        **config: further settings of the architecture.
    """
    record = new_record(architecture, data, size=size, seed=seed, **config)
    side = ImageSize(size, size)
    preprocess = Preprocess(side, side, IMAGENET_MEAN, IMAGENET_STD)
    with staged_folder(out) as folder:
        if architecture == DUAL_ENCODER:
            captions = _captions(data)
            count = new_dual_encoder(
                folder, prompts=captions, preprocess=preprocess, seed=seed, **config
            )
        else:
            model = new_huggingface(
                architecture, classes=data.classes, preprocess=preprocess, seed=seed, **config
            )
            model.save(folder)
            count = model.parameter_count
        done = record.model_copy(
            update={
                "details": {"parameters": count},
                "versions": provenance().model_dump(),
            }
        )
        write_card(folder, done, summary="Freshly initialised; it has learned nothing yet.")
    return count


def _captions(data: Dataset) -> Prompts:
    return data.prompts or words_of(data).prompts

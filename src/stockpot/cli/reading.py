"""Files are read while a command still imports what it needs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def read_ahead(models: Sequence[str], data: str, *, again: bool, decode: bool) -> None:
    """Hash models, start the processes that decode, and have them look at a folder of pictures.

    Args:
        models: as they are given, SOURCE or NAME=SOURCE; only folders are read ahead.
        data: what `--data` says; only a folder is read ahead.
        again: whether every picture is to be read again when its turn comes.
        decode: whether all pictures are wanted as the first model has them, and first of all: they
            are decoded ahead too then, where its folder says how.
    """
    # Each begins before the next is imported: the processes have imports of their own to do.
    from stockpot.datasets.stream import processes

    pictures = Path(data).expanduser()
    started = pictures.is_dir() and processes.start()

    from stockpot.checkpoints.hashes import hash_ahead

    places = [
        Path(text).expanduser() for model in models for text in (model, model.partition("=")[2])
    ]
    folders = [place for place in dict.fromkeys(places) if place.name and place.is_dir()]
    threading.Thread(target=hash_ahead, args=(folders,), name="sha256", daemon=True).start()
    if started and not again:
        from stockpot.datasets.stream.look_ahead import look_ahead

        look_ahead(pictures, _wanted(models[0]) if decode else None)


def _wanted(model: str) -> list[Any] | None:
    """How a model will want its pictures (`geometry.told`), where its folder says so."""
    from stockpot.datasets.stream.geometry import told
    from stockpot.models.hub_processor import local_processor

    name, sign, source = model.partition("=")
    processor = local_processor(source if sign and "/" not in name else model)
    return told(processor.geometry.fit) if processor else None

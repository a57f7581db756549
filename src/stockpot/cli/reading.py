"""Files are read while a command still imports what it needs."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def read_ahead(
    models: Sequence[str], data: str, *, again: bool, decode: bool, out: Path | None = None
) -> None:
    """Hash models, start the processes that decode, and have them look at a folder of pictures.

    Args:
        models: as they are given, SOURCE or NAME=SOURCE; only folders are read ahead.
        data: what `--data` says; only a folder is read ahead.
        again: whether every picture is to be read again when its turn comes.
        decode: whether all pictures are wanted as the first model has them, and first of all: they
            are decoded ahead too then, where its folder says how.
        out: where results go. Where some are saved already, those that are asked for may be among
            them, and nothing is decoded ahead.
    """
    # Each begins before the next is imported: the processes have imports of their own to do.
    from stockpot.datasets.stream import processes

    pictures = Path(os.path.expanduser(data))
    started = os.path.isdir(pictures) and processes.start()

    from stockpot.checkpoints.hashes import hash_ahead

    places = [
        Path(os.path.expanduser(text))
        for model in models
        for text in (model, model.partition("=")[2])
    ]
    # Unlike a Path, it says no of a name that is too long for any file.
    folders = [place for place in dict.fromkeys(places) if place.name and os.path.isdir(place)]
    threading.Thread(target=hash_ahead, args=(folders,), name="sha256", daemon=True).start()
    if started and not again:
        from stockpot.datasets.stream.look_ahead import look_ahead

        saved = out is not None and os.path.isdir(out / "results")
        look_ahead(pictures, _wanted(models[0]) if decode and not saved else None)


def _wanted(model: str) -> list[Any] | None:
    """How a model will want its pictures (`geometry.told`), where its folder says so."""
    from stockpot.datasets.stream.geometry import told
    from stockpot.models.hub_processor import local_processor

    name, sign, source = model.partition("=")
    processor = local_processor(source if sign and "/" not in name else model)
    return told(processor.geometry.fit) if processor else None

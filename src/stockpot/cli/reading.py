"""Files are read while a command still imports what it needs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path


def read_ahead(models: Sequence[str], data: str, *, again: bool) -> None:
    """Hash models, start the processes that decode, and have them look at a folder of pictures.

    Args:
        models: as they are given, SOURCE or NAME=SOURCE; only folders are read ahead.
        data: what `--data` says; only a folder is read ahead.
        again: whether every picture is to be read again when its turn comes.
    """
    from stockpot.checkpoints.hashes import hash_ahead
    from stockpot.datasets.stream import processes
    from stockpot.datasets.stream.file_check import look_ahead

    places = [
        Path(text).expanduser() for model in models for text in (model, model.partition("=")[2])
    ]
    folders = [place for place in dict.fromkeys(places) if place.name and place.is_dir()]
    threading.Thread(target=hash_ahead, args=(folders,), name="sha256", daemon=True).start()
    pictures = Path(data).expanduser()
    if pictures.is_dir() and processes.start() and not again:
        look_ahead(pictures)

"""Pictures are read while a command still imports what it needs."""

from __future__ import annotations

from pathlib import Path


def read_ahead(data: str, *, again: bool) -> None:
    """Start the processes that decode, and have them look at a folder of pictures.

    Args:
        data: what `--data` says; only a folder is read ahead.
        again: whether every file is to be read again when its turn comes.
    """
    folder = Path(data).expanduser()
    if not folder.is_dir():
        return
    from stockpot.datasets.stream import processes
    from stockpot.datasets.stream.file_check import look_ahead

    if processes.start() and not again:
        look_ahead(folder)

"""What a command begins with a folder of pictures before torch is there to make a dataset of it.

Other processes look at every picture, and where it is known how a model will want them, they go on
to decode them, in the order that the dataset will have. A thread of this one hands over: for each
request it runs Python for a tenth of a millisecond, so that who imports modules meanwhile is not
kept from it. It imports nothing itself. What turns out not to be wanted has cost time, no more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any

from stockpot.datasets.picture_folder import FilesBelow, list_ahead, split_folder
from stockpot.datasets.stream import ahead, file_check, processes
from stockpot.datasets.stream.decoded import DECODED, told_key
from stockpot.engine.cores import usable_cores
from stockpot.errors import UserError
from stockpot.stages import stage

_CHUNK = 64


def look_ahead(root: Path, words: Sequence[Any] | None = None) -> None:
    """Have all pictures below a folder read, for who will look at them in a while; nobody waits.

    Only once in a process, and where processes decode.

    Args:
        root: the folder.
        words: how they will be wanted (`geometry.told`): they are decoded so too, unless the folder
            has splits, of which nobody has said which is meant.
    """
    decoders = processes.running()
    if decoders is None or file_check.looking() or os.environ.get(file_check.CHECK_FILES):
        return
    thread = threading.Thread(
        target=_work, args=(root, words, decoders), name="look ahead", daemon=True
    )
    file_check.begin_looking(thread)


def _work(root: Path, words: Sequence[Any] | None, decoders: processes.Decoders) -> None:
    with suppress(Exception):  # of whatever kind: who asks for the pictures will hear
        files = FilesBelow(str(root), tuple(sorted(list_ahead(root)))).texts()
        memory = file_check.Memory(root)
        _look(files, memory, decoders)
        file_check.give(root, memory)
        if files and words is not None and _is_whole(root):
            _decode(files, memory, words, decoders)


def _look(files: list[str], memory: file_check.Memory, decoders: processes.Decoders) -> None:
    def look(start: int) -> None:
        chunk = files[start : start + _CHUNK]
        seen = decoders.look(chunk, [memory.state(name) for name in chunk])
        for name, (state, digest, _) in zip(chunk, seen or [], strict=False):
            memory.take(name, state, digest)

    with ThreadPoolExecutor(usable_cores(), thread_name_prefix="look ahead") as threads:
        list(threads.map(look, range(0, len(files), _CHUNK)))


def _is_whole(root: Path) -> bool:
    """Whether all that lies in a folder is one dataset."""
    try:
        return split_folder(root, None) == (root, None)
    except UserError:
        return False


def _decode(
    files: list[str],
    memory: file_check.Memory,
    words: Sequence[Any],
    decoders: processes.Decoders,
) -> None:
    known = [(name, content) for name in files if (content := memory.seen(name))]
    contents, key, fit = tuple(content for _, content in known), told_key(words), list(words)

    @stage("decode")
    def decode(start: int, stop: int) -> bool:
        try:
            found = decoders.decode([name for name, _ in known[start:stop]], [fit])
        except processes.BrokenPictureError:
            return True  # the others are wanted all the same; who goes through them will hear
        if found is None:
            return False
        (pictures,) = found
        return all(map(DECODED.keep, contents[start:stop], repeat(key), pictures))

    ahead.begin_first((contents, key), len(known), decode)

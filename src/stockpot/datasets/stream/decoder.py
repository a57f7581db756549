"""The program of decoding processes: one request after the other, until nobody asks any more.

    python -c "from stockpot.datasets.stream.decoder import main; main()" [[SOCKET, MEMORY], ...]

It imports what it needs once (not torch) and then forks into as many as there are sockets. A
request is a line of JSON, and so is the answer; pixels go through memory that both sides see.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np

from stockpot.datasets.pictures import BROKEN, open_rgb
from stockpot.datasets.stream.file_check import look_at
from stockpot.datasets.stream.geometry import made
from stockpot.engine import keep_freed_memory


def main() -> None:
    """Fork, serve, and end."""
    keep_freed_memory()  # each picture would take fresh pages, and a tenth more of the time
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks decides when it is over
    ends: list[list[int]] = json.loads(sys.argv[1])
    for mine in ends:
        if os.fork() == 0:
            for other in ends:
                if other != mine:
                    os.close(other[0])
            try:
                _serve(*mine)
            finally:
                os._exit(0)
    os._exit(0)


def _serve(number: int, memory: int) -> None:
    region = mmap.mmap(memory, 0)
    with socket.socket(fileno=number) as end, end.makefile("rwb") as stream:
        for line in stream:
            try:
                answer = _answer(json.loads(line), region)
            except Exception as problem:  # of whatever kind: who asks tries by itself
                answer = {"failed": str(problem)}
            stream.write(json.dumps(answer).encode() + b"\n")
            stream.flush()


def _answer(request: dict[str, Any], region: mmap.mmap) -> dict[str, Any]:
    if "look" in request:
        return {"seen": [look_at(Path(name), state) for name, state in request["look"]]}
    files, words = request["decode"], request["fits"]
    fits = [made(one) for one in words]
    shapes = [(len(files), 3, *one[0]) for one in words]
    rooms = blocks(region, shapes)
    for row, name in enumerate(files):
        try:
            picture = open_rgb(Path(name))
        except BROKEN as problem:
            return {"broken": [row, str(problem)]}
        for fit, room in zip(fits, rooms, strict=True):
            fitted = fit(picture)
            for plane, band in zip(room[row], fitted.getbands(), strict=True):
                plane[:] = np.frombuffer(fitted.tobytes("raw", band), np.uint8).reshape(plane.shape)
    return {}


def blocks(region: mmap.mmap, shapes: list[tuple[int, ...]]) -> list[np.ndarray[Any, Any]]:
    """Arrays of bytes that lie after each other in a piece of memory."""
    found, start = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        found.append(np.frombuffer(region, np.uint8, size, start).reshape(shape))
        start += size
    return found

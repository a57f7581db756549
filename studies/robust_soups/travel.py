"""Weights on their way between machines: packed, in pieces, as many as may come back at a time."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path

from stockpot.files import write_atomic

PIECE = 15_000_000
"""Bytes of a file that comes back at most."""
BACK, PIECES = 58_500_000, 6
"""Bytes of weights, and their files, that come back with one call: three members of 19.4 MB."""


def hand_out(folder: Path, out: Path, names: Sequence[str]) -> None:
    """Put weights that have not come back yet where they are fetched, the first names first."""
    known = folder / "sent.json"
    sent = set(json.loads(known.read_text())) if known.exists() else set()
    here = list(out.glob("*.weights.*"))
    before = sent - {path.name.partition(".")[0] for path in here}
    for path in here:
        path.unlink()
    room, files, chosen = BACK, PIECES, []
    for name in names:
        if name in before:
            continue
        content = _packed_once(folder, name)
        pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
        if len(content) > room or len(pieces) > files:
            break
        room, files = room - len(content), files - len(pieces)
        chosen.append(name)
        for number, piece in enumerate(pieces):
            write_atomic(out / f"{name}.weights.{number}", piece)
    write_atomic(known, json.dumps(sorted(before.union(chosen))))


def take_in(given: Path, folder: Path) -> None:
    """Put pieces of weights that another machine handed out back together."""
    for first in sorted(given.glob("*.weights.0")):
        name = first.name.partition(".")[0]
        place = folder / "kept" / f"{name}.safetensors"
        if place.exists():
            continue
        pieces = sorted(given.glob(f"{name}.weights.*"), key=lambda p: int(p.suffix[1:]))
        write_atomic(place, unpacked(b"".join(piece.read_bytes() for piece in pieces)))


def _packed_once(folder: Path, name: str) -> bytes:
    place = folder / "packed" / name
    if not place.exists():
        write_atomic(place, packed((folder / "kept" / f"{name}.safetensors").read_bytes()))
    return place.read_bytes()


def packed(content: bytes) -> bytes:
    """Numbers of two bytes, packed: high bytes, which repeat, apart from low ones."""
    return zlib.compress(content[1::2] + content[0::2], 1)


def unpacked(content: bytes) -> bytes:
    """The inverse of `packed`."""
    planes = zlib.decompress(content)
    high = len(planes) // 2
    whole = bytearray(len(planes))
    whole[1::2], whole[0::2] = planes[:high], planes[high:]
    return bytes(whole)

"""Data as scripts: a page opened from a folder may load scripts, and may not fetch files.

Each file calls one function with its name and its content. Numbers are packed: a bit for right or
wrong, two bytes for a class, one for a confidence; base64 around them, since a script is text.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CALL = "stockpotChunk"


def write_chunk(folder: Path, name: str, content: Any) -> None:
    """One file; JSON in ASCII is a script too, whatever the names in it hold."""
    path = folder / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{CALL}({json.dumps(name)},{json.dumps(content, separators=(',', ':'))});\n")


def packed(values: NDArray[Any]) -> str:
    """Numbers as base64, little-endian; booleans eight to a byte."""
    if values.dtype == np.bool_:
        content = np.packbits(values, bitorder="little").tobytes()
    else:
        content = values.astype(values.dtype.newbyteorder("<")).tobytes()
    return base64.b64encode(content).decode("ascii")

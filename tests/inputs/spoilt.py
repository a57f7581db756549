"""Good files of every format, and ways to spoil them."""

from __future__ import annotations

import gzip
import io
import json
import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from safetensors.torch import save

PIXELS = np.arange(8 * 8 * 3 * 6, dtype=np.uint8).reshape(6, 8, 8, 3)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def npz(*, packed: bool = False, **arrays: object) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def picture(kind: str = "PNG", row: int = 0) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(PIXELS[row]).save(stream, kind)
    return stream.getvalue()


def idx(sizes: tuple[int, ...], content: bytes, kind: int = 8) -> bytes:
    return bytes((0, 0, kind, len(sizes))) + struct.pack(f">{len(sizes)}I", *sizes) + content


def parquet(labels: list[object] | None = None, facts: object = None, **columns: object) -> bytes:
    cells = [{"bytes": picture(row=row), "path": None} for row in range(6)]
    table = pa.table({"image": cells, "label": labels or LABELS.tolist(), **columns})
    if facts is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps(facts)})
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def safetensors(header: object, content: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + content


def arrays() -> dict[str, bytes]:
    """A good file of each format that holds pictures and labels."""
    images = idx((6, 8, 8), PIXELS[..., 0].tobytes())
    tensors = {"images": torch.from_numpy(PIXELS), "labels": torch.from_numpy(LABELS)}
    return {
        "a.npz": npz(images=PIXELS, labels=LABELS),
        "packed.npz": npz(packed=True, images=PIXELS, labels=LABELS),
        "a.safetensors": save(tensors),
        "t-images-idx3-ubyte": images,
        "t-images-idx3-ubyte.gz": gzip.compress(images),
        "a.parquet": parquet(),
    }


def spoilt(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The same file cut, emptied, overwritten: whatever its format, nothing of it can be used."""
    size = len(content)
    yield "empty", b""
    yield "one byte", content[:1]
    yield "cut in its head", content[:20]
    yield "cut in the middle", content[: size // 2]
    yield "no end", content[: size - 9]
    yield "zeros", b"\0" * size
    yield "ones", b"\xff" * size
    yield "text", b"Not Found\n" * 20
    yield "head overwritten", b"\xff" * 12 + content[12:]
    yield "end overwritten", content[: size - 60] + b"\xff" * 60
    yield "turned round", content[::-1]


def deep_json() -> bytes:
    return b"[" * 100_000


def crowded_picture(side: int = 20_000) -> bytes:
    """The head of a PNG that promises far more pixels than its few bytes hold."""
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    rows = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")

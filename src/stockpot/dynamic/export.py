"""A generated benchmark on disk: pictures in class folders, what is known of each, and a sheet.

Any later model is measured on it like on other folders: `stockpot measure M --data FOLDER`. People
judge it by filling in the column `answer` of `review.csv`, which the oracle `human` reads.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from stockpot.dynamic.oracles.human import COLUMNS, SHEET, digest
from stockpot.errors import UserError
from stockpot.files import write_atomic

PROVENANCE = "provenance.json"
LABELS = "labels.csv"
"""The table of the pictures: class, sha256, and what else is known of each."""


def export_benchmark(
    folder: Path,
    images: Iterable[Tensor],
    labels: Tensor,
    classes: Sequence[str],
    facts: Mapping[str, Sequence[Any]],
    provenance: Mapping[str, Any],
) -> Path:
    """Write uint8 images with their labels; `facts` are further columns of the label table."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists already.", hint="Choose another folder or remove it.")
    rows = []
    for index, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        name = f"{classes[label].replace('/', '_')}/{index:06d}.png"
        stream = BytesIO()
        Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(stream, format="PNG")
        write_atomic(folder / name, stream.getvalue())
        extra = {key: values[index] for key, values in facts.items()}
        mark = digest(image.float() / 255)
        rows.append({"file": name, "sha256": mark, "label": classes[label], **extra})
    write_atomic(folder / LABELS, _table([*COLUMNS[:3], *facts], rows))
    sheet = [{key: row.get(key, "") for key in COLUMNS} for row in rows]
    write_atomic(folder / SHEET, _table(COLUMNS, sheet))
    about = {"images": len(rows), "classes": list(classes), **provenance}
    write_atomic(folder / PROVENANCE, json.dumps(about, indent=1, default=str) + "\n")
    return folder


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    stream = StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()

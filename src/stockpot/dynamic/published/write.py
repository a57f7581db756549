"""A generated benchmark on disk: pictures in class folders, what is known of each, and a sheet.

Any later model is measured on it like on other folders, and with its originals beside them gets an
FMR of its own: `stockpot measure M --data FOLDER --with published`. People judge it by filling in
the column `answer` of `review.csv`, each in a copy of their own, which the oracle `human` reads.
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

from stockpot.datasets.dataset import ACCEPTED
from stockpot.dynamic.oracles.human import COLUMNS, SHEET, digest
from stockpot.errors import UserError
from stockpot.files import write_atomic

PROTOCOL = "stockpot-dynamic-set/1"
"""What a set holds and how it is scored; another number where either changes."""
PROVENANCE = "provenance.json"
LABELS = "labels.csv"
"""The table of the pictures: class, sha256, and what else is known of each."""
ORIGINALS = "originals.csv"
ORIGINALS_FOLDER = ".originals"
"""All images as they were before, those that were not validated too. Readers of class folders pass
by a folder whose name begins with a dot."""


def export_benchmark(
    folder: Path,
    images: Iterable[Tensor],
    labels: Tensor,
    classes: Sequence[str],
    facts: Mapping[str, Sequence[Any]],
    provenance: Mapping[str, Any],
    originals: tuple[Iterable[Tensor], Tensor],
    accepted: Sequence[str] = (),
) -> Path:
    """Write uint8 images with their labels.

    Args:
        folder: where to; it must be empty.
        images: what was made and accepted.
        labels: their classes.
        classes: all classes, in the order of the labels.
        facts: further columns of the label table.
        provenance: where all this comes from.
        originals: all images that were searched around, as they were, with their classes.
        accepted: the numbers of all classes that are right for each original, where the data has
            several.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists already.", hint="Choose another folder or remove it.")
    rows = _pictures(folder, images, labels, classes, facts)
    write_atomic(folder / LABELS, _table([*COLUMNS[:3], *facts], rows))
    several = {ACCEPTED: accepted} if accepted else {}
    before = _pictures(folder / ORIGINALS_FOLDER, *originals, classes, several)
    write_atomic(folder / ORIGINALS, _table([*COLUMNS[:3], *several], before))
    sheet = [{key: row.get(key, "") for key in COLUMNS} for row in rows]
    write_atomic(folder / SHEET, _table(COLUMNS, sheet))
    about = {
        "protocol": PROTOCOL,
        "images": len(rows),
        "originals": len(before),
        "classes": list(classes),
        **provenance,
    }
    write_atomic(folder / PROVENANCE, json.dumps(about, indent=1, default=str) + "\n")
    return folder


def folder_of(name: str) -> str:
    """The folder of a class."""
    return name.replace("/", "_")


def _pictures(
    folder: Path,
    images: Iterable[Tensor],
    labels: Tensor,
    classes: Sequence[str],
    facts: Mapping[str, Sequence[Any]],
) -> list[dict[str, Any]]:
    rows = []
    for index, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        name = f"{folder_of(classes[label])}/{index:06d}.png"
        stream = BytesIO()
        Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(stream, format="PNG")
        write_atomic(folder / name, stream.getvalue())
        extra = {key: values[index] for key, values in facts.items()}
        mark = digest(image.float() / 255)
        rows.append({"file": name, "sha256": mark, "label": classes[label], **extra})
    return rows


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    stream = StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()

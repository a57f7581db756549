"""A dataset as a notebook shows it: what it is, and its first pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stockpot.notebook import facts_html, pictures_html

if TYPE_CHECKING:
    from stockpot.datasets.dataset import Dataset

_SHOWN = 12


def dataset_html(data: Dataset) -> str:
    """Facts, and pictures from all over the data with their classes."""
    named = ", ".join(data.classes[:8]) + (", ..." if len(data.classes) > 8 else "")
    facts = {
        "images": f"{len(data):,}",
        "classes": f"{len(data.classes):,}: {named}",
        "licence": data.licence,
        "fingerprint": data.fingerprint[:16],
    }
    if data.columns:
        facts["columns"] = ", ".join(data.columns)
    count = min(_SHOWN, len(data))
    examples = [data[number * len(data) // count] for number in range(count)]
    shown = [(example.image, data.classes[example.label]) for example in examples]
    return facts_html(f"Dataset {data}", facts) + pictures_html(shown)

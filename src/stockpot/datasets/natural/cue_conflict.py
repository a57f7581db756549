"""Cue conflict: the shape of one thing in the texture of another."""

from __future__ import annotations

import re
from dataclasses import replace

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.natural.classes import categories
from stockpot.datasets.natural.layout import Layout, NaturalSet
from stockpot.datasets.natural.public import Source, load_public
from stockpot.datasets.stream.file_check import OnBroken
from stockpot.errors import BadDataError

_NUMBERS = {each.folder: number for number, each in enumerate(categories())}

CUE_CONFLICT = NaturalSet(
    "cue_conflict",
    Layout(
        (
            "cue-conflict",
            "cue_conflict",
            "texture-vs-shape/stimuli/style-transfer-preprocessed-512",
        ),
        ("stimuli/style-transfer-preprocessed-512",),
    ),
    tuple(each.name for each in categories()),
    _NUMBERS.get,
)


@datasets.register("cue_conflict", paper="arXiv:1811.12231")
def cue_conflict(*, path: str, on_broken: OnBroken = "stop") -> Dataset:
    """Cue-conflict pictures: one thing's shape in another's texture, 16 categories.

    The label is the shape; the column `texture` names the other cue, read off the file name
    (`bear1-bicycle2.png` is a bear made of bicycle), `shape_source` and `texture_source` the two
    pictures that it was made of (bear1, bicycle2). Some files have equal cues.

    Args:
        path: the folder of 16 category folders, the folder above, or a folder of several sets.
        on_broken: what to do with files that cannot be decoded: stop and name them, or skip them.
    """
    data = load_public(CUE_CONFLICT, Source(path, on_broken=on_broken), "test")
    shapes = tuple(data.classes[label] for label in data.labels.tolist())
    names = [_cues(file) for file in data.columns["file"]]
    cues = {
        "shape": shapes,
        "texture": tuple(name["texture"] for name in names),
        "shape_source": tuple(name["shape_source"] for name in names),
        "texture_source": tuple(name["texture_source"] for name in names),
    }
    return replace(data, columns={**data.columns, **cues})


def _cues(file: str) -> re.Match[str]:
    last = file.rpartition("/")[2].rpartition("_")[2].rpartition(".")[0]
    match = re.fullmatch(
        r"(?P<shape_source>[a-z]+\d*)-(?P<texture_source>(?P<texture>[a-z]+)\d*)", last
    )
    if match is None or match["texture"] not in _NUMBERS:
        raise BadDataError(
            f"cue_conflict: expected a name such as bear1-bicycle2.png, got {file}.",
            hint="The part after the hyphen is the category of the texture.",
        )
    return match

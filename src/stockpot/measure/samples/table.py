"""From what was noted while a measure ran to the per-image records of its cell."""

from __future__ import annotations

from collections.abc import Mapping

from stockpot.datasets.by_content.image_hashes import image_hashes
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.measure.cells import DataSpec
from stockpot.measure.samples.said import Said
from stockpot.results.samples import Answered, Coded, DataSource, encode_samples
from stockpot.results.schema import CellResult


def cell_samples(
    result: CellResult, data: Dataset, said: Mapping[str, Said], origin: DataSpec
) -> bytes:
    """The records of a cell: of every outcome, with the answers where they were noted."""
    facts: dict[int, Answered] = {}

    def known(images: Dataset) -> Answered:
        if id(images) not in facts:
            facts[id(images)] = _facts(images)
        return facts[id(images)]

    found = {}
    for record in result.outcomes:
        noted = said.get(record)
        if noted is not None:
            about = known(noted.data)
            found[record] = Answered(
                about.names,
                about.groups,
                about.labels,
                Coded(noted.predicted, noted.names),
                noted.confidence,
            )
        elif record not in result.outcome_sizes:
            found[record] = known(data)
    source = DataSource()
    if isinstance(origin.source, str):
        chosen = {key: value for key, value in origin.options.items() if value is not None}
        source = DataSource(origin.source, chosen)
    return encode_samples(result, found, source)


def image_names(data: Dataset) -> list[str]:
    """What each image is called: its file, or 16 digits of the hash of its pixels."""
    if "file" in data.columns:
        return list(data.columns["file"])
    if isinstance(data.images, EncodedImages):
        return list(data.images.names)
    return [f"{number:016x}" for number in image_hashes(data.images)]


def _facts(data: Dataset) -> Answered:
    groups = None if data.groups is None else Coded.of(data.groups)
    return Answered(
        names=Coded.of(image_names(data)),
        groups=groups,
        labels=Coded(data.labels.numpy(), data.classes),
    )

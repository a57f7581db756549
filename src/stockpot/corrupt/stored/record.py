"""The record of a folder of corrupted pictures: what is in it, so that two kinds never mix.

It is the `stockpot.json` of every made thing. It is written before the first picture: a run that
is killed goes on only with the same question, and another question is told what differs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stockpot.checkpoints.record import RECORD, Record, read_record, write_record
from stockpot.corrupt.apply import describe
from stockpot.corrupt.constants import Profile
from stockpot.corrupt.digital.jpeg_compression import codec_for
from stockpot.corrupt.stored.names import class_folders
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.models.inputs import data_inputs
from stockpot.results.provenance import provenance
from stockpot.types import ImageSize

OWNERS: dict[str, tuple[str, ...]] = {
    "frost": ("overlays",),
    "jpeg_compression": ("codec",),
    "mosaic": ("tiles",),
    "stickers": ("tiles",),
    "style_transfer": ("styles", "features"),
}
"""Corruptions with parameters of their own."""
PLAIN = {"tiles": "procedural", "styles": "procedural", "features": "haar"}
"""Parameters of which a record speaks only where they are not as usual."""


def corruption_record(
    data: Dataset,
    *,
    layout: str,
    seed: int,
    profile: Profile,
    size: ImageSize,
    overlays: str,
    codec: str,
    format: str,
    device: str,
    **others: str,
) -> Record:
    """What decides the files of a folder, whichever corruptions are in it.

    `others` are the parameters that are named only where they are not as usual.
    """
    parameters: dict[str, Any] = {
        "profile": profile,
        "size": str(size),
        "overlays": overlays,
        "codec": codec_for(size) if codec == "auto" else codec,
        "device": device,
        "pictures": len(data),
    }
    if layout == "pictures":
        parameters["format"] = format
    parameters |= {key: value for key, value in others.items() if value != PLAIN[key]}
    return Record(
        verb="corrupt",
        method=layout,
        parameters=parameters,
        seed=seed,
        inputs=data_inputs("data", data)[:1],  # prompts change no pixel
    )


def claim(out: Path, record: Record, data: Dataset, names: tuple[str, ...]) -> None:
    """Write the record into a folder, or refuse one that holds something else."""
    known = read_record(out) if (out / RECORD).exists() else None
    if known is not None and known.digest != record.digest:
        raise BadParameterError(
            f"{out} was made otherwise: {'; '.join(known.differences(record))}.",
            hint="Choose another folder, or remove this one.",
        )
    if (
        known is None
        and out.is_dir()
        and any(not one.name.startswith(".") for one in out.iterdir())
    ):
        raise BadParameterError(
            f"{out} holds files and no {RECORD} that says how they were made.",
            hint="Choose an empty folder.",
        )
    settings = PLAIN | record.parameters
    told = {
        name: describe(
            name,
            record.parameters["profile"],
            **{key: settings[key] for key in OWNERS.get(name, ())},
        )
        for name in names
    }
    before = known.details.get("corruptions", {}) if known else {}
    details = {"corruptions": before | told, "classes": list(class_folders(data))}
    if known is not None and known.details == details:
        return
    versions = provenance(record.parameters["device"]).model_dump()
    write_record(out, record.model_copy(update={"details": details, "versions": versions}))

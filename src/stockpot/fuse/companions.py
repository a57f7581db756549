"""Write what belongs beside fused weights: config, processor files, card and record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.checkpoints.card import write_card
from stockpot.checkpoints.folder import copy_companions
from stockpot.checkpoints.record import Record, write_record
from stockpot.fuse.job import Job
from stockpot.fuse.request import DTYPES, Options
from stockpot.models.device import device_name, pick_device
from stockpot.results.provenance import provenance


def write_companions(job: Job, options: Options, folder: Path) -> None:
    """Put config, processor and tokenizer files beside the weights of every model of a job."""
    template = job.stream.alignment.template.folder
    dtype = DTYPES[options.dtype] if options.dtype else None
    for label in job.of:
        for model in job.models(label):
            copy_companions(template, folder / model, dtype=dtype)


def write_records(
    job: Job,
    options: Options,
    folder: Path,
    records: Mapping[str, Record],
    details: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write the record and the card of every model of a job.

    Args:
        job: what was fused.
        options: how.
        folder: where.
        records: label of a point -> what was asked.
        details: model -> what came of it.
    """
    versions = provenance(device_name(pick_device(options.device))).model_dump()
    for label, asked in records.items():
        for model, member in zip(job.models(label), job.members, strict=False):
            notes = list(job.stream.alignment.notes)
            own = asked
            if job.switches:
                notes.append(f"This is the model for {member}.")
                # Models of one fusion differ by the member that they are for.
                own = asked.model_copy(
                    update={"parameters": {**asked.parameters, "member": member}}
                )
            found = {
                "command": options.command, "notes": notes, **details.get(model, {}),
            }  # fmt: skip
            whole = folder / label if job.module else folder / model
            write_card(
                whole,
                own.model_copy(update={"versions": versions, "details": found}),
                summary=job.entry.summary,
                paper=job.entry.paper,
            )
        if job.switches:  # the folder that holds them is made as one, and known again as one
            write_record(folder / label, asked.model_copy(update={"versions": versions}))

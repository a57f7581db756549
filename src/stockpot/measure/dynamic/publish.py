"""A dynamic evaluation as a published set: its pictures, and what is known of each."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from stockpot.datasets.dataset import ACCEPTED, Dataset
from stockpot.dynamic.published.write import export_benchmark
from stockpot.dynamic.task import Task
from stockpot.measure.dynamic.evaluate import Evaluation
from stockpot.models.classifier import Classifier
from stockpot.results.provenance import provenance


def publish(
    folder: Path,
    task: Task,
    model: Classifier,
    data: Dataset,
    found: Evaluation,
    facts: dict[str, str],
) -> None:
    """Write the validated pictures, their originals and the oracle's answers to a folder."""
    rows = torch.from_numpy(found.outcomes.validated).nonzero()[:, 0]
    kept = rows.tolist()
    columns = {
        "row": rows.tolist(),
        "before": [found.before[row] for row in rows],
        "after": [found.after[row] for row in rows],
        "oracle": [round(float(found.confidence[row]), 4) for row in rows],
        "oracle_answer": [_answer(task, image, data, model.device) for image in found.images(kept)],
    }
    about = {
        **facts,
        "model": model.origin.source,
        "model_fingerprint": model.origin.fingerprint,
        "data": f"{data.name}:{data.split}",
        "data_fingerprint": data.fingerprint,
        "licence": data.licence,
        "made": provenance(str(model.device)).model_dump(),
    }
    # As the search got them: at the size of the pictures that were made of them.
    batches = data.batches(256, model.preprocess.fit)
    originals = (image for batch in batches for image in batch.images)
    export_benchmark(
        folder,
        found.images(kept),
        data.labels[rows],
        data.classes,
        columns,
        about,
        (originals, data.labels),
        data.columns.get(ACCEPTED, ()),
    )


def _answer(task: Task, image: Tensor, data: Dataset, device: torch.device) -> str:
    """The class that the oracle sees in a picture; empty where there is none to ask or to see."""
    if task.oracle is None:
        return ""
    shares = task.oracle.judge(image[None].to(device).float() / 255)[0]
    best = int(shares.argmax())
    return data.classes[best] if float(shares[best]) > 0 and best < len(data.classes) else ""

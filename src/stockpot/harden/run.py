"""`stockpot.harden`: train a model with a method and save what came of it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadParameterError, UserError, did_you_mean
from stockpot.harden import hardeners
from stockpot.harden.contrastive import dual_encoder
from stockpot.harden.distributed import is_first, together, wait
from stockpot.harden.loop import Report, Resume, train
from stockpot.harden.optimise import fast_layout
from stockpot.models.classifier import Classifier
from stockpot.models.device import device_name, pick_device
from stockpot.models.fine_tuned import with_trained_head
from stockpot.models.fingerprint import fingerprint_tensors
from stockpot.models.load import load_for
from stockpot.registry import Entry, Tags
from stockpot.results.provenance import provenance

training = Entry(
    "hardeners",
    "train",
    train,
    Tags(given=("validation", "resume", "report", "question")),
)
"""The loop's own parameters; every method takes them besides its own."""


def harden(
    method: str,
    model: str | Path | Classifier,
    data: str | Path | Dataset,
    *,
    validation: str | Dataset | None = None,
    out: str | Path | None = None,
    device: str = "cpu",
    report: Report | None = None,
    **params: Any,
) -> Classifier:
    """Train `model` on `data` with a method and return it; with `out`, save it there.

    Args:
        method: a name from `stockpot list hardeners`.
        model: as for `load_model`; a classifier given as an object is trained in place.
        data: a dataset, or its name (its `train` split is used).
        validation: held-out data for `keep=best`; a name means its `val` split.
        out: a folder for the model; a run killed before its end resumes from there.
        device: where to train.
        report: called after every epoch.
        params: the method's own parameters and the loop's.
    """
    with together(pick_device(device)) as place:
        trained = _train(method, model, data, validation, out, str(place), report, params)
        wait()  # for the first process, which writes the folder
    return trained


def _train(
    method: str,
    model: str | Path | Classifier,
    data: str | Path | Dataset,
    validation: str | Dataset | None,
    out: str | Path | None,
    device: str,
    report: Report | None,
    params: Mapping[str, Any],
) -> Classifier:
    own, common = split_params(method, params)
    objective = hardeners.get(method)(**own)
    images = data if isinstance(data, Dataset) else load_dataset(str(data), split="train")
    held_out = load_dataset(validation, split="val") if isinstance(validation, str) else validation
    classifier = load_for(model, images, prompts=images.prompts, device=pick_device(device))
    if classifier.classes != images.classes:
        raise UserError(
            f"the model has {len(classifier.classes)} classes and the data {len(images.classes)}; "
            "training needs the same classes in the same order."
        )
    if hardeners.get(method).tags.head == "trained":
        with_trained_head(classifier)
    both_towers = hardeners.get(method).tags.towers == "both"
    if both_towers:
        dual_encoder(classifier).train_both_towers()
    started = fingerprint_tensors(classifier.state_dict().items())
    target = Path(out) if out else None
    if target and target.exists():
        raise UserError(f"{target} exists already.", hint="Choose another folder or remove it.")
    question = json.dumps([method, own, common, started], sort_keys=True, default=str)
    work = target.with_name(f".{target.name}.partial") if target else None
    start = time.perf_counter()
    with fast_layout(classifier, classifier.device):
        seen = train(
            classifier,
            images,
            objective,
            validation=held_out,
            resume=Resume(work / "state.pt") if work else None,
            report=report,
            question=question,
            **common,
        )
    if both_towers:
        dual_encoder(classifier).renew_head()
    classifier.cpu()
    if target and work and is_first():
        facts = {
            "method": method,
            "parameters": training_record(method, own | common),
            "data": {"name": images.name, "split": images.split, "n": len(images)}
            | {"fingerprint": images.fingerprint},
            "start": started,
            "seen": seen,
            "seconds": round(time.perf_counter() - start, 1),
            "provenance": provenance(device_name(pick_device(device))).model_dump(),
        }
        _publish(classifier, target, work, facts)
    return classifier


def split_params(method: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The method's own parameters and the loop's, both checked."""
    entry = hardeners.get(method)
    own_names = [parameter.name for parameter in entry.parameters]
    loop_names = [parameter.name for parameter in training.parameters]
    for name in params:
        if name not in own_names and name not in loop_names:
            near = did_you_mean(name, own_names + loop_names)
            raise BadParameterError(
                f"{method}: unknown parameter {name!r}.{near} "
                f"It takes: {', '.join(own_names + loop_names)}."
            )
    own = entry.validate({k: v for k, v in params.items() if k in own_names})
    common = training.validate({k: v for k, v in params.items() if k in loop_names})
    return own, common


def training_record(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a run as plain values."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(params), default=str))
    return {"method": method, **plain}


def _publish(model: Classifier, target: Path, work: Path, facts: Mapping[str, Any]) -> None:
    """Move the finished folder into place in one step; the training state goes."""
    ready = work / "ready"
    shutil.rmtree(ready, ignore_errors=True)
    model.save(ready)
    (ready / "training.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(ready, target)
    shutil.rmtree(work, ignore_errors=True)

"""`stockpot.harden`: train a model with a method and save what came of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from stockpot.checkpoints.folder import is_made, staged_folder, state_folder
from stockpot.checkpoints.model_card import write_card
from stockpot.checkpoints.resolve import resolve
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.words.words import MODEL
from stockpot.defend.defended import Wanted, behind
from stockpot.engine import device_name, pick_device
from stockpot.engine.interrupt import held_back
from stockpot.errors import BadParameterError
from stockpot.harden import HardenerTags, hardeners
from stockpot.harden.contrastive import dual_encoder
from stockpot.harden.loop import Progress, Report, train
from stockpot.harden.many.processes import is_first, together, wait
from stockpot.harden.many.sharded import in_shards, load_weights, need_many, whole
from stockpot.harden.optimise import fast_layout
from stockpot.harden.record import (
    hardening_record,
    split_params,
    training_data,
    training_defence,
    validation_data,
)
from stockpot.harden.state import Resume
from stockpot.lock import held_alone, lock_of
from stockpot.models.classifier import Classifier
from stockpot.models.fine_tuned import with_trained_head
from stockpot.models.forward.arithmetic import warn_if_emulated
from stockpot.models.inputs import (
    seen_in,
    seen_of,
)
from stockpot.models.load import load_for, words_for
from stockpot.models.own_words import write_own_words
from stockpot.registry import Entry
from stockpot.results.provenance import provenance
from stockpot.stages import Spent, stage, timed


@timed()
def harden(
    method: str,
    model: str | Path | Classifier,
    data: str | Path | Dataset,
    *,
    validation: str | Path | Dataset | None = None,
    defend: Wanted = None,
    out: str | Path | None = None,
    device: str = "auto",
    shard: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    command: str | None = None,
    **params: Any,
) -> Classifier:
    """Train `model` on `data` with a method and return it; with `out`, save it there.

    Args:
        method: a name from `stockpot list hardeners`.
        model: as for `load_model`; a classifier given as an object is trained in place.
        data: a dataset, or its name (its `train` split is used).
        validation: held-out data for `keep=best`; a name means its `val` split.
        defend: train behind defences, such as `clahe` or `{clahe: {clip: 3}}`; a model that was
            trained behind one goes on behind it unless `none` is given. The model that is saved
            is the one inside; its record names the defence, and it is measured behind it.
        out: a folder for the model; a run killed before its end resumes from there.
        device: where to train; `auto` is a GPU where there is one. Of processes that torchrun
            started, each takes its own GPU.
        shard: deal weights, gradients and optimiser state out over these processes (FSDP2), for a
            model that does not fit on one device. The weights that come out are the same.
        report: called after every epoch.
        progress: called at most once a second between them, with the loss so far as a text, the
            step and the number of steps.
        command: the command line to write into the model's card.
        params: the method's own parameters and the loop's.
    """
    with together(pick_device(device)) as place:
        asked = (method, model, data, validation, defend, out, place, shard, report, progress)
        with held_alone(lock_of(Path(out)), Path(out)) if out and is_first() else nullcontext():
            trained = _train(*asked, command, params)
            wait()  # for the first process, which writes the folder
    return trained


def _train(
    method: str,
    model: str | Path | Classifier,
    data: str | Path | Dataset,
    validation: str | Path | Dataset | None,
    defend: Wanted,
    out: str | Path | None,
    device: torch.device,
    shard: bool,
    report: Report | None,
    progress: Progress | None,
    command: str | None,
    params: Mapping[str, Any],
) -> Classifier:
    spent = Spent()
    own, common = split_params(method, params)
    entry = hardeners.get(method)
    if is_first():
        warn_if_emulated(common["precision"], device)
    if shard:
        _check_shards(entry)
    target = Path(out) if out else None
    with stage("load"):
        objective = entry(**own)
        defence = training_defence(model, defend)
        images, held_out = training_data(data), validation_data(validation)
        # Before the training: a classifier in memory is trained in place.
        record = (
            hardening_record(method, model, images, validation=held_out, defend=defence, **params)
            if target
            else None
        )
        if target and record and is_made(target, record):
            trained = load_for(target, images, prompts=images.prompts, device=device)
            if isinstance(model, Classifier):
                model.load_state_dict(trained.state_dict())
            return behind(trained, defence)
        # In shards it goes to the device block by block.
        at = torch.device("cpu") if shard else device
        classifier = load_for(model, images, prompts=images.prompts, device=at)
        if target:
            classifier.check_savable()  # before the training
        if entry.tags.head == "trained":
            with_trained_head(classifier)
        both_towers = entry.tags.towers == "both"
        if both_towers:
            dual_encoder(classifier).train_both_towers()
        seen_by = behind(classifier, defence)
    work = state_folder(target) if target else None
    with fast_layout(classifier, classifier.device), held_back(), stage("learn"):
        working = in_shards(seen_by, device) if shard else seen_by
        seen = train(
            working,
            images,
            objective,
            validation=held_out,
            # Each question keeps its own state: an edit that is taken back loses nothing.
            resume=Resume(work / f"{record.digest}.pt") if work and record else None,
            report=report,
            progress=progress,
            question=record.digest if record else "",
            **common,
        )
    if working is not seen_by:
        load_weights(seen_by, whole(working.state_dict()))
    if both_towers:
        dual_encoder(classifier).renew_head()
    classifier.cpu()
    history = seen_in("training", images)
    for source in entry.referred(own, "data").values():
        history |= seen_in("training", training_data(source))
    if held_out is not None:
        history |= seen_in("validation", held_out)
    seen_by_parent = seen_of(model)
    classifier.history |= history
    if target and work and record and is_first():
        details = {
            "command": command,
            "data": {"name": images.name, "split": images.split, "n": len(images)}
            | {"fingerprint": images.fingerprint},
            "seen": seen,
            **spent.told(),
        }
        versions = provenance(device_name(device)).model_dump()
        made = record.model_copy(update={"details": details, "versions": versions})
        with staged_folder(target) as folder:
            classifier.save(folder)
            _keep_words(folder, model, images, entry.tags)
            write_card(
                folder, made, summary=entry.summary, paper=entry.paper,
                seen=seen_by_parent | history,
            )  # fmt: skip
        shutil.rmtree(work, ignore_errors=True)  # the training state goes
    return seen_by


def _check_shards(entry: Entry[HardenerTags]) -> None:
    """Raise unless a method can train a model in shards, and there are processes to share it."""
    if entry.tags.whole:
        raise BadParameterError(
            f"{entry.name}: cannot train a model in shards: {entry.tags.whole}.",
            hint="Leave --shard away: every process then has the whole model.",
        )
    need_many()


def _keep_words(
    folder: Path, model: str | Path | Classifier, data: Dataset, tags: HardenerTags
) -> None:
    """Words that are not the customary ones lie beside a model that was trained with them."""
    words = words_for(model, data)
    if words is None or data.prompts or tags.head == "trained":
        return
    both_towers = tags.towers == "both"  # the folder then stands for itself, without its base
    if words.chosen or (both_towers and words.convention == MODEL):
        like = resolve(str(model)).local() if both_towers else None
        write_own_words(folder, data.classes, words, like)

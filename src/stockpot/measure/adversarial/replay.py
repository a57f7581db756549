"""Scoring adversarial images that were saved before, on the model they were found on or another."""

from __future__ import annotations

import torch
from torch import Tensor

from stockpot.attack.saved_images import SavedImages, load_images
from stockpot.attack.threat import Threat
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadDataError
from stockpot.measure.adversarial.scores import measured, record_of
from stockpot.measure.measurement import Context, Measurement
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.load import identify
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import scorer_for


def replayed(
    model: Classifier, data: Dataset, context: Context, folder: str, class_space: ClassSpace
) -> Measurement:
    """An image counts as robust where its original and the saved image are answered rightly."""
    saved = load_images(folder)
    facts = saved.manifest
    if facts.get("data_fingerprint") != data.fingerprint or len(saved) != len(data):
        raise BadDataError(
            f"{folder} was made from other images: {facts.get('data')} with {len(saved)} of them, "
            f"not {data.name}:{data.split} with {len(data)}.",
            hint="Give the data, split and limit that they were made from.",
        )
    scorer = scorer_for(model.classes, data, class_space)
    masks: dict[Threat, list[Tensor]] = {member: [] for member in saved.images}
    clean: list[Tensor] = []
    compared = True
    note = context.note("correct", data, scorer)
    notes_of = {member: context.note(record_of(member), data, scorer) for member in saved.images}
    with evaluating(model):
        for batch in data.batches(context.batch_size, model.preprocess.fit):
            compared &= _same(saved, batch.images, batch.rows, folder)
            outputs = model(saved.originals[batch.rows].to(context.device)).float()
            right = scorer.correct(outputs, batch.rows)
            note(scorer.logits(outputs), batch.rows)
            clean.append(right.cpu())
            for member, images in saved.images.items():
                outputs = model(images[batch.rows].to(context.device)).float()
                notes_of[member](scorer.logits(outputs), batch.rows)
                masks[member].append((right & scorer.correct(outputs, batch.rows)).cpu())
            context.progress("adversarial", int(batch.rows[-1]) + 1, len(data))
    own = facts.get("weights_fingerprint") == identify(model)
    notes = [] if own else [f"found on {facts.get('model')}: against this model they only transfer"]
    if not compared:
        notes.append("saved at another size than the model's: originals not compared with the data")
    return measured(
        torch.cat(clean).numpy(),
        {member: torch.cat(parts).numpy() for member, parts in masks.items()},
        data.groups,
        convention=f"adversarial:saved images; found on {facts.get('model')} by "
        f"{facts.get('convention')}, seed {facts.get('seed')}",
        images=len(data) * (1 + len(masks)),
        notes=(*notes, *scorer.notes),
        class_space=scorer.description,
    )


def _same(saved: SavedImages, images: Tensor, rows: Tensor, folder: str) -> bool:
    """Whether the originals could be compared with the data; those that differ are refused."""
    before = saved.originals[rows]
    if before.shape != images.shape:
        return False
    if not torch.equal((before * 255).round(), images.float()):
        raise BadDataError(
            f"{folder}: its originals are not the images of the data as this model is shown them.",
            hint="They were made for another preprocessing; save them again with this model.",
        )
    return True

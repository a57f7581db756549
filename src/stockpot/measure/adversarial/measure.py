"""Accuracy under attack: clean, per norm, and under the union of the norms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from stockpot.attack.copies import Copies, Precision
from stockpot.attack.losses import LossName
from stockpot.attack.methods.autoattack import Parts, Version
from stockpot.attack.nested import Search, attack_each
from stockpot.attack.run import AttackResult
from stockpot.attack.saved_images import ImagesRef, save_images
from stockpot.attack.scored import attack_scored
from stockpot.attack.threat import AttackRef, Norms, Threat, Threats
from stockpot.attack.victim import evaluation_mode
from stockpot.checkpoints.folder import check_free
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.measure import measures
from stockpot.measure.adversarial.protocols import (
    Protocol,
    ProtocolName,
    ProtocolRadii,
    named_protocol,
    threats_of,
)
from stockpot.measure.adversarial.replay import replayed
from stockpot.measure.adversarial.scores import measured, record_of
from stockpot.measure.adversarial.work import Attacked, Work, at_once
from stockpot.measure.measurement import Context, Measurement
from stockpot.measure.parts import as_range, seen_again, window
from stockpot.models.classifier import Classifier
from stockpot.models.load import identify
from stockpot.results.provenance import provenance
from stockpot.results.trust import UNAUDITED
from stockpot.score.class_space import ClassSpace
from stockpot.score.predictions import watching
from stockpot.score.scorer import Scorer, scorer_for
from stockpot.types import Count, Natural

# Seeds of one run lie this far from those of the next, so that no two images share theirs.
_STRIDE = 1 << 32


@measures.register("adversarial", paper="arXiv:2302.10164", splits=True)
def adversarial(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    protocol: ProtocolName = "soups-cifar",
    norms: Norms | Literal["all"] = "all",
    eps: ProtocolRadii = "",
    method: AttackRef = "",
    steps: Natural | None = None,
    restarts: Count | None = None,
    loss: LossName | None = None,
    targets: Count | None = None,
    version: Version | None = None,
    attacks: Parts = (),
    queries: Count | None = None,
    patience: Natural | None = None,
    eot: Count | None = None,
    precision: Precision = "fp32",
    class_space: ClassSpace = "all",
    save: str = "",
    images: ImagesRef = "",
) -> Measurement:
    """Clean accuracy, robust accuracy in each norm, and the accuracy that withstands them all.

    Args:
        protocol: `soups-cifar`, `soups-imagenet`, `soups-strong`, `autoattack-standard`,
            `robustbench` (l_inf 8/255), `robustbench-l2` (0.5) or `robustbench-imagenet` (l_inf
            4/255); what follows overrides it.
        norms: such as `linf,l1`; `all` are the protocol's.
        eps: one radius for each norm, such as `4/255,0.5`, in pixel units where white is 1. A norm
            may be named several times: from the smallest radius on, only what stands is attacked.
        method: another attack, with its own defaults.
        steps: of the attack.
        restarts: of the attack.
        loss: what the attack raises: `ce`, `dlr`, `dlr_targeted` or `margin`.
        targets: how many wrong classes a targeted attack tries.
        version: of AutoAttack: `standard`, `plus` or `rand`.
        attacks: parts of AutoAttack in this order, such as `apgd-ce,square`.
        queries: of AutoAttack's random search.
        patience: steps after which a FAB walk that comes no nearer stops; 0 walks to the end.
        eot: forward passes averaged for every look at a randomised model.
        precision: `bf16` searches in bfloat16 and decides in full precision.
        class_space: as for `clean`.
        save: write the images that were found to this folder.
        images: score images that were saved before, found on this model or another, and attack
            nothing.
    """
    given = {
        "steps": steps, "restarts": restarts, "loss": loss, "targets": targets, "version": version,
        "attacks": attacks or None, "queries": queries, "patience": patience, "eot": eot,
    }  # fmt: skip
    given = {key: value for key, value in given.items() if value is not None}
    if images:
        if given or method or save or norms != "all" or eps:
            raise BadParameterError(
                "images: saved images are scored as they are; leave the attack's parameters out."
            )
        return replayed(model, data, context, images, class_space)
    if save:
        check_free(Path(save))
    chosen = named_protocol(protocol)
    threats = threats_of(chosen, norms, eps)
    scorer = scorer_for(model.classes, data, class_space)
    extra: dict[str, Any] = {"method": method or chosen.method, **given, "precision": precision}
    copies = Copies()
    settings = {
        member: {**({} if method else chosen.settings(member.norm)), **extra, "copies": copies}
        for member in threats.members
    }
    masks: dict[Threat, list[Tensor]] = {member: [] for member in threats.members}
    found: dict[Threat, list[Tensor]] = {member: [] for member in threats.members if save}
    correct: list[Tensor] = []
    seen: list[Tensor] = []
    work = Work()
    # Of all images, so that a part has batches of the whole.
    size = at_once(len(data), context.batch_size, context.device)
    # Images that are to be saved would be in the parts' memory: then nothing is divided.
    known, keeps = (None, False) if save else context.pieces.begin(len(data), size)
    for piece in known or ():
        seen_again(model, piece.about)
        correct.append(piece.found["correct"])
        for member in threats.members:
            told = piece.found[str(member)], piece.about[str(member)]
            again = Attacked.again(correct[-1], *told)
            masks[member].append(again.robust)
            work.add(member, again)
    part = context.pieces.part if keeps else None
    own_rows = window(data, part, size)
    todo = () if known else own_rows.batches(size, model.preprocess.fit)
    notes_of = {member: context.note(record_of(member), data, scorer) for member in threats.members}
    note = context.note("correct", data, scorer)
    with evaluation_mode(model):
        for batch in todo:
            pixels = batch.images.to(context.device).float() / 255
            seeds = (batch.rows + context.seed * _STRIDE).tolist()
            with watching(model) as watch:
                search = _search(model, pixels, scorer, batch.rows, seeds, settings)
                places = torch.arange(len(pixels), device=context.device)
                results = attack_each(threats, places, search)
                for member, result in results.items():
                    masks[member].append(result.robust.cpu())
                    work.add(member, Attacked.of(result))
                    if context.said is not None:
                        outputs = asked_again(model, result.images)
                        notes_of[member](scorer.logits(outputs), batch.rows)
                    if save:
                        found[member].append(result.images.cpu())
            if save:
                seen.append(batch.images)
            correct.append(results[threats.members[-1]].correct.cpu())
            if context.said is not None:
                note(scorer.logits(asked_again(model, pixels)), batch.rows)
            if keeps:
                came = {str(member): Attacked.of(one) for member, one in results.items()}
                robust_now = {name: one.robust for name, one in came.items()}
                about = {name: one.about for name, one in came.items()}
                context.pieces.keep(
                    as_range(batch.rows),
                    {"correct": correct[-1], **robust_now},
                    {**about, "seen": watch.seen, "broken": watch.broken},
                )
            context.progress("adversarial", int(batch.rows[-1]) + 1, len(data))
    if keeps:
        context.pieces.end()
    robust = {member: torch.cat(parts).numpy() for member, parts in masks.items()}
    convention = _convention(chosen, threats, extra, given, replaced=bool(method))
    if save:
        whole = {member: torch.cat(parts) for member, parts in found.items()}
        save_images(
            save, whole, torch.cat(seen), data.labels, _about(model, data, context, convention)
        )
    notes = [] if method or given else chosen.notes(data)
    return measured(
        torch.cat(correct).numpy(),
        robust,
        data.groups,
        convention=convention,
        images=work.queries,
        notes=(*notes, *work.notes(), UNAUDITED, *scorer.notes),
        flags=work.flags(),
        class_space=scorer.description,
    )


def _search(
    model: Classifier,
    pixels: Tensor,
    scorer: Scorer,
    rows: Tensor,
    seeds: list[int],
    settings: Mapping[Threat, Mapping[str, Any]],
) -> Search:
    """The attack on one batch, by threat and places in it."""

    def search(member: Threat, places: Tensor) -> AttackResult:
        own = places.cpu()
        return attack_scored(
            model, pixels[places], scorer, rows[own], norm=member.norm, eps=member.eps,
            seed=[seeds[place] for place in own.tolist()], **settings[member],
        )  # fmt: skip

    return search


@torch.no_grad()
def asked_again(model: Classifier, images: Tensor) -> Tensor:
    """What a model answers to images whose verdict is known: for per-image records alone."""
    outputs: Tensor = model(images)
    return outputs.float()


def _convention(
    protocol: Protocol,
    threats: Threats,
    extra: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    replaced: bool,
) -> str:
    """The protocol's name, and whether it was followed to the letter."""
    plain = {key: value for key, value in extra.items() if (key, value) != ("precision", "fp32")}
    settings = ", ".join(f"{key}={_text(value)}" for key, value in plain.items())
    followed = not given and set(threats.members) <= set(protocol.threats)
    name = "custom" if replaced else protocol.name + ("" if followed else " (changed)")
    return f"adversarial:{name}; {settings}; pixels in [0, 1]"


def _text(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _about(model: Classifier, data: Dataset, context: Context, convention: str) -> dict[str, Any]:
    return {
        "model": model.origin.source,
        "model_fingerprint": model.origin.fingerprint,
        "weights_fingerprint": identify(model),
        "data": f"{data.name}:{data.split}",
        "data_fingerprint": data.fingerprint,
        "classes": list(data.classes),
        "licence": data.licence,
        "seed": context.seed,
        "convention": convention,
        "made": provenance(str(model.device)).model_dump(),
    }

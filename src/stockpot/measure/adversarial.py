"""Accuracy under attack: clean, per norm, and under the union of the norms.

Protocols are named ways to measure it: which norms, which radii, which attack. `soups-*` are the
evaluations of "Seasoning Model Soups" (arXiv:2302.10164): APGD with DLR in l_inf and l_2 and
cross-entropy in l_1; the strong one targets classes and restarts. Whether the paper's l_1 attack
used several radii is not said; here it does, which is the stronger choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.attack.run import AttackResult
from stockpot.attack.scored import attack_scored
from stockpot.attack.threat import (
    L1,
    L2,
    AttackRef,
    Linf,
    Norms,
    Radii,
    Threat,
    Threats,
    listed,
    parse_threats,
)
from stockpot.attack.victim import Precision, evaluation_mode
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError, UnknownNameError
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement, proportion
from stockpot.models.classifier import Classifier
from stockpot.score.class_space import ClassSpace
from stockpot.score.scorer import scorer_for
from stockpot.types import Check, Count, Natural, Together

# Seeds of one run lie this far from those of the next, so that no two images share theirs.
_STRIDE = 1 << 32


@dataclass(frozen=True)
class Protocol:
    """A method, its threats, and parameters for all of them or for one norm."""

    name: str
    method: str
    threats: tuple[Threat, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    by_norm: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def settings(self, norm: str) -> dict[str, Any]:
        """The attack's parameters under one norm."""
        return {**self.params, **self.by_norm.get(norm, {})}


_CIFAR = (Linf("8/255"), L2("128/255"), L1("12"))
_IMAGENET = (Linf("4/255"), L2("4"), L1("255"))
_SOUPS = {
    "linf": {"loss": "dlr"},
    "l2": {"loss": "dlr"},
    "l1": {"loss": "ce", "radii": "multi"},
}
_STRONG = {
    "linf": {"loss": "dlr_targeted"},
    "l2": {"loss": "dlr_targeted"},
    "l1": {"loss": "ce", "radii": "multi"},
}

PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("soups-cifar", "apgd", _CIFAR, {"steps": 40}, _SOUPS),
        Protocol("soups-imagenet", "apgd", _IMAGENET, {"steps": 40}, _SOUPS),
        Protocol("soups-strong", "apgd", _CIFAR, {"steps": 100, "restarts": 5}, _STRONG),
        Protocol("autoattack-standard", "autoattack", (Linf("8/255"), L2("0.5"), L1("12"))),
        Protocol("robustbench", "autoattack", (Linf("8/255"),)),
    )
}


def named_protocol(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        raise UnknownNameError("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]


ProtocolName = Annotated[str, Check(lambda name: named_protocol(str(name)).name)]
"""One of the named protocols."""


def _fit_protocol(eps: Any, others: dict[str, Any]) -> None:
    if "protocol" in others and "norms" in others:
        _threats(named_protocol(others["protocol"]), others["norms"], eps)


ProtocolRadii = Annotated[Radii, Together(_fit_protocol)]
"""One radius for each norm, where the protocol's are not meant."""


@measures.register("adversarial", paper="arXiv:2302.10164")
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
    precision: Precision = "fp32",
    class_space: ClassSpace = "all",
) -> Measurement:
    """Clean accuracy, robust accuracy in each norm, and the accuracy that withstands them all.

    Args:
        protocol: `soups-cifar`, `soups-imagenet`, `soups-strong`, `autoattack-standard` or
            `robustbench`; what follows overrides it.
        norms: such as `linf,l1`; `all` are the protocol's.
        eps: one radius for each norm, such as `4/255,0.5`, in pixel units where white is 1.
        method: another attack, with its own defaults.
        steps: of the attack.
        restarts: of the attack.
        precision: `bf16` searches in bfloat16 and decides in full precision.
        class_space: as for `clean`.
    """
    chosen = named_protocol(protocol)
    threats = _threats(chosen, norms, eps)
    scorer = scorer_for(model.classes, data, class_space)
    extra: dict[str, Any] = {"method": method or chosen.method, "precision": precision}
    extra |= {k: v for k, v in {"steps": steps, "restarts": restarts}.items() if v is not None}
    masks: dict[Threat, list[Tensor]] = {member: [] for member in threats.members}
    correct: list[Tensor] = []
    work = _Work()
    with evaluation_mode(model):
        for batch in data.batches(context.batch_size, model.preprocess.fit):
            pixels = batch.images.to(context.device).float() / 255
            seeds = (batch.rows + context.seed * _STRIDE).tolist()
            for member in threats.members:
                own = {} if method else chosen.settings(member.norm)
                result = attack_scored(
                    model, pixels, scorer, batch.rows, norm=member.norm, eps=member.eps,
                    seed=seeds, **{**own, **extra},
                )  # fmt: skip
                masks[member].append(result.robust.cpu())
                work.add(member, result)
            correct.append(result.correct.cpu())
            context.progress("adversarial", int(batch.rows[-1]) + 1, len(data))
    clean = torch.cat(correct).numpy()
    robust = {member: torch.cat(parts).numpy() for member, parts in masks.items()}
    union = np.logical_and.reduce(list(robust.values()))
    scores = [proportion("accuracy", clean)]
    for member, flags in robust.items():
        condition = {"norm": member.norm, "eps": member.eps}
        scores.append(proportion("robust_accuracy", flags, condition))
    if len(robust) > 1:
        scores.append(proportion("union_accuracy", union, {"threats": str(threats)}))
    outcomes: dict[str, NDArray[np.bool_]] = {"correct": clean, "union": union}
    outcomes |= {f"robust:{member.norm}:{member.eps}": mask for member, mask in robust.items()}
    return Measurement(
        scores=scores,
        convention=_convention(chosen, extra, bool(method)),
        images=work.queries,
        outcomes=outcomes,
        notes=(*work.notes(), *scorer.notes),
        class_space=scorer.description,
    )


class _Work:
    """What the attacks cost and what they warned of, over all batches."""

    def __init__(self) -> None:
        self.queries = 0
        self.saved = 0
        self.warnings: dict[str, int] = {}

    def add(self, member: Threat, result: AttackResult) -> None:
        """Count one batch."""
        self.queries += int(result.queries.sum())
        self.saved += result.saved
        flags = result.flags
        for name in ("randomised", "softmax", "few_classes"):
            if getattr(flags, name):
                self._warn(member, name.replace("_", " "), len(result.robust))
        for name in ("zero_gradients", "square_beats_gradients", "disputed"):
            if count := getattr(flags, name):
                self._warn(member, name.replace("_", " "), count)

    def _warn(self, member: Threat, what: str, images: int) -> None:
        key = f"{member}: {what}"
        self.warnings[key] = self.warnings.get(key, 0) + images

    def notes(self) -> list[str]:
        """One line per warning, and the share of work that fallen images spared."""
        lines = [f"{what} ({count} images)" for what, count in self.warnings.items()]
        share = self.saved / max(1, self.saved + self.queries)
        return [*lines, f"{share:.0%} of the forward passes were spared by images that had fallen"]


def _threats(
    protocol: Protocol, norms: str | tuple[str, ...], eps: str | tuple[str | float, ...]
) -> Threats:
    known: dict[str, Threat] = {member.norm: member for member in protocol.threats}
    names = listed(norms) if norms != "all" else list(known)
    if listed(eps):
        return parse_threats(names, eps)
    missing = [name for name in names if name not in known]
    if missing or not names:
        raise BadParameterError(
            f"norms: {protocol.name} has {', '.join(known)}, got {', '.join(names) or 'none'}.",
            hint="Give eps as well to use another norm.",
        )
    return Threats(tuple(known[name] for name in names))


def _convention(protocol: Protocol, extra: dict[str, Any], replaced: bool) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in extra.items() if key != "precision")
    return f"adversarial:{'custom' if replaced else protocol.name}; {settings}; pixels in [0, 1]"

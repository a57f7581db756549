"""Output ensembles: every member answers, and the answers are combined.

The folder holds a model folder for each member and a config.json that names them, how their answers
combine, and what each weighs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stockpot.checkpoints.resolve import Resolved, resolve
from stockpot.errors import BadCheckpointError, UserError
from stockpot.files import write_atomic
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.config import ENSEMBLE, MODULE_TYPE, read_config
from stockpot.models.fingerprint import fingerprint_folder, fingerprint_model

Combine = Literal["probabilities", "logits", "max"]


def combined(answers: Sequence[Tensor], combine: Combine, weights: Sequence[float]) -> Tensor:
    """The logits of an ensemble from those of its members.

    Args:
        answers: one tensor of logits per member.
        combine: `probabilities`: the logarithm of the weighted mean of their softmaxes; `logits`:
            the weighted sum of the logits; `max`: the largest logit of each class.
        weights: one number per member.
    """
    stack = torch.stack(list(answers))
    if combine == "max":
        return stack.amax(dim=0)
    shares = torch.tensor(list(weights), dtype=stack.dtype, device=stack.device).view(-1, 1, 1)
    if combine == "logits":
        return (shares * stack).sum(dim=0)
    return (stack.log_softmax(dim=-1) + shares.log()).logsumexp(dim=0)


class Ensemble(nn.Module):
    """Networks that answer together."""

    def __init__(
        self, networks: Sequence[nn.Module], combine: Combine, weights: Sequence[float], source: str
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.combine = combine
        self.weights = list(weights)
        self.source = source

    def forward(self, pixels: Tensor) -> Tensor:
        answers = [network(pixels) for network in self.networks]
        return combined(answers, self.combine, self.weights)

    def save(self, folder: Path) -> None:
        """Its folder is all there is."""
        raise UserError(
            f"{self.source} is an ensemble and cannot be saved as another model.",
            hint="Copy its folder.",
        )


def write_ensemble(folder: Path, members: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Make a folder that holds a model folder for each member an ensemble."""
    config = {
        "model_type": MODULE_TYPE,
        "kind": ENSEMBLE,
        "members": list(members),
        "settings": dict(settings),
        "member_fingerprints": [fingerprint_folder(folder / member) for member in members],
    }
    write_atomic(folder / "config.json", json.dumps(config, indent=1) + "\n")


def load_ensemble(
    place: Resolved, load: Callable[[Resolved, Mapping[str, Any]], Classifier], name: str = ""
) -> Classifier:
    """Load an ensemble.

    Args:
        place: its folder.
        load: loads a member from its place and its config.
        name: how messages call it.
    """
    folder, source = place.local(), name or place.text
    config = read_config(folder)
    members = [
        load(resolve(folder / member), read_config(folder / member)) for member in config["members"]
    ]
    first = members[0]
    for member, model in zip(config["members"], members, strict=True):
        if model.classes != first.classes or model.preprocess != first.preprocess:
            raise BadCheckpointError(
                f"{source}: {member} has other classes or takes pictures otherwise than "
                f"{config['members'][0]}; expected members that answer the same question."
            )
    settings = config["settings"]
    weights = settings["weights"] or [1 / len(members)] * len(members)
    network = Ensemble([model.network for model in members], settings["combine"], weights, source)
    architecture = f"ensemble of {len(members)} {first.origin.architecture}"
    origin = Origin(source, architecture, fingerprint_model(folder))
    return Classifier(network, first.preprocess, first.classes, origin)

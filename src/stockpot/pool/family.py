"""From sources to a pool: load members of one family and check that they are one."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from stockpot.checkpoints.member_names import by_name
from stockpot.datasets.words.words import Spoken
from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_for, load_model
from stockpot.pool.layout import Layout, float_layout
from stockpot.pool.pool import Pool

Member = str | Path | Classifier | Mapping[str, Tensor]


def read_pool(
    members: Sequence[Member] | Mapping[str, Member],
    device: torch.device | str = "cpu",
    *,
    data: Spoken | None = None,
) -> Pool:
    """Read the members; the first is the base and must be a model, not a state dict.

    Args:
        members: sources as for `load_model`, classifiers, or state dicts of the first.
        device: where base, changes and working model live.
        data: what gives members that are dual encoders the classes and templates of their heads.
    """
    named = by_name(members)
    if not named:
        raise BadParameterError("a soup needs at least one member, got none.")
    names = tuple(named)
    source = named[names[0]]
    if isinstance(source, Mapping):
        raise BadParameterError(
            f"{names[0]}: the first member gives the architecture; expected a model, got a state "
            "dict."
        )
    first = named[names[0]] = _load(source, data)
    layout = float_layout(first)
    # The members as they are (a soup of one must be that one, bit for bit) stay off the device.
    originals = [
        layout.flatten(_tensors(name, member, names[0], first, layout, data))
        for name, member in named.items()
    ]
    return Pool(copy.deepcopy(first), layout, originals.__getitem__, names, device=device)


def _load(source: str | Path | Classifier, data: Spoken | None) -> Classifier:
    return load_model(source) if data is None else load_for(source, data)


def _tensors(
    name: str,
    source: Member,
    first_name: str,
    first: Classifier,
    layout: Layout,
    data: Spoken | None,
) -> list[Tensor]:
    """A member's tensors in the order of the layout."""
    if isinstance(source, Mapping):
        state = dict(source)
    else:
        member = _load(source, data)
        state = member.state_dict()
        for what in ("classes", "preprocess"):
            if getattr(member, what) != getattr(first, what):
                raise BadCheckpointError(
                    f"{name} and {first_name} differ in their {what}; a soup needs members of one "
                    "family."
                )
    for prefix in ("", "network.", "network.model."):
        renamed = {prefix + key: tensor for key, tensor in state.items()}
        if set(layout.names) <= renamed.keys():
            break
    for key, shape in zip(layout.names, layout.shapes, strict=True):
        if key not in renamed:
            raise BadCheckpointError(f"{name} has no {key}: it is not of the first's family.")
        if tuple(renamed[key].shape) != shape:
            raise BadCheckpointError(
                f"{name}: {key} is {tuple(renamed[key].shape)}, in the first member it is {shape}."
            )
    return [renamed[key] for key in layout.names]

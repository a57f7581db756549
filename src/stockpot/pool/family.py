"""From sources to a pool: load members of one family and check that they are one."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_model, zero_shot_options
from stockpot.pool.layout import Layout, float_layout
from stockpot.pool.pool import Pool

Member = str | Path | Classifier | Mapping[str, Tensor]
ZeroShot = tuple[tuple[str, ...], tuple[str, ...]]


def read_pool(
    members: Sequence[Member] | Mapping[str, Member],
    device: torch.device | str = "cpu",
    *,
    zero_shot: ZeroShot | None = None,
) -> Pool:
    """Read the members; the first is the base and must be a model, not a state dict.

    Args:
        members: sources as for `load_model`, classifiers, or state dicts of the first.
        device: where base, changes and working model live.
        zero_shot: classes and templates of the heads, for members that are dual encoders.
    """
    named = dict(members) if isinstance(members, Mapping) else _named(members)
    if not named:
        raise BadParameterError("a soup needs at least one member, got none.")
    names = tuple(named)
    source = named[names[0]]
    if isinstance(source, Mapping):
        raise BadParameterError(
            f"{names[0]}: the first member gives the architecture; expected a model, got a state "
            "dict."
        )
    first = named[names[0]] = _load(source, zero_shot)
    layout = float_layout(first)
    # The members as they are (a soup of one must be that one, bit for bit) stay off the device.
    originals = [
        layout.flatten(_tensors(name, member, names[0], first, layout, zero_shot))
        for name, member in named.items()
    ]
    return Pool(copy.deepcopy(first), layout, originals.__getitem__, names, device=device)


def _named(members: Sequence[Member]) -> dict[str, Member]:
    named: dict[str, Member] = {}
    for index, member in enumerate(members):
        source = member.origin.source if isinstance(member, Classifier) else member
        text = f"member-{index}" if isinstance(source, Mapping) else str(source)
        name = text.rstrip("/").rpartition("/")[2].removeprefix("zoo:")
        named[name if name not in named else f"{name}#{index}"] = member
    return named


def _load(source: str | Path | Classifier, zero_shot: ZeroShot | None) -> Classifier:
    return load_model(source, **(zero_shot_options(source, *zero_shot) if zero_shot else {}))


def _tensors(
    name: str,
    source: Member,
    first_name: str,
    first: Classifier,
    layout: Layout,
    zero_shot: ZeroShot | None,
) -> list[Tensor]:
    """A member's tensors in the order of the layout."""
    if isinstance(source, Mapping):
        state = dict(source)
    else:
        member = _load(source, zero_shot)
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

"""Dual encoders beside one in memory, of which they share all but the vision tower.

The experts of a dual encoder, and what is fused of them, differ in the vision tower. To measure
them in turn, the text tower needs to be built, identified and held only once.
"""

from __future__ import annotations

from copy import copy, deepcopy
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch

from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.resolve import Resolved
from stockpot.datasets.words.words import said
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.config import is_vision_tower, read_config
from stockpot.models.fingerprint import fingerprint_files, fingerprint_model, settings_files
from stockpot.models.prompts import Prompts
from stockpot.models.vision_tower import dual_encoder_of, place_vision_tower
from stockpot.models.zero_shot import ZeroShotNetwork, load_zero_shot

_VISION = "vision_model."
_known: WeakValueDictionary[tuple[str, ...], ZeroShotNetwork] = WeakValueDictionary()
"""Dual encoders in memory, by settings, dtype and device."""


def load_beside(
    place: Resolved,
    device: torch.device,
    *,
    dual_encoder: str | None = None,
    dtype: str = "float32",
    **options: Any,
) -> Classifier:
    """The same as `load_zero_shot`, for whoever leaves the weights alone.

    Args:
        place: as there.
        device: where it will be asked.
        dual_encoder: as there.
        dtype: as there.
        options: the others.
    """
    folder = place.local()
    tower = is_vision_tower(read_config(folder))
    home, base = dual_encoder_of(folder, dual_encoder) if tower else (folder, "")
    key = (fingerprint_files(settings_files(home)), dtype, str(device))
    known = _known.get(key)
    if known is not None and _is_rest_of(known, home):
        own = "" if place.passing else place.lasting
        name = options.pop("name", "") or place.text
        identity = fingerprint_model(folder, dual_encoder)
        model = _beside(known, folder, base if tower else own, name, identity, **options)
    else:
        model = load_zero_shot(place, dual_encoder=dual_encoder, dtype=dtype, **options)
        model = model.to(device).eval()
    if isinstance(model.network, ZeroShotNetwork):
        _known[key] = model.network
    return model


def _is_rest_of(known: ZeroShotNetwork, home: Path) -> bool:
    """Whether a dual encoder in memory has all weights of these files but the vision tower's."""
    source = open_checkpoint(home)
    own = known.model.state_dict()
    if set(source.tensors()) != set(own):
        return False  # another way to write them, which its own loader knows
    return all(
        torch.equal(source.read(name).to(tensor.device, tensor.dtype), tensor)
        for name, tensor in own.items()
        if not name.startswith(_VISION)
    )


def _beside(
    known: ZeroShotNetwork,
    folder: Path,
    base: str,
    name: str,
    identity: str,
    *,
    classes: tuple[str, ...],
    names: tuple[str, ...] | None = None,
    templates: tuple[str, ...] = ("a photo of a {}.",),
    prompts: Prompts | None = None,
) -> Classifier:
    both = copy(known.model)
    both._modules = {**known.model._modules, "vision_model": deepcopy(known.vision_tower)}
    if is_vision_tower(read_config(folder)):
        place_vision_tower(both, folder)
    else:
        source = open_checkpoint(folder)
        tower = {
            key.removeprefix(_VISION): source.read(key)
            for key in source.tensors()
            if key.startswith(_VISION)
        }
        both.vision_model.load_state_dict(tower)  # type: ignore[union-attr]
    chosen = tuple(map(tuple, prompts)) if prompts else said(classes, names, templates).prompts
    network = ZeroShotNetwork(both, known.tokenizer, known.preprocess, chosen, base, known.identity)
    origin = Origin(name, type(both).__name__, identity)
    return Classifier(network, known.preprocess, tuple(classes), origin).eval()

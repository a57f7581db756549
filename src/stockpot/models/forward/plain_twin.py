"""The plain network of a classifier that transformers has loaded, over the same weights.

The copies that are made of plain networks are the fastest: they are packed, fused and recorded as
others are not. A model that was loaded for training or by name in Python deserves them too.
"""

from __future__ import annotations

from typing import Any

from stockpot.models.classifier import Classifier
from stockpot.models.forward.apart import keeps_nothing
from stockpot.models.huggingface import HuggingFaceNetwork
from stockpot.models.plain.load import plain_pattern

_BUILT = ("transformers.", "stockpot.models.architectures.")
"""Where the modules are written that have plain ones of the same names."""


def plain_twin(model: Classifier) -> Classifier | None:
    """A classifier that answers alike by a plain network, in evaluation mode.

    None where there is no such network, or somebody has changed a module or listens to one. Its
    parameters are the model's own memory, so it is true until somebody puts others in their place.
    """
    network: Any = model.network
    if type(model) is not Classifier or type(network) is not HuggingFaceNetwork:
        return None
    theirs: Any = network.model
    if not type(theirs).__module__.startswith(_BUILT) or not keeps_nothing(network):
        return None
    said = theirs.config.to_diff_dict() | {"architectures": [type(theirs).__name__]}
    said["id2label"] = theirs.config.id2label  # numbers alone are no difference from what is usual
    pattern = plain_pattern(said)
    if pattern is None:
        return None
    skeleton, rename = pattern
    weights = {rename(name): value for name, value in theirs.state_dict().items()}
    if {name: tuple(value.shape) for name, value in weights.items()} != skeleton.shapes:
        return None
    plain = HuggingFaceNetwork(skeleton.filled(weights), network.preprocess)
    return Classifier(plain, model.preprocess, model.classes, model.origin).eval()

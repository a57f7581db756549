"""Which weights a source stands for, found without loading the model where that is possible."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.checkpoints.resolve import resolve
from stockpot.models.classifier import Classifier
from stockpot.models.fingerprint import fingerprint_files, fingerprint_tensors
from stockpot.models.load import Source, load_model
from stockpot.models.vision_tower import fingerprint_model


def identify(source: Source, options: Mapping[str, Any] | None = None) -> str:
    """The sha256 that tells this model from every other."""
    if isinstance(source, Classifier):
        # Weights in memory may have changed since they were loaded.
        return fingerprint_tensors(source.state_dict().items())
    given = dict(options or {})
    place = resolve(source, revision=given.pop("revision", None))
    if place.has_files:
        return fingerprint_model(place.local(), given.get("dual_encoder"))
    weights = given.get("weights")
    if weights and Path(weights).is_file():
        return fingerprint_files([Path(weights)])
    if place.kind == "open_clip":
        given.setdefault("classes", ("thing",))  # its identity is that of the towers alone
    return load_model(place, **given).origin.fingerprint

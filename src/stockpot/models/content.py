"""What lies behind the source of a model now: another content is another model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.checkpoints.resolve import Resolved
from stockpot.models.fingerprint import fingerprint_files, fingerprint_model, fingerprint_shipped


def content_of(place: Resolved, options: Mapping[str, Any]) -> str | None:
    """The content of a model's files; nothing is loaded.

    None where code or a server stands behind it, of which nothing but loading it tells.
    """
    if place.kind in ("factory", "endpoint"):
        return None
    if place.path is not None and not place.has_files:
        return fingerprint_shipped(place.path)
    weights = options.get("weights")
    found = fingerprint_model(place.local(), options.get("dual_encoder")) if place.has_files else ""
    if weights and Path(weights).is_file():
        found += fingerprint_files([Path(weights)])
    return found


def with_code(place: Resolved, weights: str) -> str:
    """What tells a model with these weights from others; of a factory, its code too."""
    if place.kind != "factory":
        return weights
    from stockpot.models.factory import with_factory

    return with_factory(weights, place.text)

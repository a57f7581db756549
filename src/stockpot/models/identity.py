"""Which weights a source stands for, found without loading the model where that is possible."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stockpot.models.classifier import Classifier
from stockpot.models.fingerprint import fingerprint_files, fingerprint_folder, fingerprint_tensors
from stockpot.models.huggingface import resolve
from stockpot.models.load import HUB_ID, load_model, zoo_folder, zoo_names


def identify(source: str | Path | Classifier, options: Mapping[str, Any] | None = None) -> str:
    """The sha256 that tells this model from every other."""
    if isinstance(source, Classifier):
        # Weights in memory may have changed since they were loaded.
        return fingerprint_tensors(source.state_dict().items())
    options = dict(options or {})
    name = str(source).removeprefix("zoo:")
    if name in zoo_names():
        return fingerprint_folder(zoo_folder() / name)
    if Path(source).is_dir():
        return fingerprint_folder(Path(source))
    if weights := options.get("weights"):
        if Path(weights).is_file():
            return fingerprint_files([Path(weights)])
    elif HUB_ID.fullmatch(str(source)):
        repository, _, revision = str(source).partition("@")
        return fingerprint_folder(resolve(repository, revision=revision or None))
    return load_model(source, **options).origin.fingerprint

"""Which kind of network a Hugging Face folder holds, and so what loads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stockpot.models.classifier import Classifier
from stockpot.models.config import has_text_head, is_fine_tuned
from stockpot.models.fine_tuned import load_fine_tuned
from stockpot.models.huggingface import load_huggingface
from stockpot.models.zero_shot import load_zero_shot


def plain_loader(config: Mapping[str, Any]) -> Callable[..., Classifier]:
    """The loader for a folder with this config.json, if it is no module made by fusion."""
    if is_fine_tuned(config):
        return load_fine_tuned
    return load_zero_shot if has_text_head(config) else load_huggingface

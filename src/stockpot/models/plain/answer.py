"""What the plain networks share: their answer, and settings of `config.json` as attributes."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from torch import Tensor

UNUSED = frozenset(
    ("architectures", "model_type", "id2label", "label2id", "dtype", "torch_dtype", "problem_type",
     "transformers_version", "_name_or_path", "initializer_range", "out_features", "out_indices",
     "stage_names", "encoder_stride", "pooler_act", "pooler_output_size")
)  # fmt: skip
"""Settings that do not change what a classifier answers in evaluation mode."""


class Answer(NamedTuple):
    """As transformers' networks answer."""

    logits: Tensor


def settings(
    config: Mapping[str, Any], usual: Mapping[str, Any], fixed: Mapping[str, Any]
) -> SimpleNamespace | None:
    """The settings of a network; none where one is not understood.

    Args:
        config: the `config.json`.
        usual: what may be set, with the values that transformers takes where it is not.
        fixed: what must have this value if it is set.
    """
    own = {key: value for key, value in config.items() if key not in UNUSED}
    if own.keys() - usual.keys() - fixed.keys():
        return None
    if any(own.get(key, value) != value for key, value in fixed.items()):
        return None
    chosen = {key: own.get(key, value) for key, value in usual.items()}
    kinds = {"model_type": config["model_type"], "_attn_implementation": "sdpa"}
    return SimpleNamespace(**chosen, **kinds, num_labels=len(config["id2label"]))

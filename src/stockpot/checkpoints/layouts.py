"""Key layouts: the same tensor under the names that different programs give it.

A CLIP vision encoder is saved as `vision_model.encoder...` by transformers 4 and by every whole
CLIP model, and as `encoder...` by transformers 5; training wrappers add `model.`, `module.` or
`_orig_mod.`. Comparing names without those prefixes lines all of them up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_WRAPPERS = ("module.", "_orig_mod.", "model.", "vision_model.")
_OTHER_TOWER = re.compile(r"text_model\.|visual_projection\.|text_projection\.|logit_(scale|bias)$")
_HEAD = re.compile(
    r"(\w*classifier|head|heads|head_dist|fc|lm_head|score|classification_head)(\.|$)"
)
_BATCH_NORM = re.compile(r"(^|\.)running_(mean|var)$")


def plain_name(name: str) -> str:
    """The name without the prefixes that wrappers add."""
    shorter = next((name[len(p) :] for p in _WRAPPERS if name.startswith(p)), None)
    return name if shorter is None else plain_name(shorter)


def by_plain_name(names: Iterable[str]) -> dict[str, str]:
    """Plain name -> name, in the given order; whole names where two would fall together."""
    names = list(names)
    plain = {plain_name(name): name for name in names}
    return plain if len(plain) == len(names) else {name: name for name in names}


def is_whole_clip(plain_names: Iterable[str]) -> bool:
    """Whether a checkpoint holds a text tower beside the vision encoder."""
    return any(name.startswith("text_model.") for name in plain_names)


def is_beyond_vision(plain: str) -> bool:
    """Whether a tensor of a whole CLIP model is not part of its vision encoder."""
    return bool(_OTHER_TOWER.match(plain))


def is_head(plain: str) -> bool:
    """Whether a tensor belongs to the classification head."""
    return bool(_HEAD.match(plain))


def is_batch_norm_statistic(name: str) -> bool:
    """Whether a tensor is a running mean or variance."""
    return bool(_BATCH_NORM.search(name))

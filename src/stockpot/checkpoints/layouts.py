"""Key layouts: the same tensor under the names that different programs give it.

A CLIP vision encoder is saved as `vision_model.encoder...` by transformers 4 and by every whole
CLIP model, and as `encoder...` by transformers 5; training wrappers add `model.`, `module.` or
`_orig_mod.`. Comparing names without those prefixes lines all of them up. What open_clip calls
otherwise, and keeps in other shapes, is translated (`clip/translate.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

Program = Literal["hf", "open_clip"]
PROGRAMS: tuple[Program, ...] = ("hf", "open_clip")

_WRAPPERS = ("module.", "_orig_mod.", "model.", "vision_model.")
_OTHER_TOWER = re.compile(r"text_model\.|visual_projection\.|text_projection\.|logit_(scale|bias)$")
# An image encoder may keep what stands around a text tower that it has thrown away.
_TEXT_TOWER = re.compile(r"text_model\.(?!embeddings\.|final_layer_norm\.)")
_OPEN_CLIP_TEXT = re.compile(r"(text\.)?transformer\.resblocks\.")
# open_clip keeps its text tower at the top; those names alone could be any model's.
_OTHER_THAN_VISUAL = re.compile(
    r"(text\.|transformer\.resblocks\.|token_embedding\.|ln_final\.)|"
    r"(positional_embedding|text_projection|visual\.proj|logit_(scale|bias))$"
)
_HEAD = re.compile(
    r"(\w*classifier|head|heads|head_dist|fc|lm_head|score|classification_head)(\.|$)"
)
# SigLIP pools its patches with a layer of attention that it calls its head.
_POOLING = re.compile(r"head\.(probe$|attention\.|layernorm\.|mlp\.)")
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
    names = list(plain_names)
    if any(_TEXT_TOWER.match(name) for name in names):
        return True
    visual = any(name.startswith("visual.") for name in names)
    return visual and any(_OPEN_CLIP_TEXT.match(name) for name in names)


def beyond_vision(plain_names: Iterable[str]) -> frozenset[str]:
    """The tensors of a CLIP model that are not part of its vision encoder."""
    names = list(plain_names)
    visual = any(name.startswith("visual.") for name in names)
    pattern = _OTHER_THAN_VISUAL if visual else _OTHER_TOWER
    return frozenset(name for name in names if pattern.match(name))


def is_head(plain: str) -> bool:
    """Whether a tensor belongs to the classification head."""
    return bool(_HEAD.match(plain)) and not _POOLING.match(plain)


class Layout(NamedTuple):
    """Whose names a CLIP has, and what stands in front of those of its towers."""

    program: Program
    vision: str
    text: str

    def canonical(self, name: str) -> str:
        """The name as the program itself gives it to a whole model."""
        plain = plain_name(name)
        if self.program == "hf":
            return plain if _OTHER_TOWER.match(plain) else f"vision_model.{plain}"
        return plain.removeprefix(self.text) if self.vision else f"visual.{plain}"


CANONICAL = {
    "hf": Layout("hf", "vision_model.", "text_model."),
    "open_clip": Layout("open_clip", "visual.", ""),
}


def layout_of(names: Iterable[str]) -> Layout | None:
    """The layout of a CLIP or of its vision tower; none for any other model."""
    plain = {plain_name(name) for name in names}
    if {"embeddings.class_embedding", "pre_layrnorm.weight"} <= plain:
        return CANONICAL["hf"]
    if {"visual.class_embedding", "visual.conv1.weight"} <= plain:
        inside = "text.token_embedding.weight" in plain
        return Layout("open_clip", "visual.", "text." if inside else "")
    if {"class_embedding", "conv1.weight", "ln_pre.weight"} <= plain:
        return Layout("open_clip", "", "")
    return None


def is_batch_norm_statistic(name: str) -> bool:
    """Whether a tensor is a running mean or variance."""
    return bool(_BATCH_NORM.search(name))

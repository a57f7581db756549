"""One CLIP tensor under two names: open_clip's and transformers'.

open_clip keeps query, key and value as one matrix and the two projections transposed; its vision
tower stands under `visual.` and its text tower at the top, or under `text.`. A tower saved alone
(`model.visual.state_dict()`) has no prefix. transformers calls the towers `vision_model.` and
`text_model.`. Sources: `open_clip/transformer.py` and `transformers/models/clip/modeling_clip.py`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BLOCK = {
    "ln_1": "layer_norm1",
    "attn.out_proj": "self_attn.out_proj",
    "ln_2": "layer_norm2",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_TOWERS: dict[str, tuple[str, dict[str, str]]] = {
    "visual.": (
        "vision_model.",
        {
            "class_embedding": "embeddings.class_embedding",
            "positional_embedding": "embeddings.position_embedding.weight",
            "conv1.weight": "embeddings.patch_embedding.weight",
            "ln_pre.weight": "pre_layrnorm.weight",
            "ln_pre.bias": "pre_layrnorm.bias",
            "ln_post.weight": "post_layernorm.weight",
            "ln_post.bias": "post_layernorm.bias",
        },
    ),
    "": (
        "text_model.",
        {
            "token_embedding.weight": "embeddings.token_embedding.weight",
            "positional_embedding": "embeddings.position_embedding.weight",
            "ln_final.weight": "final_layer_norm.weight",
            "ln_final.bias": "final_layer_norm.bias",
        },
    ),
}
_TURNED = {"visual.proj": "visual_projection.weight", "text_projection": "text_projection.weight"}
_SAME = ("logit_scale", "logit_bias")
_OPEN_CLIP_LAYER = re.compile(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+)")
_HF_LAYER = re.compile(r"(vision_model\.|text_model\.)encoder\.layers\.(\d+)\.(.+)")
_HF_THIRD = re.compile(r"self_attn\.[qkv]_proj\.(weight|bias)")
# Facts about a model that old files keep among its weights, or numbers 0, 1, 2, ...
_NO_WEIGHTS = re.compile(
    r"(input_resolution|context_length|vocab_size|attn_mask|(.*\.)?position_ids)$"
)


class Pair(NamedTuple):
    """One tensor of open_clip, and the one or three of transformers that it is made of."""

    open_clip: str
    hf: tuple[str, ...]
    turned: bool = False
    """Whether rows and columns change places."""


def is_no_weight(canonical: str) -> bool:
    """Whether an entry is a fact about the model and no part of it."""
    return bool(_NO_WEIGHTS.match(canonical))


def pair_of_open_clip(name: str) -> Pair | None:
    """What a tensor of open_clip, by its canonical name, is made of in transformers."""
    if name in _SAME:
        return Pair(name, (name,))
    if name in _TURNED:
        return Pair(name, (_TURNED[name],), turned=True)
    if match := _OPEN_CLIP_LAYER.fullmatch(name):
        tower, number, rest = match[1] or "", match[2], match[3]
        layer = f"{_TOWERS[tower][0]}encoder.layers.{number}."
        if rest in ("attn.in_proj_weight", "attn.in_proj_bias"):
            kind = rest.rpartition("_")[2]
            return Pair(name, tuple(f"{layer}self_attn.{part}_proj.{kind}" for part in "qkv"))
        module, _, kind = rest.rpartition(".")
        return Pair(name, (f"{layer}{_BLOCK[module]}.{kind}",)) if module in _BLOCK else None
    for prefix, (other, names) in _TOWERS.items():
        if name.startswith(prefix) and name.removeprefix(prefix) in names:
            return Pair(name, (other + names[name.removeprefix(prefix)],))
    return None


def pair_of_hf(name: str) -> Pair | None:
    """The tensor of open_clip that one of transformers, by its canonical name, is part of."""
    if name in _SAME:
        return Pair(name, (name,))
    if turned := next((key for key, value in _TURNED.items() if value == name), None):
        return pair_of_open_clip(turned)
    if match := _HF_LAYER.fullmatch(name):
        tower = next(prefix for prefix, (other, _) in _TOWERS.items() if other == match[1])
        block = f"{tower}transformer.resblocks.{match[2]}."
        if third := _HF_THIRD.fullmatch(match[3]):
            return pair_of_open_clip(f"{block}attn.in_proj_{third[1]}")
        module, _, kind = match[3].rpartition(".")
        own = next((key for key, value in _BLOCK.items() if value == module), None)
        return pair_of_open_clip(f"{block}{own}.{kind}") if own else None
    for prefix, (other, names) in _TOWERS.items():
        for own, theirs in names.items():
            if name == other + theirs:
                return Pair(prefix + own, (name,))
    return None

"""CLIP's image tower on a processor: only what its answer, the first token, is made of.

Of the last layer, all tokens but the first are asked for keys and values alone: their own sums and
their MLP reach nothing. `x * sigmoid(1.702 x)` becomes one pass over the activations, in place: the
factor goes into the weights around it. And a piece of the images is brought through the whole
tower while its activations are in the processor's cache. The weights are read at every call and
nothing is copied, so they may change between calls.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.models.classifier import Classifier
from stockpot.models.forward.apart import CPU_PIECE, in_parts
from stockpot.models.zero_shot import ZeroShotNetwork

_QUICK = 1.702
"""Of `quick_gelu`."""


def is_known(model: nn.Module) -> bool:
    """Whether the tower is CLIP's own, as it was made, and nobody listens to its layers."""
    if type(model) is not Classifier or type(model.network) is not ZeroShotNetwork:
        return False
    from transformers.activations import QuickGELUActivation
    from transformers.models.clip import modeling_clip as clip

    whole: Any = model.network.model
    if type(whole) is not clip.CLIPModel or whole.training:
        return False
    tower = whole.vision_model
    config = tower.config
    plain = config.hidden_act == "quick_gelu" and config._attn_implementation in ("sdpa", "eager")
    known = {
        type(whole), type(tower), QuickGELUActivation, clip.CLIPVisionEmbeddings, clip.CLIPEncoder,
        clip.CLIPEncoderLayer, clip.CLIPAttention, clip.CLIPMLP, nn.Linear, nn.LayerNorm, nn.Conv2d,
        nn.Embedding, nn.ModuleList,
    }  # fmt: skip
    return plain and all(
        type(module) in known and not module._forward_hooks and not module._forward_pre_hooks
        for module in (*tower.modules(), whole, whole.visual_projection)
    )


def answers(model: Classifier, pixels: Tensor) -> Tensor:
    """The logits of a model that `is_known`, without gradients, in evaluation mode."""
    network: Any = model.network

    def part(some: Tensor) -> Tensor:
        first = _first(network.vision_tower, model.seen(some))
        logits: Tensor = network.logits(F.normalize(network.model.visual_projection(first), dim=-1))
        return logits

    return in_parts(part, pixels, CPU_PIECE)


def _first(tower: Any, pixels: Tensor) -> Tensor:
    """The first token behind the last norm."""
    tokens: Tensor = tower.pre_layrnorm(tower.embeddings(pixels))
    layers = list(tower.encoder.layers)
    for layer in layers:
        read = layer.layer_norm1(tokens)
        if layer is layers[-1]:
            tokens, asking = tokens[:, :1], read[:, :1]
        else:
            asking = read
        tokens = _mlp(layer, tokens + _attention(layer.self_attn, asking, read))
    first: Tensor = tower.post_layernorm(tokens[:, 0])
    return first


def _attention(own: Any, asking: Tensor, read: Tensor) -> Tensor:
    count, _, width = read.shape

    def heads(layer: nn.Linear, source: Tensor) -> Tensor:
        rows: Tensor = layer(source)
        return rows.view(count, -1, own.num_heads, own.head_dim).transpose(1, 2)

    mixed = F.scaled_dot_product_attention(
        heads(own.q_proj, asking), heads(own.k_proj, read), heads(own.v_proj, read), scale=own.scale
    )
    found: Tensor = own.out_proj(mixed.transpose(1, 2).reshape(count, -1, width))
    return found


def _mlp(layer: Any, tokens: Tensor) -> Tensor:
    first, second = layer.mlp.fc1, layer.mlp.fc2
    wide = F.linear(layer.layer_norm2(tokens), first.weight * _QUICK, first.bias * _QUICK)
    F.silu(wide, inplace=True)
    return tokens + F.linear(wide, second.weight / _QUICK, second.bias)

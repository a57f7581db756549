"""The vision transformer (Dosovitskiy et al., arXiv:2010.11929) as transformers has it."""

from __future__ import annotations

import re
from functools import lru_cache
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.models.plain.answer import Answer

USUAL = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "layer_norm_eps": 1e-12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "qkv_bias": True,
}
FIXED = {"hidden_act": "gelu"}

_RENAMED = (
    (r"^vit\.encoder\.layer\.", "vit.layers."),
    (r"\.attention\.attention\.query\.", ".attention.q_proj."),
    (r"\.attention\.attention\.key\.", ".attention.k_proj."),
    (r"\.attention\.attention\.value\.", ".attention.v_proj."),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"(\.layers\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
)
"""Names in files of all years -> names of the parts here and in transformers 5."""


@lru_cache(maxsize=4096)  # models of a pool have the same names
def part_name(name: str) -> str:
    """What a weight of a file is called here."""
    for pattern, other in _RENAMED:
        name = re.sub(pattern, other, name)
    return name


class PatchEmbeddings(nn.Module):
    """Each patch as one token."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        side = config.patch_size
        self.projection = nn.Conv2d(config.num_channels, config.hidden_size, side, stride=side)

    def forward(self, pixels: Tensor) -> Tensor:
        maps: Tensor = self.projection(pixels)
        return maps.flatten(2).transpose(1, 2)


class Embeddings(nn.Module):
    """The class token and the patches, with their places."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        count = (config.image_size // config.patch_size) ** 2 + 1
        self.cls_token = nn.Parameter(torch.empty(1, 1, config.hidden_size))
        self.patch_embeddings = PatchEmbeddings(config)
        self.position_embeddings = nn.Parameter(torch.empty(1, count, config.hidden_size))
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, pixels: Tensor) -> Tensor:
        patches = self.patch_embeddings(pixels)
        tokens = torch.cat((self.cls_token.expand(len(patches), -1, -1), patches), dim=1)
        result: Tensor = self.dropout(tokens + self.position_embeddings)
        return result


class Attention(nn.Module):
    """Every token looks at every other; `explain` may put another function in its place."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.head_dim = width // config.num_attention_heads
        self.q_proj = nn.Linear(width, width, bias=config.qkv_bias)
        self.k_proj = nn.Linear(width, width, bias=config.qkv_bias)
        self.v_proj = nn.Linear(width, width, bias=config.qkv_bias)
        self.o_proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        shape = (*tokens.shape[:-1], -1, self.head_dim)
        query, key, value = (
            project(tokens).view(shape).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        rate = self.config.attention_probs_dropout_prob if self.training else 0.0
        scale = self.head_dim**-0.5
        if self.config._attn_implementation == "sdpa":
            mixed = F.scaled_dot_product_attention(query, key, value, None, rate, scale=scale)
            mixed = mixed.transpose(1, 2).contiguous()
        else:
            from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

            attend = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
            mixed, _ = attend(self, query, key, value, None, dropout=rate, scaling=scale)
        result: Tensor = self.o_proj(mixed.reshape(*tokens.shape[:-1], -1))
        return result


class TwoLayers(nn.Module):
    """The same small network for every token."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, tokens: Tensor) -> Tensor:
        result: Tensor = self.fc2(F.gelu(self.fc1(tokens)))
        return result


class Layer(nn.Module):
    """Attention and the two layers, each added to what it reads."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.layernorm_before = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.layernorm_after = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = TwoLayers(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = self.dropout(self.attention(self.layernorm_before(tokens))) + tokens
        result: Tensor = self.dropout(self.mlp(self.layernorm_after(tokens))) + tokens
        return result


class Tower(nn.Module):
    """Everything before the head."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, pixels: Tensor) -> Tensor:
        tokens = self.embeddings(pixels)
        for layer in self.layers:
            tokens = layer(tokens)
        result: Tensor = self.layernorm(tokens)
        return result


class ViT(nn.Module):
    """A vision transformer whose head reads the class token."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.vit = Tower(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, pixel_values: Tensor) -> Answer:
        return Answer(self.classifier(self.vit(pixel_values)[:, 0, :]))

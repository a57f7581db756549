"""Attention that can be watched and masked, for the transformers of Hugging Face.

Inside `attending` a tower uses the attention function below instead of its own: it computes the
same numbers, keeps the post-softmax weights of every block in the graph (so that one backward
pass gives all their gradients), and can hide patches from every query, which is what dropping
their tokens means for the tokens that are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.errors import UserError

Readout = Literal["class_token", "two_tokens", "mean", "pooling"]
"""The class token; DeiT's class and distillation tokens; the mean patch; attention pooling."""

FAMILIES = ("vit", "deit", "clip", "siglip")


class Tower(NamedTuple):
    """A vision transformer inside a classifier."""

    module: nn.Module
    """The part whose `embeddings` turn pixels into tokens."""
    readout: Readout
    patch: tuple[int, int]

    def grid(self, pixels: Tensor) -> tuple[int, int]:
        """Rows and columns of patches of these (fitted) pixels."""
        return pixels.shape[-2] // self.patch[0], pixels.shape[-1] // self.patch[1]

    @property
    def embeddings(self) -> nn.Module:
        """The module that makes the tokens."""
        return cast(nn.Module, self.module.embeddings)


def find_tower(network: nn.Module) -> Tower | None:
    """The vision transformer of a network; none where there is none of a known family."""
    owner = next((m for m in network.modules() if _family(m)), None)
    if owner is None:
        return None
    for module in network.modules():
        patches = _patches(module)
        if patches is not None:
            size = (int(patches.kernel_size[0]), int(patches.kernel_size[1]))
            return Tower(module, _readout(network, module), size)
    return None


def need_tower(network: nn.Module, what: str) -> Tower:
    """The same, or a complaint that says what needs it."""
    tower = find_tower(network)
    if tower is None:
        raise UserError(
            f"{what} needs a vision transformer ({', '.join(FAMILIES)}) of Hugging Face.",
            hint="For convolutional networks use Grad-CAM and the fills single or multi.",
        )
    return tower


def _family(module: nn.Module) -> bool:
    kind = str(getattr(getattr(module, "config", None), "model_type", ""))
    return kind.removesuffix("_vision_model") in FAMILIES


def _patches(module: nn.Module) -> nn.Conv2d | None:
    """The convolution that cuts patches, if this module owns the embeddings of a tower."""
    embeddings = getattr(module, "embeddings", None)
    if not isinstance(embeddings, nn.Module) or not _family(module):
        return None
    found = [m for m in embeddings.modules() if isinstance(m, nn.Conv2d)]
    return found[0] if found and found[0].kernel_size == found[0].stride else None


def _readout(network: nn.Module, tower: nn.Module) -> Readout:
    names = {type(module).__name__ for module in network.modules()}
    if "DeiTForImageClassificationWithTeacher" in names:
        return "two_tokens"
    if names & {"CLIPForImageClassification", "SiglipForImageClassification"}:
        return "mean"
    return "pooling" if isinstance(getattr(tower, "head", None), nn.Module) else "class_token"


NAME = "stockpot_watched"


@dataclass
class Watch:
    """What one forward pass showed."""

    blocks: list[Tensor] = field(default_factory=list)
    """Post-softmax weights of each self-attention, [images, heads, queries, keys]."""
    pooling: list[Tensor] = field(default_factory=list)
    """The same of attention pooling heads, whose one query is learned."""
    hidden: Tensor | None = None
    """Patches that no query may look at, as booleans [images, patches]."""
    keep: bool = True
    """Whether weights are wanted; without them torch's fused attention does the work."""


_current: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def attending(
    network: nn.Module, *, hidden: Tensor | None = None, keep: bool = True
) -> Iterator[Watch]:
    """Watch the attention of every transformer inside `network`, with some patches hidden."""
    _register()
    watch = Watch(hidden=hidden, keep=keep)
    configs = _configs(network)
    before = [(config, config._attn_implementation) for config in configs]
    pools = [m for m in network.modules() if isinstance(m, nn.MultiheadAttention)]
    token = _current.set(watch)
    try:
        for config in configs:
            config._attn_implementation = NAME
        for pool in pools:
            pool.forward = partial(_pool, pool)  # type: ignore[method-assign]
        yield watch
    finally:
        for config, implementation in before:
            config._attn_implementation = implementation
        for pool in pools:
            pool.__dict__.pop("forward", None)
        _current.reset(token)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """Plain attention in the signature that transformers expects of an attention function."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    watch = _current.get()
    if watch is not None and not watch.keep and attention_mask is None:
        seen = None if watch.hidden is None else ~_hidden_keys(watch.hidden, key.shape[-2])
        rate = dropout if module.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, seen, rate, scale=scale)
        return mixed.transpose(1, 2).contiguous(), None
    scores = (query * scale) @ key.transpose(-1, -2)  # queries are fewer numbers than scores
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = _softmax(scores, watch.hidden if watch else None)
    if watch is not None:
        watch.blocks.append(weights)
    mixed = F.dropout(weights, dropout, training=module.training) @ value
    return mixed.transpose(1, 2).contiguous(), weights


def _pool(
    pool: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor, **_: Any
) -> tuple[Tensor, Tensor]:
    """`nn.MultiheadAttention` (batch first) with its weights kept and hidden keys obeyed."""
    parts = zip(
        (query, key, value), pool.in_proj_weight.chunk(3), pool.in_proj_bias.chunk(3), strict=True
    )
    queries, keys, values = (F.linear(tensor, weight, bias) for tensor, weight, bias in parts)

    def heads(tensor: Tensor) -> Tensor:
        n, tokens, _ = tensor.shape
        return tensor.view(n, tokens, pool.num_heads, -1).transpose(1, 2)

    scores = (heads(queries) * pool.head_dim**-0.5) @ heads(keys).transpose(-1, -2)
    watch = _current.get()
    weights = _softmax(scores, watch.hidden if watch else None)
    if watch is not None:
        watch.pooling.append(weights)
    mixed = (weights @ heads(values)).transpose(1, 2).flatten(2)
    return F.linear(mixed, pool.out_proj.weight, pool.out_proj.bias), weights


def _softmax(scores: Tensor, hidden: Tensor | None) -> Tensor:
    if hidden is not None:
        scores = scores.masked_fill(_hidden_keys(hidden, scores.shape[-1]), float("-inf"))
    return scores.softmax(dim=-1, dtype=torch.float32).to(scores.dtype)


def _hidden_keys(hidden: Tensor, tokens: int) -> Tensor:
    """Hidden patches as keys [images, 1, 1, tokens]; tokens before them are never hidden."""
    return F.pad(hidden, (tokens - hidden.shape[1], 0))[:, None, None, :]


def _configs(network: nn.Module) -> list[Any]:
    """The configurations of the transformers inside, each once, outer ones first."""
    found: dict[int, Any] = {}
    for module in network.modules():
        config: Any = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            found[id(config)] = config
    return list(found.values())


def _register() -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if NAME not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(NAME, attend)

"""Vision transformers and ConvNeXt on a processor: weights as its library wants to read them.

A product with such weights need not reorder them at every pass, and does what follows it while the
result is in the cache: the bias, GELU, the sum with what went around it. Queries, keys and values
are one product. Of the last layer only the class token is brought to its end: the head reads no
other.

There is no gradient through it, and it is made of weights that stay as they are.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.models.forward.packed_convolutions import can_pack_convolutions, pack_convolutions
from stockpot.models.plain import vit
from stockpot.models.plain.answer import Answer

_CONVNEXT = "transformers.models.convnext.modeling_convnext"
_ROWS = 4096
"""Tokens of a piece; the order of weights is chosen for about so many."""


class _Product(NamedTuple):
    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, *layers: nn.Linear, times: Tensor | None = None) -> _Product:
        """Several layers that read the same as one; what they give may be scaled."""
        weight = torch.cat([layer.weight.detach() for layer in layers])
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        bias = torch.cat(biases) if biases else None
        if times is not None:
            weight = weight * times.detach()[:, None]
            bias = None if bias is None else bias * times.detach()
        return cls(torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS), bias)

    def __call__(self, values: Tensor, bends: str = "none") -> Tensor:
        run: Any = torch.ops.mkldnn._linear_pointwise
        result: Tensor = run(values, self.weight, self.bias, bends, [], "none")
        return result

    def added(self, values: Tensor, other: Tensor) -> Tensor:
        """The product and another tensor."""
        run: Any = torch.ops.mkldnn._linear_pointwise.binary
        result: Tensor = run(values, other, self.weight, self.bias, "add")
        return result


class PackedLayer(nn.Module):
    """One layer of the tower."""

    def __init__(self, like: vit.Layer) -> None:
        super().__init__()
        own = like.attention
        self.width, self.head = own.o_proj.in_features, own.head_dim
        self.before, self.after = like.layernorm_before, like.layernorm_after
        self.three = _Product.of(own.q_proj, own.k_proj, own.v_proj)
        self.out = _Product.of(own.o_proj)
        self.first, self.second = _Product.of(like.mlp.fc1), _Product.of(like.mlp.fc2)

    def forward(self, tokens: Tensor, asking: int) -> Tensor:
        """The first so many tokens behind this layer."""
        count, length, _ = tokens.shape
        heads = self.three(self.before(tokens)).view(count, length, 3, -1, self.head)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(
            query[:, :, :asking], key, value, scale=self.head**-0.5
        )
        mixed = mixed.transpose(1, 2).reshape(count, -1, self.width)
        tokens = self.out.added(mixed, tokens[:, :asking].contiguous())
        return self.second.added(self.first(self.after(tokens), "gelu"), tokens)


class PackedViT(nn.Module):
    """A vision transformer with its head."""

    def __init__(self, like: vit.ViT) -> None:
        super().__init__()
        self.embeddings = like.vit.embeddings
        layers: Any = like.vit.layers
        self.layers = nn.ModuleList(PackedLayer(layer) for layer in layers)
        self.layernorm = like.vit.layernorm
        self.classifier = like.classifier

    def forward(self, pixel_values: Tensor) -> Answer:
        tokens: Tensor = self.embeddings(pixel_values)
        for place, layer in enumerate(self.layers):
            last = place + 1 == len(self.layers)
            tokens = layer(tokens, 1 if last else tokens.shape[1])
        return Answer(self.classifier(self.layernorm(tokens[:, 0])))


class PackedBlock(nn.Module):
    """A block of ConvNeXt, whose maps have their channels last."""

    def __init__(self, like: Any) -> None:
        super().__init__()
        self.dwconv, self.layernorm = like.dwconv, like.layernorm
        self.first = _Product.of(like.pwconv1)
        self.second = _Product.of(like.pwconv2, times=like.layer_scale_parameter)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps to maps."""
        read = self.layernorm(self.dwconv(maps).permute(0, 2, 3, 1).contiguous())
        around = maps.permute(0, 2, 3, 1).contiguous()
        return self.second.added(self.first(read, "gelu"), around).permute(0, 3, 1, 2)


def pack(model: nn.Module, few: Tensor | None = None) -> None:
    """Change the vision transformers, ConvNeXt and residual blocks of a copy in place.

    Args:
        model: the copy.
        few: some of what it will see, where its batch norms are folded.
    """
    for name, module in list(model.named_modules()):
        if _is_known(module):
            made = PackedViT(module) if isinstance(module, vit.ViT) else PackedBlock(module)
            model.set_submodule(name, made.eval())
    if few is not None and can_pack_convolutions(model):
        pack_convolutions(model, few)


def can_pack(model: nn.Module) -> bool:
    """Whether there is a network to change, and a library that knows these products.

    Elsewhere than on x86 the library may be another one, and no faster.
    """
    return _has_products() and any(_is_known(module) for module in model.modules())


def _is_known(module: nn.Module) -> bool:
    """As it was made, in evaluation mode and in full precision, and nobody listens inside."""
    block = type(module).__name__ == "ConvNextLayer" and type(module).__module__ == _CONVNEXT
    ours = type(module) is vit.ViT and module.config._attn_implementation == "sdpa"
    if not ours and not (block and _bends_so(module.act)):
        return False
    known = {
        *(vit.Tower, vit.Embeddings, vit.PatchEmbeddings, vit.Layer, vit.Attention, vit.TwoLayers),
        *(vit.ViT, nn.ModuleList, nn.LayerNorm, nn.Linear, nn.Conv2d, nn.Dropout),
    }
    listens = ("_forward_hooks", "_forward_pre_hooks")
    plain = all(
        (block or type(part) in known)
        and not part.training
        and not any(getattr(part, own) for own in listens)
        for part in module.modules()
    )
    return plain and all(
        weight.dtype == torch.float32 and weight.device.type == "cpu"
        for weight in module.parameters()
    )


def _bends_so(act: Any) -> bool:
    """Whether it is the GELU that a product can do."""
    plain = isinstance(act, nn.GELU) and act.approximate == "none"
    return plain or getattr(act, "act", None) is F.gelu  # as transformers writes it


@cache
def _has_products() -> bool:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    try:
        _Product.of(nn.Linear(16, 16))(torch.zeros(2, 3, 16), "gelu")
    except (AttributeError, RuntimeError, TypeError):  # not in this build, or by another name
        return False
    return True

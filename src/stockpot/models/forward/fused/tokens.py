"""A vision transformer of ours as it is recorded: what its answer is made of, in few passes.

It has the weights of the tower in whose place it stands, under the same names, and no gradients.
Each sum is made together with the norm that reads it. Queries, keys and values are one product. Of
the last layer only the first token is asked, which the head reads: the sums and the two layers of
all others reach nothing. In bfloat16 what bends the inner tokens is part of the product before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.models.forward.fused.layers import by_kernel_or
from stockpot.models.plain import vit


class Patches(nn.Module):
    """The patches of a picture as the rows of one product."""

    def __init__(self, like: vit.PatchEmbeddings) -> None:
        super().__init__()
        self.projection = like.projection

    def forward(self, pixels: Tensor) -> Tensor:
        count, channels, height, width = pixels.shape
        weight = self.projection.weight
        side = weight.shape[-1]
        rows, columns = height // side, width // side
        parts = pixels[:, :, : rows * side, : columns * side]
        parts = parts.reshape(count, channels, rows, side, columns, side)
        lines = parts.permute(0, 2, 4, 1, 3, 5).reshape(count, rows * columns, -1)
        return F.linear(lines, weight.flatten(1), self.projection.bias)


class Attention(nn.Module):
    """Some tokens look at all of them."""

    def __init__(self, like: vit.Attention) -> None:
        super().__init__()
        self.head_dim = like.head_dim
        self.q_proj, self.k_proj = like.q_proj, like.k_proj
        self.v_proj, self.o_proj = like.v_proj, like.o_proj
        self._weight: Tensor | None = None
        self._bias: Tensor | None = None

    def forward(self, tokens: Tensor, *, first: bool) -> Tensor:
        """What the tokens, or only the `first`, take from all."""
        count, length, width = tokens.shape
        weight, bias = self._joined()
        if first:
            asked = F.linear(tokens[:, :1], weight[:width], None if bias is None else bias[:width])
            told = F.linear(tokens, weight[width:], None if bias is None else bias[width:])
            query = asked.view(count, 1, -1, self.head_dim)
            key, value = told.view(count, length, 2, -1, self.head_dim).unbind(2)
        else:
            rows = F.linear(tokens, weight, bias)
            query, key, value = rows.view(count, length, 3, -1, self.head_dim).unbind(2)
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
            scale=self.head_dim**-0.5,
        )  # fmt: skip
        result: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(count, -1, width))
        return result

    def _joined(self) -> tuple[Tensor, Tensor | None]:
        """Weights and biases of three layers below each other, of which theirs become parts.

        So whoever writes into a layer writes here. What is moved or changed in precision has
        memory of its own again, and is joined again.
        """
        own = self.q_proj.weight
        known = self._weight
        if known is None or known.data_ptr() != own.data_ptr() or known.dtype != own.dtype:
            layers = (self.q_proj, self.k_proj, self.v_proj)
            # A tensor of inference mode cannot stand in the place of another.
            with torch.inference_mode(False), torch.no_grad():
                self._weight = known = _below_each_other([layer.weight for layer in layers])
                biases = [layer.bias for layer in layers if layer.bias is not None]
                self._bias = _below_each_other(biases) if biases else None
        return known, self._bias


def _below_each_other(parts: Sequence[Tensor]) -> Tensor:
    whole = torch.cat([part.detach() for part in parts])
    start = 0
    for part in parts:
        part.data = whole[start : start + len(part)]
        start += len(part)
    return whole


class TwoLayers(nn.Module):
    """The same small network for every token."""

    def __init__(self, like: vit.TwoLayers) -> None:
        super().__init__()
        self.fc1, self.fc2 = like.fc1, like.fc2

    def forward(self, tokens: Tensor) -> Tensor:
        result: Tensor = self.fc2(self._bent(tokens))
        return result

    def _bent(self, tokens: Tensor) -> Tensor:
        first = self.fc1

        def plain() -> Tensor:
            return F.gelu(first(tokens))

        # The product's own way to bend is off by at most 0.0005, which is what bfloat16 makes of
        # a value of 0.13; a pass over the inner tokens takes a twelfth of all.
        if not tokens.is_cuda or tokens.dtype != torch.bfloat16:
            return plain()

        def together() -> Tensor:
            rows = torch._addmm_activation(
                first.bias, tokens.flatten(0, -2), first.weight.t(), use_gelu=True
            )
            return rows.view(*tokens.shape[:-1], -1)

        return by_kernel_or("gelu", together, plain)


class Tokens(nn.Module):
    """The tower; its answer is the first token alone."""

    def __init__(self, like: vit.Tower) -> None:
        super().__init__()
        self.config = like.config
        self.embeddings = like.embeddings
        self.layers = like.layers
        self.layernorm = like.layernorm
        embeddings: Any = self.embeddings
        embeddings.patch_embeddings = Patches(embeddings.patch_embeddings)
        layers: list[Any] = list(self.layers)
        for layer in layers:
            layer.attention = Attention(layer.attention)
            layer.mlp = TwoLayers(layer.mlp)

    def forward(self, pixels: Tensor) -> Tensor:
        layers: list[Any] = list(self.layers)
        tokens: Tensor = self.embeddings(pixels)
        read: Tensor = (layers[0].layernorm_before if layers else self.layernorm)(tokens)
        for place, layer in enumerate(layers):
            last = place + 1 == len(layers)
            follows = self.layernorm if last else layers[place + 1].layernorm_before
            change = layer.attention(read, first=last)
            tokens = tokens[:, :1].contiguous() if last else tokens
            tokens, read = add_norm(change, tokens, layer.layernorm_after)
            tokens, read = add_norm(layer.mlp(read), tokens, follows)
        return read


def add_norm(change: Tensor, tokens: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """The sum, and its layer norm."""

    def plain() -> tuple[Tensor, Tensor]:
        total = change + tokens
        return total, norm(total)

    if not tokens.is_cuda or not (change.is_contiguous() and tokens.is_contiguous()):
        return plain()

    def kernel() -> tuple[Tensor, Tensor]:
        from stockpot.models.forward.fused.kernels import add_norm as run

        return run(change, tokens, norm.weight, norm.bias, norm.eps)

    return by_kernel_or("norm", kernel, plain)


def has_tower(model: nn.Module) -> bool:
    """Whether a network has a tower that `with_tokens` knows, in evaluation mode."""
    return any(_is_known(module) for module in model.modules())


def with_tokens(model: nn.Module) -> bool:
    """Give a copy such towers; says whether there was one."""
    found = [module for module in model.modules() if _is_known(module)]
    for network in found:
        tower: Any = network.get_submodule("vit")
        network.set_submodule("vit", Tokens(tower).eval())
    return bool(found)


def _is_known(module: nn.Module) -> bool:
    """A network of ours as it was made: of its tower the head reads the first token alone."""
    if type(module) is not vit.ViT or type(module.vit) is not vit.Tower or module.training:
        return False
    tower = module.vit
    return (
        tower.config._attn_implementation == "sdpa"
        and type(tower.embeddings.patch_embeddings) is vit.PatchEmbeddings
        and all(
            type(layer) is vit.Layer
            and type(layer.attention) is vit.Attention
            and type(layer.mlp) is vit.TwoLayers
            for layer in tower.layers
        )
    )

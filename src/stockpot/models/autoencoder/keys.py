"""Key names of published autoencoders, brought to ours, and the shape they imply.

Ours are those of taming-transformers (`encoder.down.0.block.0.conv1.weight`). diffusers writes
`encoder.down_blocks.0.resnets.0.conv1.weight`, counts the decoder's levels from the other end and
keeps attention as linear layers. Everything else follows from the shapes of the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from stockpot.errors import BadCheckpointError
from stockpot.models.autoencoder.blocks import Activation
from stockpot.models.autoencoder.coders import Architecture

_BOOKS = ("quantize.embedding.weight", "quantize.embed.weight")
_OURS = ("encoder.", "decoder.", "quant_conv.", "post_quant_conv.", "quantize.proj.", *_BOOKS)
_PREFIXES = (
    "first_stage_model.",
    "model.first_stage_model.",
    "vqgan.",
    "vae.",
    "module.",
    "model.",
)
"""What stands before an autoencoder's names where it is a part of something larger, such as the
latent diffusion models that were trained on its latents."""
_ATTENTION = {
    "group_norm": "norm",
    "to_q": "q",
    "to_k": "k",
    "to_v": "v",
    "to_out.0": "proj_out",
    "spatial_norm": "norm",
    # What these layers were called before 2023.
    "query": "q",
    "key": "k",
    "value": "v",
    "proj_attn": "proj_out",
}
_PLAIN = {"conv_norm_out": "norm_out", "conv_shortcut": "nin_shortcut"}


def to_ours(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The autoencoder's tensors under our names; losses and discriminators are left out."""
    prefix = _prefix(state)
    inner = {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }
    kept = {name: tensor for name, tensor in inner.items() if name.startswith(_OURS)}
    if any(".down_blocks." in name for name in kept):
        levels = 1 + max(_numbers(kept, r"decoder\.up_blocks\.(\d+)\."))
        kept = {_from_diffusers(name, levels): tensor for name, tensor in kept.items()}
    renamed = {
        name: tensor[:, :, None, None] if _is_attention_matrix(name, tensor) else tensor
        for name, tensor in kept.items()
    }
    return _with_identity_convolutions(renamed)


def to_diffusers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse: our tensors under the names of a diffusers folder."""
    levels = 1 + max(_numbers(state, r"decoder\.up\.(\d+)\."))
    attention = {new: old for old, new in list(_ATTENTION.items())[:5]}
    renamed = {}
    for name, tensor in state.items():
        found = re.sub(r"mid\.block_([12])\.", lambda m: f"mid.block.{int(m[1]) - 1}.", name)
        found = found.replace("mid.attn_1.", "mid.attn.0.").replace("mid.", "mid_block.")
        found = re.sub(
            r"decoder\.up\.(\d+)\.", lambda m: f"decoder.up_blocks.{levels - 1 - int(m[1])}.", found
        )
        found = re.sub(r"encoder\.down\.(\d+)\.", r"encoder.down_blocks.\1.", found)
        found = re.sub(r"\.(down|up)sample\.", r".\1samplers.0.", found)
        if match := re.search(r"\.attn\.\d+\.(\w+)\.", found):
            is_norm = match[1] == "norm"
            spatial = is_norm and _is_spatial(state) and name.startswith("decoder.")
            written = "spatial_norm" if spatial else attention[match[1]]
            found = found.replace(f".{match[1]}.", f".{written}.")
            tensor = tensor.flatten(1) if tensor.ndim == 4 and not is_norm else tensor
        found = found.replace(".attn.", ".attentions.").replace(".block.", ".resnets.")
        for old, new in _PLAIN.items():
            found = found.replace(f".{new}.", f".{old}.")
        renamed[found] = tensor.contiguous()
    return renamed


def infer(
    state: Mapping[str, Tensor], *, groups: int, activation: Activation = "silu"
) -> Architecture:
    """The architecture that tensors under our names belong to."""
    try:
        first = state["encoder.conv_in.weight"]
        levels = 1 + max(_numbers(state, r"encoder\.down\.(\d+)\."))
        blocks = 1 + max(_numbers(state, r"encoder\.down\.0\.block\.(\d+)\."))
        channels = first.shape[0]
        widths = [state[f"encoder.down.{i}.block.0.conv1.weight"].shape[0] for i in range(levels)]
        codes = next((state[name] for name in _BOOKS if name in state), None)
        post = state["post_quant_conv.weight"]
    except (KeyError, ValueError) as problem:
        raise BadCheckpointError(
            f"these weights are not an autoencoder of the VQGAN family: {problem} is missing.",
            hint="Expected a taming-transformers checkpoint or a diffusers folder.",
        ) from problem
    if any(width % channels for width in widths):
        raise BadCheckpointError(f"levels of {widths} channels are no multiples of {channels}.")
    return Architecture(
        channels=channels,
        multipliers=tuple(width // channels for width in widths),
        blocks=blocks,
        latent_channels=post.shape[0],
        code_size=post.shape[1],
        codes=0 if codes is None else codes.shape[0],
        groups=groups,
        attention=tuple(sorted(set(_numbers(state, r"encoder\.down\.(\d+)\.attn\.", default=())))),
        middle_attention="encoder.mid.attn_1.q.weight" in state,
        colours=first.shape[1],
        activation=activation,
        spatial=_is_spatial(state),
        gumbel=_BOOKS[1] in state,
    )


def _prefix(state: Mapping[str, Tensor]) -> str:
    """What stands before all names of the autoencoder, if anything does."""
    known = "encoder.conv_in.weight"
    return next((prefix for prefix in ("", *_PREFIXES) if f"{prefix}{known}" in state), "")


def _is_spatial(state: Mapping[str, Tensor]) -> bool:
    return any(name.endswith("norm_out.conv_y.weight") for name in state)


def _from_diffusers(name: str, levels: int) -> str:
    found = re.sub(
        r"decoder\.up_blocks\.(\d+)\.", lambda m: f"decoder.up.{levels - 1 - int(m[1])}.", name
    )
    found = re.sub(r"encoder\.down_blocks\.(\d+)\.", r"encoder.down.\1.", found)
    found = re.sub(
        r"mid_block\.resnets\.(\d)\.", lambda m: f"mid.block_{int(m[1]) + 1}.", found
    ).replace("mid_block.attentions.0.", "mid.attn_1.")
    found = re.sub(r"\.(down|up)samplers\.0\.", r".\1sample.", found)
    found = found.replace(".attentions.", ".attn.").replace(".resnets.", ".block.")
    if re.search(r"\.attn(_1|\.\d+)\.", found):
        for old, new in _ATTENTION.items():
            found = found.replace(f".{old}.", f".{new}.")
    for old, new in _PLAIN.items():
        found = found.replace(f".{old}.", f".{new}.")
    return found


def _is_attention_matrix(name: str, tensor: Tensor) -> bool:
    return tensor.ndim == 2 and re.search(r"\.attn(_1|\.\d+)\.\w+\.weight$", name) is not None


def _with_identity_convolutions(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Some Gaussian autoencoders have no 1 x 1 convolutions around the latent: add neutral ones."""
    if "encoder.conv_out.weight" in state:
        double = state["encoder.conv_out.weight"].shape[0]
        for name, size in (("quant_conv", double), ("post_quant_conv", double // 2)):
            if f"{name}.weight" not in state:
                state[f"{name}.weight"] = torch.eye(size)[:, :, None, None]
                state[f"{name}.bias"] = torch.zeros(size)
    return state


def _numbers(
    state: Mapping[str, Tensor], pattern: str, default: tuple[int, ...] | None = None
) -> list[int]:
    found = [int(match[1]) for name in state if (match := re.match(pattern, name))]
    if not found and default is None:
        raise ValueError(pattern.replace("\\", ""))
    return found

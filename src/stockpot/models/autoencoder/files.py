"""Reading and writing autoencoders: diffusers folders and pipelines, and single checkpoint files.

A folder of ours is a diffusers `VQModel` folder: what is trained here opens there. A checkpoint
file is one of taming-transformers, or of a latent diffusion model that holds its autoencoder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from stockpot.checkpoints.diffusers_folder import autoencoder_place, folder_weights
from stockpot.checkpoints.open import read_tensors
from stockpot.errors import BadCheckpointError
from stockpot.files import write_atomic
from stockpot.models.autoencoder.blocks import ACTIVATIONS, Activation
from stockpot.models.autoencoder.keys import infer, to_diffusers, to_ours
from stockpot.models.autoencoder.model import Autoencoder
from stockpot.models.config import read_config
from stockpot.models.factory import fill

_WEIGHTS = "diffusion_pytorch_model.safetensors"
_PUBLISHED_GROUPS = 32  # taming-transformers never uses another number
_KINDS = ("VQModel", "AutoencoderKL")


def load_autoencoder(source: str | Path) -> Autoencoder:
    """An autoencoder of the zoo, a diffusers folder, pipeline or hub id, or a checkpoint file."""
    place = autoencoder_place(source)
    if place.is_dir():
        groups, activation = _from_config(place)
        state = read_tensors(folder_weights(place))
    else:
        groups, activation = _PUBLISHED_GROUPS, ACTIVATIONS[0]
        state = read_tensors(place)
    ours = {name: tensor.float() for name, tensor in to_ours(state).items()}
    shape = infer(ours, groups=groups, activation=activation)
    # Weights that are drawn and overwritten at once must not move the caller's random numbers.
    with torch.random.fork_rng(devices=[]):
        model = Autoencoder(shape)
    fill(model, ours, str(source))
    # Channels last is the faster layout for these convolutions on every device.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.eval().requires_grad_(False)


def save_autoencoder(model: Autoencoder, folder: Path, *, half: bool = False) -> None:
    """Write a diffusers folder; `half` stores the weights in half precision."""
    if model.shape.gumbel:
        raise BadCheckpointError("a Gumbel codebook has no form in a diffusers folder.")
    state = to_diffusers(model.state_dict())
    state = {name: (t.half() if half else t).cpu().contiguous() for name, t in state.items()}
    write_atomic(folder / "config.json", json.dumps(_config(model), indent=2) + "\n")
    write_atomic(folder / _WEIGHTS, save(state, metadata={"format": "pt"}))


def _from_config(folder: Path) -> tuple[int, Activation]:
    """What the tensors' shapes do not tell: the groups of the norms, and the activation."""
    config = read_config(folder)
    kind = config.get("_class_name", "")
    if kind not in _KINDS:
        raise BadCheckpointError(
            f"{folder} holds {kind or 'no diffusers model'}, expected VQModel or AutoencoderKL."
        )
    activation = config.get("act_fn", "silu")
    if activation not in ACTIVATIONS:
        raise BadCheckpointError(
            f"{folder}: act_fn: expected one of {', '.join(ACTIVATIONS)}, got {activation!r}."
        )
    return int(config.get("norm_num_groups", 32)), activation


def _config(model: Autoencoder) -> dict[str, Any]:
    shape = model.shape
    count = len(shape.multipliers)
    attends = [level in shape.attention for level in range(count)]
    common: dict[str, Any] = {
        "in_channels": shape.colours,
        "out_channels": shape.colours,
        "down_block_types": [
            "AttnDownEncoderBlock2D" if flag else "DownEncoderBlock2D" for flag in attends
        ],
        "up_block_types": [
            "AttnUpDecoderBlock2D" if flag else "UpDecoderBlock2D" for flag in reversed(attends)
        ],
        "block_out_channels": shape.widths,
        "layers_per_block": shape.blocks,
        "act_fn": shape.activation,
        "latent_channels": shape.latent_channels,
        "norm_num_groups": shape.groups,
        "mid_block_add_attention": shape.middle_attention,
    }
    if not model.is_quantised:
        return {"_class_name": "AutoencoderKL", **common}
    book = {"num_vq_embeddings": shape.codes, "vq_embed_dim": shape.code_size}
    kind = "spatial" if shape.spatial else "group"
    return {"_class_name": "VQModel", **common, **book, "norm_type": kind}

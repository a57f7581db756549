"""Reading and writing autoencoders: diffusers folders, and files of taming-transformers.

A folder of ours is a diffusers `VQModel` folder: what is trained here opens there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from stockpot.checkpoints.open import read_tensors
from stockpot.checkpoints.resolve import resolve
from stockpot.dynamic.autoencoder.keys import infer, to_diffusers, to_ours
from stockpot.dynamic.autoencoder.model import Autoencoder
from stockpot.errors import BadCheckpointError
from stockpot.files import write_atomic
from stockpot.models.config import read_config
from stockpot.models.factory import fill

_WEIGHTS = "diffusion_pytorch_model.safetensors"
_FILES = (_WEIGHTS, "diffusion_pytorch_model.bin", "model.safetensors", "pytorch_model.bin")
_PUBLISHED_GROUPS = 32  # taming-transformers never uses another number


def load_autoencoder(source: str | Path) -> Autoencoder:
    """An autoencoder of the zoo, of a diffusers folder or hub id, or of a checkpoint file."""
    path = resolve(source, "autoencoder").local()
    if path.is_dir():
        state, groups = _from_folder(path)
    else:
        state, groups = read_tensors(path), _PUBLISHED_GROUPS
    ours = {name: tensor.float() for name, tensor in to_ours(state).items()}
    model = Autoencoder(infer(ours, groups=groups))
    fill(model, ours, str(source))
    # Channels last is the faster layout for these convolutions on every device.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.eval().requires_grad_(False)


def save_autoencoder(model: Autoencoder, folder: Path, *, half: bool = False) -> None:
    """Write a diffusers folder; `half` stores the weights in half precision."""
    state = to_diffusers(model.state_dict())
    state = {name: (t.half() if half else t).cpu().contiguous() for name, t in state.items()}
    write_atomic(folder / "config.json", json.dumps(_config(model), indent=2) + "\n")
    write_atomic(folder / _WEIGHTS, save(state, metadata={"format": "pt"}))


def _from_folder(folder: Path) -> tuple[dict[str, Tensor], int]:
    config = read_config(folder)
    kind = config.get("_class_name", "")
    if kind not in ("VQModel", "AutoencoderKL"):
        raise BadCheckpointError(
            f"{folder} holds {kind or 'no diffusers model'}, expected VQModel or AutoencoderKL."
        )
    for name in _FILES:
        if (folder / name).is_file():
            return read_tensors(folder / name), int(config.get("norm_num_groups", 32))
    raise BadCheckpointError(f"{folder} has no weights; looked for {', '.join(_FILES)}.")


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
        "act_fn": "silu",
        "latent_channels": shape.latent_channels,
        "norm_num_groups": shape.groups,
        "mid_block_add_attention": shape.middle_attention,
    }
    if not model.is_quantised:
        return {"_class_name": "AutoencoderKL", **common}
    book = {"num_vq_embeddings": shape.codes, "vq_embed_dim": shape.code_size}
    return {"_class_name": "VQModel", **common, **book}

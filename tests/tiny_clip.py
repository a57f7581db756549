"""A whole CLIP of a few hundred weights, made from a seed in the layout of `CLIPModel`."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

WIDTH, JOINT, WORDS, CONTEXT, SIDE, PATCH, LAYERS = 8, 4, 12, 6, 8, 4, 2
SMALL = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": WIDTH,
    "projection_dim": JOINT,
}
CONFIG = {
    "architectures": ["CLIPModel"],
    "model_type": "clip",
    "projection_dim": JOINT,
    "text_config": {
        **SMALL, "model_type": "clip_text_model", "vocab_size": WORDS,
        "max_position_embeddings": CONTEXT, "eos_token_id": 11, "bos_token_id": 10,
        "pad_token_id": 0,
    },
    "vision_config": {
        **SMALL, "model_type": "clip_vision_model", "image_size": SIDE, "patch_size": PATCH,
    },
}  # fmt: skip


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the whole model."""
    found: dict[str, tuple[int, ...]] = {
        "logit_scale": (),
        "text_model.embeddings.token_embedding.weight": (WORDS, WIDTH),
        "text_model.embeddings.position_embedding.weight": (CONTEXT, WIDTH),
        "vision_model.embeddings.class_embedding": (WIDTH,),
        "vision_model.embeddings.patch_embedding.weight": (WIDTH, 3, PATCH, PATCH),
        "vision_model.embeddings.position_embedding.weight": ((SIDE // PATCH) ** 2 + 1, WIDTH),
        "visual_projection.weight": (JOINT, WIDTH),
        "text_projection.weight": (JOINT, WIDTH),
    }
    norms = ["text_model.final_layer_norm", "vision_model.pre_layrnorm"]
    norms.append("vision_model.post_layernorm")
    for tower in ("text_model", "vision_model"):
        for layer in range(LAYERS):
            place = f"{tower}.encoder.layers.{layer}"
            parts = [f"self_attn.{part}_proj" for part in ("q", "k", "v", "out")]
            for part in (*parts, "mlp.fc1", "mlp.fc2"):
                found[f"{place}.{part}.weight"] = (WIDTH, WIDTH)
                found[f"{place}.{part}.bias"] = (WIDTH,)
            norms += [f"{place}.layer_norm1", f"{place}.layer_norm2"]
    for norm in norms:
        found[f"{norm}.weight"] = found[f"{norm}.bias"] = (WIDTH,)
    return found


def weights(seed: int = 0) -> dict[str, Tensor]:
    """The model of a seed; every tensor has its own numbers."""
    found = {}
    for index, (name, shape) in enumerate(sorted(shapes().items())):
        generator = torch.Generator().manual_seed(1000 * seed + index)
        found[name] = torch.randn(shape, generator=generator) * 0.5
    return found


def vision_only(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The vision tower as transformers 5 saves it alone."""
    tower = "vision_model."
    return {n.removeprefix(tower): v for n, v in state.items() if n.startswith(tower)}


def write_clip(folder: Path, state: dict[str, Tensor] | None = None) -> Path:
    """Write the whole model as a folder."""
    folder.mkdir(parents=True)
    save_file(weights() if state is None else state, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder

"""Synthetic checkpoints for the benchmarks, and the peers' descriptions of them."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

CONFIG = {
    "architectures": ["CLIPVisionModel"],
    "model_type": "clip_vision_model",
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
    "projection_dim": 512,
}
CLIPS: dict[str, tuple[int, dict[str, int], dict[str, int]]] = {
    "zoo": (64, {"patch_size": 8, "hidden_size": 160, "intermediate_size": 480,
                 "num_hidden_layers": 6, "num_attention_heads": 5},
            {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2,
             "num_attention_heads": 4}),
    "b32": (224, {"patch_size": 32}, {}),
    "b16": (224, {"patch_size": 16}, {}),
}  # fmt: skip
"""Pixels a side, vision tower and text tower, where they are not those of transformers' CLIP."""


def clip_pool(folder: Path, size: str, experts: int) -> list[Path]:
    """A CLIP of random weights and experts near it: for time, not for accuracy."""
    import torch

    from stockpot.datasets.words.words import plain_words
    from stockpot.models.dual_encoder import new_dual_encoder
    from stockpot.models.load import load_model
    from stockpot.models.preprocess import Preprocess
    from stockpot.types import ImageSize

    side, vision, text = CLIPS[size]
    words = plain_words(("thing",), ("a photo of a {}.",)).prompts
    square = Preprocess(ImageSize(side, side), ImageSize(side, side))
    base = folder / "base"
    new_dual_encoder(base, prompts=words, preprocess=square, seed=0, vision=vision, text=text)
    found = [base]
    for seed in range(experts):
        model = load_model(base, classes=("thing",))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.network.vision_tower.parameters():
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
        found.append(model.save(folder / f"expert{seed}"))
    return found


def clip_shapes(layers: int = 12, width: int = 768, words: int = 0) -> dict[str, tuple[int, ...]]:
    """The tensors of a CLIP vision encoder; `words` adds an embedding table and MLPs of a LLM."""
    inner = 4 * width
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.class_embedding": (width,),
        "embeddings.patch_embedding.weight": (width, 3, 32, 32),
        "embeddings.position_embedding.weight": (50, width),
        "pre_layrnorm.weight": (width,),
        "pre_layrnorm.bias": (width,),
        "post_layernorm.weight": (width,),
        "post_layernorm.bias": (width,),
    }
    if words:
        shapes["embeddings.word_embedding.weight"] = (words, width)
    for layer in range(layers):
        prefix = f"encoder.layers.{layer}"
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            shapes[f"{prefix}.self_attn.{name}.weight"] = (width, width)
            shapes[f"{prefix}.self_attn.{name}.bias"] = (width,)
        for name in ("layer_norm1", "layer_norm2"):
            shapes[f"{prefix}.{name}.weight"] = (width,)
            shapes[f"{prefix}.{name}.bias"] = (width,)
        shapes[f"{prefix}.mlp.fc1.weight"] = (inner, width)
        shapes[f"{prefix}.mlp.fc1.bias"] = (inner,)
        shapes[f"{prefix}.mlp.fc2.weight"] = (width, inner)
        shapes[f"{prefix}.mlp.fc2.bias"] = (width,)
    return shapes


def new_resnet_18(folder: Path) -> Path:
    """An untrained ResNet-18 for pictures of 32 px and the classes of CIFAR-10."""
    from stockpot.models.huggingface import new_huggingface
    from stockpot.models.preprocess import Preprocess
    from stockpot.types import ImageSize

    names = [
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ]
    side = ImageSize(32, 32)
    widths = [64, 128, 256, 512]
    model = new_huggingface(
        "small_resnet", classes=names, preprocess=Preprocess(side, side), seed=0,
        embedding_size=widths[0], hidden_sizes=widths, depths=[2] * 4, layer_type="basic",
    )  # fmt: skip
    return model.save(folder)


def make_pool(folder: Path, members: int) -> None:
    """A random base and members that differ from it by noise, as Hugging Face folders."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)
    base = {n: torch.randn(s, generator=generator) * 0.02 for n, s in clip_shapes().items()}
    for index in range(-1, members):
        path = folder / ("base" if index < 0 else f"m{index}")
        path.mkdir()
        state = base
        if index >= 0:
            generator = torch.Generator().manual_seed(1000 + index)
            state = {
                name: value + 0.01 * torch.randn(value.shape, generator=generator)
                for name, value in base.items()
            }
        save_file(state, path / "model.safetensors", metadata={"format": "pt"})
        (path / "config.json").write_text(json.dumps(CONFIG))


def make_sparse(folder: Path, layers: int, width: int, words: int, files: int = 1) -> Path:
    """A checkpoint of zeros that takes no space on disk (bf16 for large ones), in some files.

    The first weight of each file is the folder's number, so that no two are the same.
    """
    folder.mkdir(parents=True)
    code, size = ("BF16", 2) if words else ("F32", 4)
    shapes = list(clip_shapes(layers, width, words).items())
    each = -(-len(shapes) // files)
    index = {}
    for number in range(files):
        name = f"model-{number + 1:05d}-of-{files:05d}.safetensors"
        path = folder / ("model.safetensors" if files == 1 else name)
        part = dict(shapes[number * each : (number + 1) * each])
        index |= dict.fromkeys(part, name)
        _write_sparse(path, part, code, size, float(folder.name))
    if not words:  # of a size that is written too, as a folder that loads
        (folder / "config.json").write_text(json.dumps(CONFIG))
    if files > 1:
        text = json.dumps({"metadata": {}, "weight_map": index})
        (folder / "model.safetensors.index.json").write_text(text)
    return folder


def _write_sparse(
    path: Path, shapes: dict[str, tuple[int, ...]], code: str, size: int, first: float
) -> None:
    header: dict[str, object] = {}
    offset = 0
    for name, shape in shapes.items():
        count = size * math.prod(shape)
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [offset, offset + count]}
        offset += count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(struct.pack("<f", first)[-size:])
        file.truncate(8 + len(text) + offset)


def fusionbench_config(pool: Path, members: int) -> Path:
    """A FusionBench model pool; its own CLIP pool does not import with transformers 5."""
    lines = ["_target_: fusion_bench.modelpool.BaseModelPool", "_recursive_: false", "models:"]
    loader = "transformers.CLIPVisionModel.from_pretrained"
    for name in ["base", *(f"m{i}" for i in range(members))]:
        key = "_pretrained_" if name == "base" else name
        entry = f"{{_target_: {loader}, pretrained_model_name_or_path: {pool / name}}}"
        lines.append(f"  {key}: {entry}")
    folder = pool / "fusionbench"
    (folder / "modelpool").mkdir(parents=True, exist_ok=True)
    (folder / "modelpool" / "pool.yaml").write_text("\n".join(lines) + "\n")
    return folder


def mergekit_recipe(pool: Path, members: int, method: str, parameters: str) -> Path:
    """A mergekit recipe with the same parameters for every member."""
    lines = [f"merge_method: {method}", "dtype: float32", "models:"]
    for index in range(members):
        lines.append(f"  - {{model: {pool / f'm{index}'}, parameters: {{{parameters}}}}}")
    if method != "linear":
        lines.append(f"base_model: {pool / 'base'}")
    path = pool / f"{method}.yml"
    path.write_text("\n".join(lines) + "\n")
    return path

"""Tiny LLaMAs from seeds, and mergekit recipes over them.

The published example files of mergekit are here with their shapes, rules and numbers, over four
models of four layers; the others ask for one rule each. What mergekit 0.1.5 makes of them is
recorded in `oracles/data/fuse/mergekit_recipes.safetensors`.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

LAYERS, WIDTH, WORDS = 4, 8, 8
RECORDED = ("q_proj", "down_proj", "layernorm", "embed_tokens", "model.norm", "lm_head")
"""Parts of the names of the tensors that are recorded."""
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": WORDS,
    "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}

RECIPES = {
    # examples/linear.yml
    "linear": """
        models:
          - {model: A, parameters: {weight: 1.0}}
          - {model: B, parameters: {weight: 0.3}}
          - {model: C, parameters: {weight: 0.5}}
        merge_method: linear
        dtype: float32
        """,
    # examples/ties.yml
    "ties": """
        models:
          - model: A
            parameters: {density: [1, 0.7, 0.1], weight: 1.0}
          - model: B
            parameters: {density: 0.5, weight: [0, 0.3, 0.7, 1]}
          - model: C
            parameters:
              density: 0.33
              weight: [{filter: mlp, value: 0.5}, {value: 0}]
        merge_method: ties
        base_model: BASE
        parameters: {normalize: true, int8_mask: true}
        dtype: float32
        """,
    # examples/bio-merge.yml, in the half precision of the original
    "bio-merge": """
        models:
          - {model: A, parameters: {density: 0.5, weight: 0.5}}
          - {model: B, parameters: {density: 0.5, weight: 0.5}}
        merge_method: ties
        base_model: BASE
        parameters: {normalize: false, int8_mask: true}
        dtype: float16
        """,
    # examples/gradient-slerp.yml
    "gradient-slerp": """
        slices:
          - sources:
              - {model: A, layer_range: [0, 4]}
              - {model: B, layer_range: [0, 4]}
        merge_method: slerp
        base_model: A
        parameters:
          t:
            - {filter: self_attn, value: [0, 0.5, 0.3, 0.7, 1]}
            - {filter: mlp, value: [1, 0.5, 0.7, 0.3, 0]}
            - {value: 0.5}
        dtype: float32
        """,
    # examples/orcamini-platy-44layer.yml: 24 of 40 layers and 20 of 40
    "stacked": """
        slices:
          - sources: [{model: A, layer_range: [0, 3]}]
          - sources: [{model: B, layer_range: [2, 4]}]
        merge_method: passthrough
        dtype: float32
        """,
    # examples/arcee_fusion.yml
    "arcee_fusion": """
        models: [{model: A}, {model: B}]
        merge_method: arcee_fusion
        base_model: A
        dtype: float32
        """,
    "scaled-stack": """
        slices:
          - sources: [{model: A, layer_range: [0, 2]}]
          - sources:
              - model: A
                layer_range: [1, 4]
                parameters:
                  scale: [{filter: down_proj, value: 0}, {filter: q_proj, value: [1, 0.5]}]
        merge_method: passthrough
        """,
    "breadcrumbs": """
        models:
          - {model: A, parameters: {density: 0.5, gamma: 0.2, weight: [1, 0.5]}}
          - {model: B, parameters: {density: [0.3, 0.9], gamma: [0.3, 0.1], weight: 0.8}}
          - {model: BASE}
        merge_method: breadcrumbs
        base_model: BASE
        parameters: {lambda: 0.6}
        """,
    "breadcrumbs_ties": """
        models:
          - {model: A, parameters: {density: 0.6, weight: 1}}
          - {model: B, parameters: {density: 0.4, gamma: 0.3, weight: 2}}
        merge_method: breadcrumbs_ties
        base_model: BASE
        parameters: {normalize: true, gamma: 0.05, lambda: 0.9}
        """,
    "task_arithmetic": """
        models:
          - {model: A, parameters: {weight: [{filter: layernorm, value: 2}]}}
          - {model: B, parameters: {weight: [0.2, 0.9], lambda: 7}}
        merge_method: task_arithmetic
        base_model: BASE
        parameters: {weight: [1, 0.5, 0], normalize: true, lambda: [0.5, 1]}
        """,
    "sliced-ties": """
        slices:
          - sources:
              - {model: BASE, layer_range: [0, 2]}
              - {model: A, layer_range: [0, 2], parameters: {weight: [1, 0.3]}}
              - {model: B, layer_range: [2, 4], parameters: {weight: 0.7, density: [0.9, 0.2]}}
            parameters: {density: 0.8}
          - sources:
              - {model: A, layer_range: [1, 4], parameters: {weight: 0.4}}
              - {model: BASE, layer_range: [1, 4]}
              - {model: B, layer_range: [1, 4], parameters: {weight: 0.6}}
            parameters: {lambda: 0.5}
        merge_method: ties
        base_model: BASE
        parameters: {density: 0.4}
        """,
    "model_stock": """
        models: [{model: A}, {model: B}, {model: C}]
        merge_method: model_stock
        base_model: BASE
        """,
    "sce": """
        models: [{model: A}, {model: B}, {model: C}]
        merge_method: sce
        base_model: BASE
        parameters: {select_topk: [0.9, 0.3]}
        """,
    "karcher": """
        models: [{model: A}, {model: B}]
        merge_method: karcher
        parameters: {max_iter: 12, tol: 1.0e-6}
        """,
    "nuslerp": """
        models:
          - {model: A, parameters: {weight: [1, 3]}}
          - {model: B, parameters: {weight: 1}}
        merge_method: nuslerp
        """,
    "nuslerp-around": """
        models:
          - {model: A, parameters: {weight: [1, 3]}}
          - {model: B, parameters: {weight: 1}}
        merge_method: nuslerp
        base_model: BASE
        parameters: {nuslerp_flatten: false, nuslerp_row_wise: [{filter: mlp, value: true}]}
        """,
    "multislerp": """
        models:
          - {model: A, parameters: {weight: [0.2, 0.9]}}
          - {model: B, parameters: {weight: 0.5}}
          - {model: C, parameters: {weight: 1}}
        merge_method: multislerp
        base_model: BASE
        parameters: {normalize_weights: false}
        """,
    "nearswap": """
        models: [{model: A}]
        merge_method: nearswap
        base_model: BASE
        parameters: {t: [0.02, 0.3]}
        """,
    "ram": """
        models: [{model: A}, {model: E}, {model: F}]
        merge_method: ram
        base_model: BASE
        parameters: {epsilon: 0.15}
        """,
    "ramplus_tl": """
        models: [{model: A}, {model: E}, {model: F}]
        merge_method: ramplus_tl
        base_model: BASE
        parameters: {epsilon: 0.15, r: 0.4, alpha: [{filter: mlp, value: 0.9}, {value: 0.3}]}
        """,
    "lora": """
        models:
          - {model: A+LORA, parameters: {weight: 0.25}}
          - {model: {model: {path: B}}, parameters: {weight: 0.75}}
        merge_method: linear
        dtype: float32
        """,
    # E changes even entries alone and F odd ones, so that the output shows what was dropped.
    "dare_linear": """
        models:
          - {model: E, parameters: {density: [0.3, 0.9], weight: 0.5}}
          - {model: F, parameters: {density: 0.6, weight: 1.5}}
        merge_method: dare_linear
        base_model: BASE
        """,
    "della_linear": """
        models:
          - {model: E, parameters: {density: [0.4, 0.7], epsilon: 0.1, weight: 0.5}}
          - {model: F, parameters: {density: 0.6, epsilon: 0.3, weight: 1.5}}
        merge_method: della_linear
        base_model: BASE
        parameters: {rescale: false, lambda: 0.5}
        """,
}


def names() -> dict[str, tuple[int, ...]]:
    square = (WIDTH, WIDTH)
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (WORDS, WIDTH)}
    for layer in range(LAYERS):
        place = f"model.layers.{layer}"
        for part in ("q", "k", "v", "o"):
            found[f"{place}.self_attn.{part}_proj.weight"] = square
        for part in ("gate", "up", "down"):
            found[f"{place}.mlp.{part}_proj.weight"] = square
        found[f"{place}.input_layernorm.weight"] = (WIDTH,)
        found[f"{place}.post_attention_layernorm.weight"] = (WIDTH,)
    return {**found, "model.norm.weight": (WIDTH,), "lm_head.weight": (WORDS, WIDTH)}


def model(name: str) -> dict[str, Tensor]:
    """The weights of BASE, of its neighbours A, B and C, or of the sparse ones E and F."""
    start = {key: _draw(shape, seed=0) * 0.5 for key, shape in names().items()}
    if name == "BASE":
        return start
    found = {}
    for index, (key, values) in enumerate(start.items()):
        change = _draw(tuple(values.shape), seed=1000 * ord(name[0]) + index) * 0.2
        if name in ("E", "F"):
            change.view(-1)[0 if name == "F" else 1 :: 2] = 0
        found[key] = values + change
    return found


def adapter() -> dict[str, Tensor]:
    """A LoRA of rank 2 over the queries, as peft names it."""
    found = {}
    for layer in range(LAYERS):
        place = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        found[f"{place}.lora_A.weight"] = _draw((2, WIDTH), seed=50 + layer)
        found[f"{place}.lora_B.weight"] = _draw((WIDTH, 2), seed=70 + layer)
    return found


def write_models(folder: Path) -> dict[str, Path]:
    """Write all models and the adapter; name -> folder."""
    made = {}
    for name in ("BASE", "A", "B", "C", "E", "F"):
        made[name] = folder / name
        made[name].mkdir()
        save_file(model(name), made[name] / "model.safetensors", metadata={"format": "pt"})
        (made[name] / "config.json").write_text(json.dumps(CONFIG))
    made["LORA"] = folder / "LORA"
    made["LORA"].mkdir()
    save_file(adapter(), made["LORA"] / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": ["q_proj"]}
    settings["base_model_name_or_path"] = str(made["BASE"])
    (made["LORA"] / "adapter_config.json").write_text(json.dumps(settings))
    return made


def write_recipe(name: str, made: dict[str, Path], path: Path, text: str | None = None) -> Path:
    """Write a recipe with the models' folders in place of their letters."""
    content = RECIPES[name] if text is None else text
    for letter, place in made.items():
        for before, after in ((": ", ","), (": ", "}"), (": ", "+"), (": ", "\n"), ("+", ",")):
            content = content.replace(f"{before}{letter}{after}", f"{before}{place}{after}")
    path.write_text(content)
    return path


def _draw(shape: tuple[int, ...], *, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))

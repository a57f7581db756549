"""The configuration of a CLIP: transformers' `config.json` and open_clip's `open_clip_config.json`.

Sizes come from the weights. What weights do not show comes from the other program's configuration:
the number of heads, the activation (OpenAI's `quick_gelu` or `gelu`) and where a text is pooled.
open_clip pools at the token with the highest number, which is the end of the text in CLIP's
vocabulary; transformers pools at `eos_token_id`, unless that is 2, which means the highest number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from stockpot.checkpoints.clip.names import pair_of_open_clip
from stockpot.checkpoints.layouts import Program
from stockpot.checkpoints.source import TensorInfo
from stockpot.errors import BadCheckpointError
from stockpot.foreign import read_json_object

Activation = Literal["quick_gelu", "gelu"]
OPEN_CLIP_CONFIG = "open_clip_config.json"
_MEAN = [0.48145466, 0.4578275, 0.40821073]
_STD = [0.26862954, 0.26130258, 0.27577711]
_HEAD_WIDTH = 64
_INTERPOLATION = {2: "bilinear", 3: "bicubic"}
# Keys of open_clip's towers that change no forward pass, or that are taken over.
_KNOWN = {
    "image_size", "layers", "width", "patch_size", "head_width", "mlp_ratio", "patch_dropout",
    "context_length", "vocab_size", "heads", "hf_tokenizer_name", "tokenizer_kwargs", "eos_id",
    "pad_id", "output_tokens",
}  # fmt: skip
_HARMLESS = {"pool_type": ("tok", "argmax", "eos"), "proj_type": ("linear",)}
_EARLY_END = 2
"""An `eos_token_id` that early CLIP configurations hold by mistake; the highest number is meant."""


def translate_settings(
    origin: Path | None,
    folder: Path,
    infos: Mapping[str, TensorInfo],
    program: Program,
    *,
    activation: Activation | None = None,
) -> bool:
    """Write the configuration of a program from what lies beside the original weights.

    Args:
        origin: the folder of the weights under their former names; none without one.
        folder: where to write.
        infos: the weights, under canonical names of `program`.
        program: whose configuration to write.
        activation: of the towers, where no configuration says it.

    Returns:
        Whether it could be written: not without a configuration and an activation.
    """
    if program == "hf":
        config = _read(origin, OPEN_CLIP_CONFIG)
        if config is None and activation is None:
            return False
        written = _hf(infos, (config or {}).get("model_cfg", {}), activation)
        _write(folder / "config.json", written)
        side = int(written.get("vision_config", written)["image_size"])
        asked = (config or {}).get("preprocess_cfg", {})
        _write(folder / "preprocessor_config.json", _hf_preprocess(asked, side))
        (folder / OPEN_CLIP_CONFIG).unlink(missing_ok=True)
        return True
    config = _read(origin, "config.json")
    if config is None:
        return False
    pixels = _read(origin, "preprocessor_config.json") or {}
    _write(
        folder / OPEN_CLIP_CONFIG,
        {
            "model_cfg": _open_clip(infos, config),
            "preprocess_cfg": {
                "mean": pixels.get("image_mean", _MEAN),
                "std": pixels.get("image_std", _STD),
                "interpolation": _INTERPOLATION.get(pixels.get("resample", 3), "bicubic"),
                "resize_mode": "shortest" if pixels.get("do_center_crop", True) else "squash",
            },
        },
    )
    for name in ("config.json", "preprocessor_config.json"):
        (folder / name).unlink(missing_ok=True)
    return True


def _read(folder: Path | None, name: str) -> dict[str, Any] | None:
    if folder is None or not (folder / name).is_file():
        return None
    return read_json_object(folder / name, BadCheckpointError)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _sizes(infos: Mapping[str, TensorInfo], tower: str, program: Program) -> dict[str, int]:
    """What the shapes of a tower say, asked by open_clip's names."""

    def shape(name: str) -> tuple[int, ...]:
        own = name
        if program == "hf":
            pair = pair_of_open_clip(name)
            own = pair.hf[0] if pair else name
        return infos[own].shape

    layers = 0
    while _has(infos, f"{tower}transformer.resblocks.{layers}.ln_1.weight", program):
        layers += 1
    first = f"{tower}transformer.resblocks.0."
    places, width = shape(f"{tower}positional_embedding")
    found = {"layers": layers, "width": width, "inner": shape(f"{first}mlp.c_fc.weight")[0]}
    if not tower:
        return found | {"context": places, "vocabulary": shape("token_embedding.weight")[0]}
    _, channels, _, patch = shape("visual.conv1.weight")
    side = math.isqrt(places - 1) * patch
    return found | {"channels": channels, "patch": patch, "side": side}


def _has(infos: Mapping[str, TensorInfo], name: str, program: Program) -> bool:
    pair = pair_of_open_clip(name)
    return (pair.hf[0] if pair and program == "hf" else name) in infos


def _hf(
    infos: Mapping[str, TensorInfo], config: Mapping[str, Any], activation: Activation | None
) -> dict[str, Any]:
    vision_cfg, text_cfg = config.get("vision_cfg", {}), config.get("text_cfg", {})
    for tower, settings in (("vision_cfg", vision_cfg), ("text_cfg", text_cfg)):
        for key, value in settings.items():
            if value and key not in _KNOWN and value not in _HARMLESS.get(key, ()):
                raise BadCheckpointError(
                    f"{OPEN_CLIP_CONFIG}: {tower} has {key}: {value!r}, which a CLIP of "
                    "transformers cannot do."
                )
    act = activation or ("quick_gelu" if config.get("quick_gelu") else "gelu")
    see = _sizes(infos, "visual.", "hf")
    vision = {
        "model_type": "clip_vision_model",
        "hidden_size": see["width"],
        "intermediate_size": see["inner"],
        "num_hidden_layers": see["layers"],
        "num_attention_heads": see["width"] // vision_cfg.get("head_width", _HEAD_WIDTH),
        "image_size": see["side"],
        "patch_size": see["patch"],
        "num_channels": see["channels"],
        "hidden_act": act,
        "layer_norm_eps": 1e-5,
    }
    projection = infos.get("visual_projection.weight")
    if projection is not None:
        vision["projection_dim"] = projection.shape[0]
    if "text_model.embeddings.token_embedding.weight" not in infos:
        kind = "CLIPVisionModel" if projection is None else "CLIPVisionModelWithProjection"
        return {"architectures": [kind], **vision}
    read = _sizes(infos, "", "hf")
    last = read["vocabulary"] - 1
    end = text_cfg.get("eos_id", last) if text_cfg.get("pool_type") == "eos" else last
    text = {
        "model_type": "clip_text_model",
        "hidden_size": read["width"],
        "intermediate_size": read["inner"],
        "num_hidden_layers": read["layers"],
        "num_attention_heads": text_cfg.get("heads", read["width"] // _HEAD_WIDTH),
        "max_position_embeddings": read["context"],
        "vocab_size": read["vocabulary"],
        "bos_token_id": last - 1,
        "eos_token_id": end,
        "pad_token_id": end,
        "hidden_act": act,
        "layer_norm_eps": 1e-5,
        "projection_dim": infos["text_projection.weight"].shape[0],
    }
    return {
        "architectures": ["CLIPModel"],
        "model_type": "clip",
        "projection_dim": text["projection_dim"],
        "logit_scale_init_value": 2.6592,
        "text_config": text,
        "vision_config": vision,
    }


def _hf_preprocess(asked: Mapping[str, Any], side: int) -> dict[str, Any]:
    squash = asked.get("resize_mode") == "squash"
    resample = next((k for k, v in _INTERPOLATION.items() if v == asked.get("interpolation")), 3)
    square = {"height": side, "width": side}
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": square if squash else {"shortest_edge": side},
        "resample": resample,
        "do_center_crop": not squash,
        "crop_size": square,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(asked.get("mean", _MEAN)),
        "image_std": list(asked.get("std", _STD)),
    }


def _open_clip(infos: Mapping[str, TensorInfo], config: Mapping[str, Any]) -> dict[str, Any]:
    vision_config = config.get("vision_config", config)
    text_config = config.get("text_config", {})
    act = vision_config.get("hidden_act", "quick_gelu")
    if act not in get_args(Activation) or text_config.get("hidden_act", act) != act:
        raise BadCheckpointError(
            f"config.json: expected one hidden_act of quick_gelu or gelu for both towers, got "
            f"{act!r} and {text_config.get('hidden_act', act)!r}; open_clip knows no other."
        )
    see = _sizes(infos, "visual.", "open_clip")
    heads = vision_config.get("num_attention_heads", 12)
    vision = {
        "image_size": see["side"],
        "layers": see["layers"],
        "width": see["width"],
        "head_width": see["width"] // heads,
        "patch_size": see["patch"],
        "mlp_ratio": see["inner"] / see["width"],
    }
    found = {"embed_dim": config.get("projection_dim", 512), "quick_gelu": act == "quick_gelu"}
    if "visual.proj" in infos:
        found["embed_dim"] = infos["visual.proj"].shape[1]
    if "token_embedding.weight" not in infos:
        return {**found, "vision_cfg": vision}
    read = _sizes(infos, "", "open_clip")
    text: dict[str, Any] = {
        "context_length": read["context"],
        "vocab_size": read["vocabulary"],
        "width": read["width"],
        "heads": text_config.get("num_attention_heads", 8),
        "layers": read["layers"],
        "mlp_ratio": read["inner"] / read["width"],
    }
    end = text_config.get("eos_token_id", read["vocabulary"] - 1)
    if end not in (_EARLY_END, read["vocabulary"] - 1):
        text |= {"pool_type": "eos", "eos_id": end}
    return {**found, "vision_cfg": vision, "text_cfg": text}

"""What `config.json` says a folder holds; everything that loads one asks here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from stockpot.checkpoints.resolve import zoo_folder
from stockpot.errors import BadCheckpointError
from stockpot.foreign import read_json_object

DUAL_ENCODERS = ("clip", "siglip", "siglip2")
VISION_TOWERS = ("clip_vision_model", "siglip_vision_model", "siglip2_vision_model")
MODULE_TYPE = "stockpot_module"
ENSEMBLE = "ensemble"
"""The kind of module whose members answer together, each from a folder of its own."""
Kind = Literal["module", "fine_tuned", "zero_shot", "classifier", "timm"]
PLACES = ("dual_encoder", "_name_or_path")
"""The keys of a vision tower's config that say where its dual encoder is."""
ADAPTERS = ("adapter_config.json", "small_config.json")
"""The files that make a folder an adapter, or a change of a base that is small."""
HEAD = "unit_length"
"""What stands under `head`: a linear layer on unit-length embeddings."""


def read_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a Hugging Face folder."""
    path = folder / "config.json"
    if not path.exists():
        # Imported only here: it imports torch, which who reads a config may not have yet.
        from stockpot.checkpoints.clip.settings import OPEN_CLIP_CONFIG

        if (folder / OPEN_CLIP_CONFIG).is_file():
            raise BadCheckpointError(
                f"{folder} is a model of open_clip, under its names.",
                hint="Write it as transformers reads it: "
                f"stockpot convert {folder} --layout hf -o OUT",
            )
        raise BadCheckpointError(
            f"{folder} has no config.json: expected a Hugging Face model folder.",
            hint="For a bare state dict give a factory: `module.py:factory` with weights=FILE.",
        )
    return read_json_object(path, BadCheckpointError)


def adapter_config(folder: Path) -> Path | None:
    """The file that makes a folder an adapter; none where it is a whole model."""
    return next((folder / name for name in ADAPTERS if (folder / name).is_file()), None)


def kind_of(config: Mapping[str, Any]) -> Kind:
    """What a folder with this config.json holds, and so what loads it."""
    if config.get("model_type") == MODULE_TYPE:
        return "module"
    if config.get("head") == HEAD:
        return "fine_tuned"
    if "architecture" in config and "model_type" not in config:
        return "timm"  # it names one of timm's functions
    return "zero_shot" if has_text_head(config) else "classifier"


def plain_inside(folder: Path, config: Mapping[str, Any]) -> Path:
    """The ordinary model folder inside a module's: its base, or an ensemble's first member."""
    return folder / (str(config["members"][0]) if config["kind"] == ENSEMBLE else "base")


def has_text_head(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of a dual encoder or its tower: its head is made of text."""
    has_head = any("ForImageClassification" in name for name in config.get("architectures") or ())
    return (config.get("model_type") in DUAL_ENCODERS or is_vision_tower(config)) and not has_head


def is_vision_tower(config: Mapping[str, Any]) -> bool:
    """Whether a folder holds a vision tower without its text tower."""
    return config.get("model_type") in VISION_TOWERS


def named_dual_encoder(config: Mapping[str, Any]) -> str:
    """Where a vision tower's config says its dual encoder is; empty where it does not."""
    return next((str(config[key]) for key in PLACES if config.get(key)), "")


def nearby_dual_encoder(folder: Path, named: str) -> tuple[Path, str] | None:
    """A dual encoder in the zoo or on this machine, and a name that means it from anywhere."""
    if found := zoo_folder(named):
        return found, found.name
    # A folder that moved together with its dual encoder still finds it beside itself.
    beside = folder.parent / Path(named).name
    places = (beside,) if named.startswith("..") else (Path(named).expanduser(), beside)
    for place in places:
        if _is_whole(place):
            return place, str(place.resolve())
    found = zoo_folder(Path(named).name)
    return (found, found.name) if found else None


def _is_whole(folder: Path) -> bool:
    return (folder / "config.json").is_file() and not is_vision_tower(read_config(folder))

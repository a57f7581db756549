"""`load_model`: one name for every place a model can come from.

| source | what |
|---|---|
| `icons-resnet` or `zoo:icons-resnet` | an embedded model |
| `path/to/folder` or `org/name` | a Hugging Face folder or hub id (`org/name@revision`) |
| `module.py:factory` or `package.module:attribute` | a function, with `weights=FILE` |
| `timm:NAME`, `open_clip:ARCHITECTURE/PRETRAINED` | models of those packages |
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stockpot.errors import BadParameterError, UnknownNameError, UserError, did_you_mean
from stockpot.models.classifier import Classifier
from stockpot.models.embedded import embedded_folder, zoo_folder, zoo_names
from stockpot.models.fine_tuned import is_fine_tuned, load_fine_tuned
from stockpot.models.huggingface import load_huggingface, read_config, resolve
from stockpot.models.modules.folder import is_module, load_module
from stockpot.models.vision_tower import is_vision_tower
from stockpot.models.zero_shot import DUAL_ENCODERS, load_zero_shot

__all__ = ["HUB_ID", "load_model", "zero_shot_options", "zoo_folder", "zoo_names"]

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


def load_model(source: str | Path | Classifier, **options: Any) -> Classifier:
    """Load a classifier; the module's table lists what `source` may be.

    A dual encoder (CLIP, SigLIP) needs `classes=` for its zero-shot head. Other options belong to
    the kind of source, and unknown ones are refused.
    """
    if isinstance(source, Classifier):
        return source
    loader, location = _loader(str(source), options)
    allowed = inspect.signature(loader).parameters
    for key in options:
        if key not in allowed:
            known = [name for name in list(allowed)[1:] if name != "name"]
            raise BadParameterError(
                f"{source}: unknown model option {key!r}.{did_you_mean(key, known)} "
                f"It takes: {', '.join(known)}."
            )
    if location != str(source):
        options.setdefault("name", str(source))
    return loader(location, **options)


def _loader(source: str, options: dict[str, Any]) -> tuple[Callable[..., Classifier], str]:
    if source.startswith("timm:"):
        from stockpot.models.extras import load_timm

        return load_timm, source.removeprefix("timm:")
    if source.startswith("open_clip:"):
        from stockpot.models.extras import load_open_clip

        return load_open_clip, source.removeprefix("open_clip:")
    if source.startswith("zoo:") or source in zoo_names():
        name = source.removeprefix("zoo:")
        if name not in zoo_names():
            raise UnknownNameError("zoo model", name, zoo_names())
        return _hugging_face(str(zoo_folder() / name), options)
    if re.search(r"(\.py|[\w.]+):[A-Za-z_][\w.]*$", source) and not Path(source).exists():
        from stockpot.models.factory import load_factory

        return load_factory, source
    path = Path(source)
    if path.is_file():
        raise UserError(
            f"{source} is a file of weights without an architecture.",
            hint=f"Give a factory: `module.py:factory` with weights={source}.",
        )
    looks_like_path = path.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1
    if not path.is_dir() and (looks_like_path or "/" not in source):
        raise UserError(
            f"no model at {source!r}.{did_you_mean(source, zoo_names())} Expected a folder, a zoo "
            f"model ({', '.join(zoo_names()) or 'none embedded'}), a hub id, or module.py:factory."
        )
    if "@" in source and not path.is_dir():
        source, options["revision"] = source.split("@", 1)
    return _hugging_face(source, options)


def _hugging_face(source: str, options: dict[str, Any]) -> tuple[Callable[..., Classifier], str]:
    config = read_config(resolve(source, revision=options.get("revision")))
    if is_module(config):
        return load_module, source
    if is_fine_tuned(config):
        return load_fine_tuned, source
    if not _is_dual_encoder(config):
        return load_huggingface, source
    if "classes" not in options:
        raise UserError(
            f"{source} is a dual encoder without a head: its classes come from the data.",
            hint="Give classes=..., or measure it with --data.",
        )
    return load_zero_shot, source


def zero_shot_options(
    source: str | Path | Classifier,
    classes: tuple[str, ...],
    templates: tuple[str, ...],
    **options: Any,
) -> dict[str, Any]:
    """The options with which `load_model` makes `source` a classifier for these classes.

    A model with a head of its own needs none of them; a dual encoder needs both.
    """
    if isinstance(source, Classifier) or "classes" in options:
        return options
    if str(source).startswith("open_clip:"):
        return {"classes": classes, "templates": templates} | options
    if has_text_head(source, options.get("revision")) or _is_module_folder(source):
        return {"classes": classes, "templates": templates} | options
    return options


def has_text_head(source: str | Path, revision: str | None = None) -> bool:
    """Whether a source is a dual encoder, or a vision tower of one: its head is made of text."""
    folder = Path(source) if Path(source).is_dir() else embedded_folder(str(source))
    if folder is None and HUB_ID.fullmatch(str(source)):
        repository, _, tail = str(source).partition("@")
        folder = resolve(repository, revision=tail or revision)
    return folder is not None and _is_dual_encoder(read_config(folder))


def _is_module_folder(source: str | Path) -> bool:
    """Whether a source is a module: the classes say which of its tasks is meant."""
    return (Path(source) / "config.json").is_file() and is_module(read_config(Path(source)))


def _is_dual_encoder(config: dict[str, Any]) -> bool:
    has_head = any("ForImageClassification" in name for name in config.get("architectures") or ())
    return (config.get("model_type") in DUAL_ENCODERS or is_vision_tower(config)) and not has_head

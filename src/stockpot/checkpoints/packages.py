"""Weights of a model that timm or open_clip names, as that package finds or fetches them.

`timm:NAME` is the pretrained model of that name, `open_clip:ARCHITECTURE/PRETRAINED` the one with
that tag, or with the weights of a file where PRETRAINED is the path of one. The package's own
configuration comes along, so that what is fused from them loads with it (`local-dir:FOLDER`).
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from stockpot.checkpoints.state_dict import StateDictSource
from stockpot.errors import BadCheckpointError, MissingDependencyError

EXTRAS = {"timm": "timm", "open_clip": "openclip"}
_OF_TIMM = ("input_size", "mean", "std", "crop_pct", "crop_mode", "interpolation", "pool_size")


def import_extra(module: str, extra: str) -> Any:
    """Import an optional package, or say exactly why it cannot be used and what to do."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        hint = f"Install it with: pip install 'stockpot[{extra}]'"
        if "torchvision" in str(problem):
            hint = (
                f"{module} needs torchvision. Install torch and torchvision of one build from the "
                f"same index, then: pip install 'stockpot[{extra}]'"
            )
        raise MissingDependencyError(
            f"{module} cannot be imported: {problem}.", hint=hint
        ) from None
    except RuntimeError as problem:
        # A torchvision built for another torch fails with a missing operator, not an ImportError.
        reason = str(problem).strip().splitlines()[0]
        raise MissingDependencyError(
            f"{module} is installed but broken here: {reason}.",
            hint="Its torchvision does not match this torch; reinstall both from one index.",
        ) from None


def open_package(package: str, name: str, *, label: str) -> StateDictSource:
    """The weights of a named model, with the package's configuration in a folder beside them.

    Args:
        package: `timm` or `open_clip`.
        name: as the package names its models; of open_clip with `/PRETRAINED`.
        label: how messages call it.
    """
    state, folder = _named_model(package, name)
    return _PackageSource(state, folder, label)


class _PackageSource(StateDictSource):
    def __init__(
        self, state: Mapping[str, Tensor], folder: TemporaryDirectory[str], label: str
    ) -> None:
        super().__init__(state, label=label, folder=Path(folder.name))
        self._folder = folder  # it is removed when nobody holds it any more


@lru_cache(maxsize=4)  # a record and a fusion ask for the same model
def _named_model(package: str, name: str) -> tuple[Mapping[str, Tensor], TemporaryDirectory[str]]:
    library = import_extra(package, EXTRAS[package])
    try:
        model, files = (_timm if package == "timm" else _open_clip)(library, name)
    except BadCheckpointError:
        raise
    except Exception as problem:  # packages raise many unrelated kinds
        reason = (str(problem).strip() or type(problem).__name__).partition("\n")[0].rstrip(".")
        raise BadCheckpointError(
            f"{package}:{name}: {package} could not give its weights ({reason}).",
            hint="Without a network only what lies in its cache can be had; a file of weights can "
            "be given as it is.",
        ) from problem
    folder = TemporaryDirectory(prefix="stockpot-")
    for file, content in files.items():
        text = json.dumps(content, indent=2) + "\n"
        (Path(folder.name) / file).write_text(text, encoding="utf-8")
    return model.state_dict(), folder


def _timm(timm: Any, name: str) -> tuple[Any, dict[str, Any]]:
    model = timm.create_model(name, pretrained=True)
    known = {key: model.pretrained_cfg.get(key) for key in _OF_TIMM}
    config = {
        "architecture": model.pretrained_cfg.get("architecture", name.partition(".")[0]),
        "num_classes": model.num_classes,
        "pretrained_cfg": {key: value for key, value in known.items() if value is not None},
    }
    return model, {"config.json": config}


def _open_clip(open_clip: Any, name: str) -> tuple[Any, dict[str, Any]]:
    architecture, _, pretrained = name.partition("/")
    if not pretrained:
        tags = [tag for model, tag in open_clip.list_pretrained() if model == architecture]
        known = f"one of {', '.join(tags)}, or a file" if tags else "a file"
        raise BadCheckpointError(
            f"open_clip:{name} names an architecture without weights.",
            hint=f"Write open_clip:{architecture}/PRETRAINED, with {known}.",
        )
    model = create_open_clip(open_clip, architecture, pretrained)
    settings = dict(open_clip.get_model_config(architecture))
    if wants_quick_gelu(open_clip, architecture, pretrained):
        settings["quick_gelu"] = True
    pixels = open_clip.get_model_preprocess_cfg(model)
    return model, {"open_clip_config.json": {"model_cfg": settings, "preprocess_cfg": pixels}}


def create_open_clip(open_clip: Any, architecture: str, pretrained: str) -> Any:
    """The model with the activation that its weights were trained with."""
    quick = wants_quick_gelu(open_clip, architecture, pretrained)
    return open_clip.create_model(
        architecture, pretrained=pretrained or None, **({"force_quick_gelu": True} if quick else {})
    )


def wants_quick_gelu(open_clip: Any, architecture: str, pretrained: str) -> bool:
    """Whether a tag's weights need QuickGELU, where the architecture's name says nothing of it.

    open_clip itself only warns of it: `ViT-B-32` with the weights `openai` runs with another
    activation than they were trained with.
    """
    return bool((open_clip.get_pretrained_cfg(architecture, pretrained) or {}).get("quick_gelu"))

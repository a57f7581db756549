"""Any other model: a function that builds the module, and a file with its weights.

`path/to/module.py:factory` or `package.module:attribute.attribute` names the function. This runs
code that the user names; the weights beside it are data and are never unpickled as code.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.checkpoints.open import read_tensors
from stockpot.checkpoints.resolve import Resolved
from stockpot.datasets.stream.geometry import Interpolation
from stockpot.errors import BadCheckpointError, MissingDependencyError, UserError
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess
from stockpot.models.shipped.functions import from_function
from stockpot.models.shipped.probes import known_by_answers
from stockpot.models.shipped.stated import three
from stockpot.types import ImageSize


def load_factory(
    place: Resolved,
    *,
    weights: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    classes: Sequence[str] | None = None,
    size: int = 224,
    resize: int | None = None,
    squash: bool = False,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    interpolation: Interpolation = "bicubic",
    name: str = "",
) -> Classifier:
    """Build a module by calling a factory and fill it from a file.

    A factory may also return any other function from pixels to logits, which is then asked as it
    is (`models/shipped/functions.py`).

    Args:
        place: `module.py:factory` or `package.module:attribute`.
        weights: a `.safetensors`, `.pt`, `.pth` or `.bin` file; none keeps the factory's own.
        arguments: keyword arguments of the factory.
        classes: class names in output order; plain numbers when left out.
        size: the side of the square the network sees.
        resize: the short side before the centre crop; `size` when left out.
        squash: resize straight to the square instead, losing the aspect ratio.
        mean: subtracted from pixels in [0, 1]; ImageNet's for a module, nothing for a function.
        std: divides the pixels after that.
        interpolation: how pictures are resized.
        name: the name under which the model appears in results.
    """
    source = place.text
    module = find_factory(source)(**(arguments or {}))
    if not isinstance(module, nn.Module):
        if weights is not None or not callable(module):
            raise UserError(f"{source} returned {type(module).__name__}, expected a torch module.")
        return from_function(
            module, classes=classes, size=size, resize=resize, squash=squash, mean=mean, std=std,
            interpolation=interpolation, name=name or source,
        )  # fmt: skip
    if weights is not None:
        fill(module, read_tensors(Path(weights)), weights)
    square = ImageSize(size, size)
    resized = square if squash else resize or size
    preprocess = Preprocess(
        square,
        resized,
        three(mean or IMAGENET_MEAN, "mean"),
        three(std or IMAGENET_STD, "std"),
        interpolation,
    )
    outputs = _count_outputs(module, preprocess)
    if classes is not None and len(classes) != outputs:
        raise UserError(
            f"{source} has {outputs} outputs, but {len(classes)} class names were given."
        )
    names = tuple(classes or (str(index) for index in range(outputs)))
    origin = Origin(name or source, type(module).__name__, "")
    return known_by_answers(Classifier(module.eval(), preprocess, names, origin))


def find_factory(source: str) -> Callable[..., Any]:
    """Import the function that `module:attribute` names."""
    location, _, attributes = source.rpartition(":")
    if location.endswith(".py"):
        path = Path(location).expanduser()
        if not path.is_file():
            raise UserError(f"no Python file at {location} (from {source!r}).")
        spec = importlib.util.spec_from_file_location(f"stockpot_factory_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise UserError(f"{location} cannot be imported.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(location)
        except ImportError as problem:
            raise MissingDependencyError(
                f"{location!r} (from {source!r}) cannot be imported: {problem}."
            ) from problem
    found: Any = module
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise UserError(f"{location} has no {attribute!r} (from {source!r}).")
        found = getattr(found, attribute)
    factory: Callable[..., Any] = found
    return factory


def fill(module: nn.Module, state: dict[str, Tensor], where: str) -> None:
    """Load every tensor or say what does not fit; wrapper prefixes are dropped."""
    for prefix in ("module.", "model.", "_orig_mod."):
        if state and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    own = module.state_dict()
    faults = [f"{name} is missing" for name in own.keys() - state.keys()]
    faults += [f"{name} is not in the module" for name in state.keys() - own.keys()]
    faults += [
        f"{name} is {tuple(state[name].shape)}, the module has {tuple(own[name].shape)}"
        for name in own.keys() & state.keys()
        if own[name].shape != state[name].shape
    ]
    if faults:
        shown = "; ".join(sorted(faults)[:3])
        more = f"; and {len(faults) - 3} more" if faults[3:] else ""
        raise BadCheckpointError(
            f"{where} does not fit {type(module).__name__}: {shown}{more}.",
            hint="Check the factory and its arguments.",
        )
    module.load_state_dict(state)


def _count_outputs(module: nn.Module, preprocess: Preprocess) -> int:
    was_training = module.training
    module.eval()
    with torch.inference_mode():
        logits = module(torch.zeros(1, 3, *preprocess.size))
    module.train(was_training)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise UserError("the module's output is not a batch of logits (N x classes).")
    return int(logits.shape[1])

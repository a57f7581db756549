"""Any other model: a function that builds the module, and a file with its weights.

`path/to/module.py:factory` or `package.module:attribute.attribute` names the function. This runs
code that the user names; the weights beside it are data and are never unpickled as code.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.checkpoints.open import read_tensors
from stockpot.checkpoints.resolve import Resolved
from stockpot.datasets.stream.geometry import Interpolation
from stockpot.errors import BadCheckpointError, BadParameterError, MissingDependencyError, UserError
from stockpot.foreign import reason
from stockpot.models.classifier import Classifier, Origin, evaluating
from stockpot.models.fingerprint import fingerprint_files, fingerprint_tensors
from stockpot.models.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess
from stockpot.models.shipped.functions import from_function
from stockpot.models.shipped.stated import settled


def load_factory(
    place: Resolved,
    *,
    weights: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    classes: Sequence[str] | None = None,
    size: int | Sequence[int] = 224,
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
        size: the side of the square the network sees, or height and width.
        resize: the short side before the centre crop; `size` when left out.
        squash: resize straight to the size instead, losing the aspect ratio.
        mean: subtracted from pixels in [0, 1]; ImageNet's for a module, nothing for a function.
        std: divides the pixels after that.
        interpolation: how pictures are resized.
        name: the name under which the model appears in results.
    """
    source = place.text
    module = _called(source, {} if arguments is None else arguments)
    if not isinstance(module, nn.Module):
        if weights is not None or not callable(module):
            raise UserError(f"{source} returned {type(module).__name__}, expected a torch module.")
        return from_function(
            module, classes=classes, size=size, resize=resize, squash=squash, mean=mean, std=std,
            interpolation=interpolation, name=name or source,
        )  # fmt: skip
    if weights is not None:
        fill(module, read_tensors(Path(weights)), weights)
    given = {
        "size": size, "resize": resize, "squash": squash, "mean": mean, "std": std,
        "interpolation": interpolation,
    }  # fmt: skip
    _, preprocess = settled(source, given, {"mean": IMAGENET_MEAN, "std": IMAGENET_STD})
    content = (
        fingerprint_files([Path(weights)])
        if weights is not None
        else fingerprint_tensors(module.state_dict().items())
    )
    outputs = _count_outputs(module, preprocess, source)
    if classes is not None and len(classes) != outputs:
        raise UserError(
            f"{source} has {outputs} outputs, but {len(classes)} class names were given."
        )
    names = tuple(classes or (str(index) for index in range(outputs)))
    origin = Origin(name or source, type(module).__name__, with_factory(content, source))
    return Classifier(module.eval(), preprocess, names, origin)


def _called(source: str, arguments: Mapping[str, Any]) -> Any:
    """What the factory gives for its arguments."""
    factory = find_factory(source)
    if not isinstance(arguments, Mapping):
        raise BadParameterError(
            f"arguments: expected names and values for {source}, got {arguments!r}.",
            hint="Such as -m 'arguments={width: 4}'.",
        )
    with suppress(ValueError):  # what is not written in Python may not say what it takes
        takes = inspect.signature(factory)
        try:
            takes.bind(**arguments)
        except TypeError as problem:
            raise BadParameterError(
                f"{source}: {problem}. It takes: {', '.join(takes.parameters) or 'nothing'}.",
                hint="Give them as -m 'arguments={name: value}'.",
            ) from problem
    return factory(**arguments)


def with_factory(content: str, source: str) -> str:
    """The identity of a module with these weights that this function builds.

    Two functions may build different networks around the same weights. A file counts by what it
    says, and not by its place; what it imports, and an installed package, count by name alone.
    """
    location, _, attributes = source.rpartition(":")
    code = location
    if location.endswith(".py"):
        code = hashlib.sha256(_python_file(source).read_bytes()).hexdigest()
    return hashlib.sha256(f"{content}:{code}:{attributes}".encode()).hexdigest()


def _python_file(source: str) -> Path:
    location = source.rpartition(":")[0]
    path = Path(location).expanduser()
    if not path.is_file():
        raise UserError(f"no Python file at {location} (from {source!r}).")
    return path


class _AsItIs(SourceFileLoader):
    """Reads the file itself: kept bytecode counts as that of a file that was edited in the second
    in which it was written, to another text of the same length."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def find_factory(source: str) -> Callable[..., Any]:
    """Import the function that `module:attribute` names."""
    location, _, attributes = source.rpartition(":")
    if location.endswith(".py"):
        path = _python_file(source)
        name = f"stockpot_factory_{path.stem}"
        loader = _AsItIs(name, str(path))
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        if spec is None or spec.loader is None:
            raise UserError(f"{location} cannot be imported.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except SyntaxError as problem:
            raise UserError(f"{location} is not Python: {problem}.") from problem
        except ImportError as problem:
            raise MissingDependencyError(f"{location} cannot be imported: {problem}.") from problem
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


def _count_outputs(module: nn.Module, preprocess: Preprocess, source: str) -> int:
    size = preprocess.size
    try:
        with evaluating(module):
            logits = module(torch.zeros(1, 3, *size))
    except RuntimeError as problem:  # of shapes, as a rule
        raise UserError(
            f"{source} does not take pictures of {size}: {reason(problem)}.",
            hint="Give the size that it takes: -m size=N, or -m size=HEIGHT,WIDTH.",
        ) from problem
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise UserError("the module's output is not a batch of logits (N x classes).")
    return int(logits.shape[1])

"""What a model does in its forward pass that a model under attack should not do."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

_DEPTH = 5
_OPTIMISERS = str(Path(torch.optim.__file__).parent)
_ENGINE: frozenset[CodeType] = frozenset(
    function.__code__ for function in (torch.autograd.grad, torch.autograd.backward)
)


def optimises(model: Callable[[Tensor], Tensor], images: Tensor) -> bool:
    """Whether looking at two images makes autograd or an optimiser run inside the model.

    Every way to a gradient ends in one of two functions, whatever name a model calls them by. They
    are watched for with gradients off, as decisions are made, and on, as searches look.
    """
    found = False
    before = sys.getprofile()

    def see(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal found
        code = frame.f_code
        steps = code.co_name == "step" and code.co_filename.startswith(_OPTIMISERS)
        found = found or (event == "call" and (steps or code in _ENGINE))

    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            sys.setprofile(see)
            try:
                model(images[:2])
            finally:
                _resume(before)
    return found


def _resume(profiler: Any) -> None:
    """Let whoever profiled this thread go on."""
    if profiler is None or callable(profiler):
        sys.setprofile(profiler)
        return
    sys.setprofile(None)
    if hasattr(profiler, "enable"):  # cProfile until Python 3.11: no function, but it begins again
        profiler.enable()


def in_training(model: object) -> bool:
    """Whether a module that the model is, holds or calls is in training mode."""
    return any(module.training for module in modules_behind(model))


def modules_behind(model: object) -> Iterator[nn.Module]:
    """The modules that a callable reaches: its parts, attributes, closure, arguments and globals.

    A module knows its registered parts; one that lies in a list, or that a function has closed
    over, is out of reach of `eval()`.
    """
    waiting: list[tuple[object, int]] = [(model, 0)]
    met: set[int] = set()
    while waiting:
        thing, depth = waiting.pop()
        if id(thing) in met or depth > _DEPTH:
            continue
        met.add(id(thing))
        if isinstance(thing, nn.Module):
            yield thing
            waiting += [(part, depth) for part in thing.children()]
        waiting += [(each, depth + 1) for each in _held(thing) if _may_hold(each)]


def _held(thing: object) -> list[object]:
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, list | tuple):
        return list(thing)
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or () if _filled(cell)]
        named = [thing.__globals__.get(name) for name in thing.__code__.co_names]
        return [*cells, *(value for value in named if isinstance(value, nn.Module))]
    # An object with attributes; those that torch keeps for a module's own parts are seen already.
    known = _OF_TORCH if isinstance(thing, nn.Module) else frozenset[str]()
    return [value for name, value in vars(thing).items() if name not in known]


_OF_TORCH = frozenset(vars(nn.Module()))
_CONTAINERS = (nn.Module, dict, list, tuple, functools.partial, MethodType, FunctionType)


def _may_hold(value: object) -> bool:
    if isinstance(value, _CONTAINERS):
        return True
    return callable(value) and not isinstance(value, type) and hasattr(value, "__dict__")


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a name that has no value yet
        return False

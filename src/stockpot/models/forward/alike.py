"""Whether two classifiers differ in nothing but the numbers of their weights."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from stockpot.models.classifier import Classifier

_PLAIN = (
    *(type(None), bool, int, float, str, bytes, complex, type, Enum),
    *(torch.dtype, torch.device, torch.layout, FunctionType, BuiltinFunctionType),
)
_OF_MODULES = frozenset(vars(nn.Module()))
_HOOKS = [name for name in _OF_MODULES if name.endswith("_hooks") and "state_dict" not in name]
_WHENCE = {"_name_or_path", "name_or_path", "_commit_hash", "_weight_conversions"}
"""Where weights were read from and under which names, which changes nothing."""
_DEEPEST = 8


class _OwnError(Exception):
    """Something that cannot be compared, so it may be the model's own."""


def likeness(model: Classifier) -> Hashable | None:
    """A value that alike models have in common; none for a model that must be taken alone.

    Modules with their types, settings and shapes count, and how pixels are prepared. A network that
    holds a number outside its parameters and buffers, or has listeners inside, is taken alone.
    """
    if type(model).forward is not Classifier.forward:
        return None
    network = model.network
    try:
        modules = [
            (name, type(module), module.training, _settings(module))
            for name, module in network.named_modules(remove_duplicate=False)
        ]
        preprocess = _facts(model.preprocess, 0)
    except _OwnError:
        return None
    firsts: dict[int, int] = {}
    tensors = [
        (name, tuple(value.shape), value.dtype, value.device, firsts.setdefault(id(value), place))
        for found in (
            network.named_parameters(remove_duplicate=False),
            network.named_buffers(remove_duplicate=False),
        )
        for place, (name, value) in enumerate(found)
    ]
    return tuple(modules), preprocess, tuple(tensors)


def _settings(module: nn.Module) -> Hashable:
    if any(getattr(module, name) for name in _HOOKS):
        raise _OwnError
    own = {name: value for name, value in vars(module).items() if name not in _OF_MODULES}
    return _facts(own, 0)


def _facts(value: Any, depth: int) -> Hashable:
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, Tensor | nn.Module) or depth > _DEEPEST:
        raise _OwnError
    if isinstance(value, dict):
        return dict, tuple(
            (_facts(key, depth + 1), _facts(each, depth + 1))
            for key, each in value.items()
            if not (isinstance(key, str) and key in _WHENCE)
        )
    if isinstance(value, list | tuple):
        return type(value), tuple(_facts(each, depth + 1) for each in value)
    if isinstance(value, set | frozenset):
        if not all(isinstance(each, _PLAIN) for each in value):
            raise _OwnError
        return type(value), frozenset(value)
    if is_dataclass(value) and not isinstance(value, type):
        own = {field.name: getattr(value, field.name) for field in fields(value)}
    elif isinstance(value, SimpleNamespace) or hasattr(value, "model_type"):
        own = vars(value)  # configurations, ours and transformers'
    else:
        raise _OwnError  # what an object keeps need not be seen from outside
    return type(value), _facts(own, depth + 1)

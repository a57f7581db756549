"""Which of the things in a file are the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stockpot.checkpoints.pickles.inert import CODES, Inert, TensorRecord
from stockpot.errors import BadCheckpointError

WRAPPERS = (
    "state_dict", "model_state_dict", "model", "module", "net", "network", "params", "weights",
    "ema_state_dict", "params_ema", "model_ema", "ema",
)  # fmt: skip
"""Under which keys programs keep a state dict beside other things; the first that fits is taken."""


@dataclass
class Found:
    """A state dict, and what stands around it."""

    tensors: dict[str, TensorRecord]
    taken: str = ""
    """The key under which it stood; empty at the top."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Name -> what it is."""
    others: dict[str, int] = field(default_factory=dict)
    """Key -> the number of tensors of other state dicts."""


def find_weights(content: Any, key: str | None) -> Found:
    """The state dict in what a file holds.

    Args:
        content: what the file holds.
        key: where to look, with dots between keys; by default at the top and under `WRAPPERS`.
    """
    found = Found({})
    path: list[str] = []
    asked = _path(content, key) if key else None
    while True:
        tensors, rest = state_of(content)
        step = asked.pop(0) if asked else None
        if step is None and asked is None:
            step = _wrapper(content)
        if step is None:
            break
        _describe_rest(found, content, step, path)
        content = content[step]
        path.append(str(step))
    if not tensors:
        where = f"under {key!r}" if key else "at the top or under a usual key"
        keys = [*found.others, *(_keys(content))]
        listing = ", ".join(dict.fromkeys(keys)) or "nothing"
        raise BadCheckpointError(
            f"no weights {where}; there is {listing}.", hint="Name the right key with --key."
        )
    found.tensors, found.taken = tensors, ".".join(path)
    prefix = "".join(f"{part}." for part in path)
    found.left_out |= {f"{prefix}{name}": _kind(value) for name, value in rest.items()}
    return found


def state_of(thing: Any) -> tuple[dict[str, TensorRecord], dict[str, Any]]:
    """The tensors that a thing holds as a state dict, by name, and what else it holds."""
    if isinstance(thing, Inert):
        return _of_module(thing, "")
    if not isinstance(thing, Mapping):
        return {}, {}
    tensors = {str(name): value for name, value in thing.items() if is_weight(value)}
    return tensors, {str(name): v for name, v in thing.items() if not is_weight(v)}


def is_weight(value: Any) -> bool:
    """Whether it is a tensor that safetensors can hold."""
    return isinstance(value, TensorRecord) and value.element in CODES


def _of_module(thing: Inert, prefix: str) -> tuple[dict[str, TensorRecord], dict[str, Any]]:
    """What `state_dict()` of a module saved whole would give, or of a TorchScript module."""
    state = thing.state if isinstance(thing.state, Mapping) else {}
    tensors: dict[str, TensorRecord] = {}
    rest: dict[str, Any] = {}
    if "_modules" in state and "_parameters" in state:
        passing = state.get("_non_persistent_buffers_set") or ()
        # The set itself is not rebuilt; what it was to be made from stands in its arguments.
        names = passing.given[0] if isinstance(passing, Inert) and passing.given else passing
        skip = set(names) if isinstance(names, list | tuple | set) else set()
        own = {**(state["_parameters"] or {}), **(state.get("_buffers") or {})}
        own = {name: value for name, value in own.items() if name not in skip}
        inner = state["_modules"] or {}
    elif thing.called.startswith("__torch__."):
        own = {name: value for name, value in state.items() if not isinstance(value, Inert)}
        inner = {name: value for name, value in state.items() if isinstance(value, Inert)}
    else:
        return {}, {}
    for name, value in own.items():
        if is_weight(value):
            tensors[f"{prefix}{name}"] = value
        elif isinstance(value, TensorRecord):
            rest[f"{prefix}{name}"] = value
    for name, module in inner.items():
        if isinstance(module, Inert):
            deeper, besides = _of_module(module, f"{prefix}{name}.")
            tensors |= deeper
            rest |= besides
    return tensors, rest


def _wrapper(content: Any) -> str | None:
    if not isinstance(content, Mapping):
        return None
    return next((key for key in WRAPPERS if key in content and _holds(content[key])), None)


def _holds(thing: Any) -> bool:
    return bool(state_of(thing)[0]) or _wrapper(thing) is not None


def _path(content: Any, key: str) -> list[Any]:
    """The steps to a key, which may itself have dots or be a number."""
    steps: list[Any] = []
    rest = key
    while rest:
        names = {str(name): name for name in content} if isinstance(content, Mapping) else {}
        fitting = [name for name in names if rest == name or rest.startswith(f"{name}.")]
        if not fitting:
            listing = ", ".join(names) or "no keys"
            raise BadCheckpointError(f"--key {key}: there is no {rest!r}, only {listing}.")
        longest = max(fitting, key=len)
        steps.append(names[longest])
        content = content[names[longest]]
        rest = rest[len(longest) + 1 :]
    return steps


def _describe_rest(found: Found, content: Any, step: Any, path: list[str]) -> None:
    for name, value in content.items():
        if name == step:
            continue
        called = ".".join([*path, str(name)])
        if count := len(state_of(value)[0]):
            found.others[called] = count
        found.left_out[called] = _kind(value)


def _keys(content: Any) -> list[str]:
    return [str(name) for name in content][:6] if isinstance(content, Mapping) else [_kind(content)]


def _kind(value: Any) -> str:
    if isinstance(value, Inert):
        return value.called or "an object"
    if isinstance(value, Mapping):
        count = len(state_of(value)[0])
        return f"{count} tensors" if count else "dict"
    if isinstance(value, TensorRecord):
        return "tensor"
    return type(value).__name__

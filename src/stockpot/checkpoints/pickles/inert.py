"""An unpickler that builds tensors' descriptions and nothing else.

A pickle is a program: it names functions and has them called. Here every name that it can ask for
is answered by an object of this file. The few that rebuild tensors give a description of where the
values lie; every other gives an `Inert`, which remembers its name and what it was given and does
nothing. Nothing is imported, and no object of another module is ever handed out, not even a class,
because a pickle may also change attributes of what it gets.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

# torch's names of element types: as safetensors calls them, and their bytes.
CODES = {
    "float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2),
    "float8_e4m3fn": ("F8_E4M3", 1), "float8_e5m2": ("F8_E5M2", 1), "int64": ("I64", 8),
    "int32": ("I32", 4), "int16": ("I16", 2), "int8": ("I8", 1), "uint64": ("U64", 8),
    "uint32": ("U32", 4), "uint16": ("U16", 2), "uint8": ("U8", 1), "bool": ("BOOL", 1),
}  # fmt: skip
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "UntypedStorage": "uint8",
}  # fmt: skip


class Inert:
    """Stands for something of a file that is not looked at any further."""

    called = ""

    def __new__(cls, *given: Any, **named: Any) -> Inert:
        made = object.__new__(cls)
        made.given = given
        made.state = None
        made.entries = {}
        return made

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given: tuple[Any, ...]
        self.state: Any
        self.entries: dict[Any, Any]

    def __call__(self, *given: Any, **named: Any) -> Inert:
        return type(self)(*given)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.entries[key] = value

    def append(self, value: Any) -> None:
        """Where a list was to grow."""

    def extend(self, values: Any) -> None:
        """Where a list was to grow by several."""

    def add(self, value: Any) -> None:
        """Where a set was to grow."""


class Ordered(dict[Any, Any]):
    """An ordered dictionary without its attributes."""

    def __init__(self, *given: Any) -> None:
        super().__init__()
        if given and isinstance(given[0], list):
            self.update(given[0])

    def __setstate__(self, state: Any) -> None:
        """Attributes, such as the versions of modules, hold no weights."""


class ElementType(NamedTuple):
    """An element type, named by torch."""

    name: str


class Storage(NamedTuple):
    """A stretch of memory that tensors share, somewhere in the file."""

    key: str
    element: str
    begin: int = 0
    """The element of the stored memory where it begins."""


class TensorRecord:
    """Where the values of a tensor lie."""

    __slots__ = ("element", "offset", "shape", "storage", "stride")

    def __init__(
        self,
        storage: Storage,
        offset: int,
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        element: str,
    ) -> None:
        self.storage = storage
        self.offset = offset
        self.shape = shape
        self.stride = stride
        self.element = element

    def __setstate__(self, state: Any) -> None:
        """Attributes of a tensor are left out."""


class _Rebuild:
    """A function that pickles call by name; a pickle can change nothing about it."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        object.__setattr__(self, "_function", function)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)

    def __setstate__(self, state: Any) -> None:
        """Nothing to set."""

    def __call__(self, *given: Any) -> Any:
        return self._function(*given)  # type: ignore[attr-defined]


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any, *rest: Any) -> TensorRecord | Inert:
    if not isinstance(storage, Storage):
        return Inert()
    numbers = [offset, *shape, *stride]
    if len(shape) != len(stride) or not all(type(n) is int and n >= 0 for n in numbers):
        raise pickle.UnpicklingError("a tensor with an impossible shape")
    # Since torch 2.1 an element type of its own may follow the gradient's flag and the hooks.
    asked = next((part.name for part in rest if isinstance(part, ElementType)), storage.element)
    return TensorRecord(storage, offset + storage.begin, tuple(shape), tuple(stride), asked)


def _parameter(data: Any, *rest: Any) -> Any:
    return data


def _from_type(function: Any, kind: Any, given: Any, *rest: Any) -> Any:
    return function(*given) if isinstance(function, _Rebuild) else Inert()


_REBUILD: dict[str, Callable[..., Any]] = {
    "_rebuild_tensor": _tensor,
    "_rebuild_tensor_v2": _tensor,
    "_rebuild_tensor_v3": _tensor,
    "_rebuild_parameter": _parameter,
    "_rebuild_parameter_with_state": _parameter,
    "_rebuild_from_type": _from_type,
    "_rebuild_from_type_v2": _from_type,
}
_DICTIONARIES = {("collections", "OrderedDict"), ("collections", "defaultdict")}
_TORCH = ("torch", "torch._utils", "torch._tensor", "torch.storage", "torch.cuda")


class InertUnpickler(pickle.Unpickler):
    """Reads one pickle; `foreign` then names what it asked for and did not get."""

    def __init__(self, file: BinaryIO | io.BytesIO) -> None:
        super().__init__(file, encoding="latin-1")
        self.foreign: dict[str, None] = {}

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) in _DICTIONARIES:
            # A class of its own, because a pickle may change it.
            return type("Ordered", (Ordered,), {})
        if module in _TORCH:
            if name in _REBUILD:
                return _Rebuild(_REBUILD[name])
            if name in _STORAGES:
                return ElementType(_STORAGES[name])
            if module == "torch" and name in CODES:
                return ElementType(name)
        called = f"{'builtins' if module == '__builtin__' else module}.{name}"
        self.foreign[called] = None
        return type("Inert", (Inert,), {"called": called})

    def persistent_load(self, pid: Any, /) -> Any:
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] not in ("storage", b"storage"):
            return Inert()
        _, kind, key, _, _, *view = pid
        if not isinstance(kind, ElementType):
            return Inert()
        # Files of torch before 1.6 may say that a storage is part of another.
        part = view[0] if view and isinstance(view[0], tuple) else None
        begin = part[1] if part and type(part[1]) is int and part[1] >= 0 else 0
        return Storage(str(key), kind.name, begin)

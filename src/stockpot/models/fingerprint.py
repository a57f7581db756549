"""The identity of a model: the sha256 of the files that hold its weights and configuration."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from stockpot.checkpoints.hashes import FileHashes
from stockpot.models.config import (
    PLACES,
    is_vision_tower,
    named_dual_encoder,
    nearby_dual_encoder,
    read_config,
)

_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt"}
_SETTINGS = {
    "config.json",
    "open_clip_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "words.json",
}


_SAID = ("preprocessor_config.json", "processor_config.json", "config.json")
"""What Hugging Face says of a shipped file beside it."""


_LOCATION = b"\n\x08location\x12"
"""The key of ONNX's `external_data` as protobuf writes it; the value follows after its length."""


def fingerprint_files(paths: Iterable[Path], known: Mapping[Path, str] | None = None) -> str:
    """The sha256 over names and contents of files, in order of name.

    Args:
        paths: the files.
        known: the sha256 of those that were hashed before.
    """
    digest = hashlib.sha256()
    files = sorted(paths, key=lambda path: path.name)
    contents = dict(known or {})
    unknown = [path for path in files if not contents.get(path)]
    if unknown:
        contents |= FileHashes(unknown).result()
    for path in files:
        digest.update(f"{path.name}:{contents[path]}\n".encode())
    return digest.hexdigest()


def fingerprint_folder(folder: Path, known: Mapping[Path, str] | None = None) -> str:
    """The identity of a Hugging Face folder: its weights and what decides how they are used.

    Cards and training records are left out: they may name a time, and change nothing.

    Args:
        folder: where the files lie.
        known: as for `fingerprint_files`.
    """
    files = [path for path in folder.iterdir() if path.suffix in _WEIGHTS or path.name in _SETTINGS]
    return fingerprint_files(files, known)


def fingerprint_shipped(file: Path) -> str:
    """The identity of a file that is a whole model, with what lies beside it and belongs to it."""
    # ONNX keeps large weights in files whose names begin, or are by custom, like its own.
    near = [each for each in file.parent.iterdir() if each.name.startswith(file.name)]
    near += [file.with_suffix(".data"), *(file.parent / name for name in _SAID)]
    near += [file.parent / place for place in _named_inside(file)]
    return fingerprint_files({each for each in near if each.is_file()})


def _named_inside(file: Path) -> set[str]:
    """Where an ONNX file says that weights lie, which may be files of any name."""
    if file.suffix != ".onnx" or not file.stat().st_size:
        return set()
    found = set()
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        start = whole.find(_LOCATION)
        while start >= 0:
            start += len(_LOCATION)
            length = whole[start : start + 1]
            if length < b"\x80":  # of one byte, as that of any name a file is given
                place = whole[start + 1 : start + 1 + int.from_bytes(length)]
                found.add(place.decode(errors="replace").replace("\0", ""))
            start = whole.find(_LOCATION, start)
    return found


def settings_files(folder: Path) -> list[Path]:
    """What decides how the weights of a folder are used: configuration, processor, tokenizer."""
    return [folder / name for name in sorted(_SETTINGS) if (folder / name).is_file()]


def fingerprint_tensors(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """The identity of weights that are only in memory."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda item: item[0]):
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        if flat.numel():
            digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fingerprint_model(folder: Path, dual_encoder: str | None = None) -> str:
    """The identity of a model folder; that of a vision tower covers its dual encoder."""
    content = fingerprint_folder(folder, settings_without_place(folder))
    return with_dual_encoder(content, folder, dual_encoder)


def identity_in_use(fingerprint: str, options: Mapping[str, object], words: str) -> str:
    """A model as it is asked: its weights, how it is loaded, and what its text tower is told."""
    return f"{fingerprint}:{json.dumps(options, sort_keys=True, default=str)}:{words}"


def settings_without_place(folder: Path) -> dict[Path, str]:
    """The config of a vision tower -> the hash of what it says, except where its dual encoder is.

    Nothing for other models, whose config is hashed as it is.
    """
    if not _is_lone(folder):
        return {}
    config = {key: value for key, value in read_config(folder).items() if key not in PLACES}
    text = json.dumps(config, sort_keys=True)
    return {folder / "config.json": hashlib.sha256(text.encode()).hexdigest()}


def with_dual_encoder(fingerprint: str, folder: Path, given: str | None = None) -> str:
    """The identity of a vision tower together with its dual encoder's; of others, as it is.

    A dual encoder that is not on this machine counts by its name on the hub.
    """
    if not _is_lone(folder):
        return fingerprint
    named = given or named_dual_encoder(read_config(folder))
    found = nearby_dual_encoder(folder, named) if named else None
    content = fingerprint_folder(found[0]) if found else named
    return hashlib.sha256(f"{fingerprint}:{content}".encode()).hexdigest()


def _is_lone(folder: Path) -> bool:
    """Whether a folder holds a vision tower that needs its dual encoder, having no head."""
    if not (folder / "config.json").is_file():
        return False
    config = read_config(folder)
    return is_vision_tower(config) and "head" not in config

"""Where in a diffusers folder an autoencoder lies: in a pipeline, a variant, or in shards."""

from __future__ import annotations

import re
from pathlib import Path

from stockpot.checkpoints.locate import Format, Location, indexed_files, unindexed_shards
from stockpot.checkpoints.resolve import fetch_hub, resolve
from stockpot.errors import BadCheckpointError
from stockpot.foreign import read_json_object

_PARTS = ("vae", "vqvae", "movq", "vqgan")
"""What pipelines call their autoencoder."""
_STEM = "diffusion_pytorch_model"
_STEMS = (_STEM, "model", "pytorch_model")
_SHARD = re.compile(r"-\d+-of-\d+$")
_FROM_HUB = ("config.json", "model_index.json", f"{_STEM}*", *(f"{part}/*" for part in _PARTS))


def autoencoder_place(source: str | Path) -> Path:
    """The folder or file of an autoencoder; a hub id is fetched, a pipeline gives its part.

    Of a hub repository nothing but the autoencoder is fetched: the rest may be many times it.
    """
    place = resolve(source, "autoencoder")
    if place.kind == "hub":
        path = fetch_hub(place.name, place.revision, _FROM_HUB)
    else:
        path = place.local()
    return within_pipeline(path) if path.is_dir() else path


def within_pipeline(folder: Path) -> Path:
    """The folder of the autoencoder: itself, or that part of a whole pipeline."""
    if (folder / "config.json").is_file():
        return folder
    parts = [part for part in _PARTS if (folder / part / "config.json").is_file()]
    if parts:
        return folder / parts[0]
    index = folder / "model_index.json"
    if index.is_file():
        there = ", ".join(
            name for name in read_json_object(index, BadCheckpointError) if name[:1] != "_"
        )
        raise BadCheckpointError(
            f"{folder} is a pipeline without an autoencoder: expected the part "
            f"{' or '.join(_PARTS)}, found {there}."
        )
    return folder


def folder_weights(folder: Path) -> Location:
    """The files with the weights: whole or in shards, with a variant's name or without."""
    forms: dict[str, Format] = {".safetensors": "safetensors", ".bin": "torch"}
    for suffix, form in forms.items():
        for stem in _STEMS:
            if found := _files(folder, stem, suffix):
                return Location(str(folder), form, found, folder)
    raise BadCheckpointError(
        f"{folder} has no weights; looked for {_STEM}.safetensors, its variants "
        f"({_STEM}.fp16.safetensors), shards and .bin files."
    )


def _files(folder: Path, stem: str, suffix: str) -> tuple[Path, ...]:
    """A file in full precision comes first, then an index, then variants by name."""
    whole = folder / f"{stem}{suffix}"
    if whole.is_file():
        return (whole,)
    # `STEM.safetensors.index.json`, and of a variant `STEM.safetensors.index.fp16.json`.
    indices = sorted(folder.glob(f"{stem}{suffix}.index*.json"), key=lambda path: len(path.name))
    if indices:
        return indexed_files(indices[0])
    for path in sorted(folder.glob(f"{stem}[.-]*{suffix}")):
        return unindexed_shards(folder, path.name) if _SHARD.search(path.stem) else (path,)
    return ()

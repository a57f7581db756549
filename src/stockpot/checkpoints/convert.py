"""A checkpoint in another form: out of a pickle, under other names, in another dtype."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import torch
from torch import Tensor

from stockpot.checkpoints.clip.settings import Activation, translate_settings
from stockpot.checkpoints.clip.translate import TranslatedSource, known_layout
from stockpot.checkpoints.folder import (
    check_free,
    copy_companions,
    parse_size,
    remove_abandoned,
    staged_folder,
)
from stockpot.checkpoints.layouts import PROGRAMS, Program
from stockpot.checkpoints.locate import Location, locate
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.pickles.extract import Extracted, extract
from stockpot.checkpoints.resolve import WEIGHT_SUFFIXES, resolve
from stockpot.checkpoints.safetensors_file import SafetensorsSource
from stockpot.checkpoints.source import Source, TensorInfo
from stockpot.checkpoints.write import ShardWriter
from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.files import own_mark

_OF_OPENAI = "input_resolution"
"""A number that OpenAI's own files keep among the weights, whose activation is quick_gelu."""
_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
_OPEN_CLIP_FILE = "open_clip_model.safetensors"


@dataclass(frozen=True)
class Conversion:
    """What was written, and what was found in pickles on the way."""

    out: Path
    tensors: int
    extracted: tuple[Extracted, ...] = ()
    notes: tuple[str, ...] = ()


def convert(
    source: str | Path,
    out: Path,
    *,
    key: str | None = None,
    strip: Sequence[str] = (),
    layout: Program | None = None,
    activation: Activation | None = None,
    dtype: str | None = None,
    max_shard: str | int = "5GB",
) -> Conversion:
    """Write a checkpoint as safetensors; what lies in a pickle is read and never run.

    Args:
        source: a torch file of any kind, a safetensors file, a folder or a hub id.
        out: a file `NAME.safetensors`, or a folder; it must not exist.
        key: where in a torch file the state dict stands; by default the usual places.
        strip: prefixes to take off names, in this order.
        layout: the names that a CLIP gets, `hf` or `open_clip`.
        activation: of that CLIP, where no configuration beside it says.
        dtype: of floats (fp32, bf16, fp16, fp64); by default as they are.
        max_shard: the largest file of a folder.
    """
    for name, value, allowed in (
        ("layout", layout, PROGRAMS),
        ("activation", activation, get_args(Activation)),
        ("dtype", dtype, tuple(_DTYPES)),
    ):
        if value is not None and value not in allowed:
            raise BadParameterError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}.")
    single = out.suffix == ".safetensors"
    if not single and out.suffix in WEIGHT_SUFFIXES:
        raise BadParameterError(
            f"out: expected NAME.safetensors or a folder, got {out}: pickles are read, not written."
        )
    if single and out.exists():
        raise BadCheckpointError(f"{out} exists already.", hint="Choose another output.")
    if not single:
        check_free(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}.reading-", dir=out.parent) as scratch:
        opened, extracted = _open(source, Path(scratch), key)
        named = _stripped(opened, strip)
        known_activation = activation or ("quick_gelu" if _OF_OPENAI in named.tensors() else None)
        final = TranslatedSource(named, known_layout(named), layout) if layout else named
        kind = _DTYPES[dtype] if dtype else None
        infos = {
            name: info._replace(dtype=kind) if kind and info.dtype.is_floating_point else info
            for name, info in final.tensors().items()
        }
        with _place(out, single=single, infos=infos) as folder:
            notes: tuple[str, ...] = ()
            if not single:
                notes = _settings(final, folder, infos, layout, known_activation, kind)
            limit = sum(info.nbytes for info in infos.values()) + 1
            size = limit if single else parse_size(max_shard)
            with ShardWriter(folder, infos, max_shard=size) as writer:
                for name in infos:
                    writer.write(name, _cast(final.read(name), infos[name].dtype, name))
            whole = folder / "model.safetensors"
            if not single and layout == "open_clip" and whole.is_file():
                whole.rename(folder / _OPEN_CLIP_FILE)
    return Conversion(out, len(infos), extracted, notes)


def _cast(values: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    """Values in the dtype of the result; raises where that cannot hold a finite one."""
    cast = values.to(dtype)
    if dtype != values.dtype and bool((torch.isfinite(values) & ~torch.isfinite(cast)).any()):
        raise BadParameterError(
            f"dtype: {name!r} has values that {dtype} cannot hold, up to "
            f"{float(values[torch.isfinite(values)].abs().max()):.6g}; nothing was written.",
            hint="Write fp32 or bf16.",
        )
    return cast


@contextmanager
def _place(out: Path, *, single: bool, infos: Mapping[str, TensorInfo]) -> Iterator[Path]:
    """A folder to write in; the file or folder appears when it is whole."""
    needs = sum(info.nbytes for info in infos.values())
    if not single:
        with staged_folder(out, needs=needs) as folder:
            yield folder
        return
    remove_abandoned(out)
    prefix = f".{out.name}.partial-{own_mark()}-"
    with TemporaryDirectory(prefix=prefix, dir=out.parent) as scratch:
        yield Path(scratch)
        os.replace(Path(scratch) / "model.safetensors", out)


def _open(
    source: str | Path, scratch: Path, key: str | None
) -> tuple[Source, tuple[Extracted, ...]]:
    place = resolve(source, "weights")
    path = place.path
    if path is not None and path.is_file() and path.suffix not in (".safetensors", ".json"):
        # Whatever it is called, such as `model_best.pth.tar`: it can only be a torch file.
        beside = path.parent if (path.parent / "open_clip_config.json").is_file() else None
        location = Location(place.text, "torch", (path,), beside)
    elif place.has_files:
        location = locate(place)
    else:
        location = None
    if location is None or location.format != "torch":
        if key is not None:
            raise BadParameterError(f"key: only a torch file has keys, {place.text} is none.")
        return open_checkpoint(location or place.text), ()
    files = []
    extracted = []
    for number, file in enumerate(location.files):
        files.append(scratch / f"{number}.safetensors")
        extracted.append(extract(file, files[-1], key=key))
    read = SafetensorsSource(tuple(files), label=location.label, folder=location.folder)
    return open_checkpoint(read), tuple(extracted)


class _Renamed:
    """A source under other names."""

    def __init__(self, source: Source, names: Mapping[str, str]) -> None:
        self.label, self.folder, self.files = source.label, source.folder, source.files
        self.tied: Mapping[str, str] = {}
        self._source = source
        self._names = names

    def tensors(self) -> Mapping[str, TensorInfo]:
        infos = self._source.tensors()
        return {new: infos[old] for new, old in self._names.items()}

    def read(self, name: str) -> Tensor:
        return self._source.read(self._names[name])

    def stretch(self, name: str, start: int, stop: int) -> Tensor:
        return self._source.stretch(self._names[name], start, stop)

    def prefetch(self, name: str, start: int, stop: int) -> None:
        self._source.prefetch(self._names[name], start, stop)


def _stripped(source: Source, prefixes: Sequence[str]) -> Source:
    names = {name: name for name in source.tensors()}
    for prefix in prefixes:
        if not any(new.startswith(prefix) for new in names):
            shown = ", ".join(list(names)[:3])
            raise BadParameterError(f"strip: no name begins with {prefix!r}; there is {shown}, ...")
        shorter = {new.removeprefix(prefix): old for new, old in names.items()}
        if len(shorter) < len(names):
            raise BadParameterError(f"strip: without {prefix!r} two tensors have one name.")
        names = shorter
    return _Renamed(source, names) if prefixes else source


def _settings(
    source: Source,
    folder: Path,
    infos: Mapping[str, TensorInfo],
    layout: Program | None,
    activation: Activation | None,
    dtype: torch.dtype | None,
) -> tuple[str, ...]:
    """Put configuration, processor and tokenizer beside the weights; says what is missing."""
    noted = str(dtype).removeprefix("torch.") if dtype else None
    copy_companions(source.folder, folder, dtype=noted)
    wanted = {"hf": "config.json", "open_clip": "open_clip_config.json", None: "config.json"}[
        layout
    ]
    native = (folder / wanted).is_file()
    if layout and not native:
        done = translate_settings(source.folder, folder, infos, layout, activation=activation)
        if not done and layout == "hf":
            raise BadCheckpointError(
                f"{source.label}: nothing says whether its towers use quick_gelu or gelu.",
                hint="Give --activation quick_gelu (OpenAI's models) or gelu (most others), or an "
                "output NAME.safetensors, which has no configuration.",
            )
        native = done
    notes = [] if native else [f"no {wanted} is beside the weights: put the model's own there"]
    has_text = layout == "hf" and "text_model.embeddings.token_embedding.weight" in infos
    if has_text and not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        notes.append("no tokenizer is beside the weights: copy that of the original CLIP there")
    return tuple(notes)


def described(done: Conversion) -> Iterator[str]:
    """What to tell a user, line by line."""
    yield f"converted: {done.out} ({done.tensors} tensors)"
    for one in done.extracted:
        if one.taken:
            yield f"taken: {one.taken}"
        for key, count in one.others.items():
            yield f"also there: {key} ({count} tensors), with --key {key}"
        rest = {name: kind for name, kind in one.left_out.items() if name not in one.others}
        if rest:
            yield "left out: " + ", ".join(f"{name} ({kind})" for name, kind in rest.items())
        if one.foreign:
            yield "not run: " + ", ".join(one.foreign)
    yield from done.notes

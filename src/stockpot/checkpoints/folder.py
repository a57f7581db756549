"""An output folder that appears whole or not at all, and the files that travel with weights."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stockpot.checkpoints.record import Record, read_record
from stockpot.errors import BadCheckpointError, BadParameterError, UserError
from stockpot.files import is_abandoned, own_mark, tells_full_disk
from stockpot.foreign import read_json_object
from stockpot.lock import lock_of, remove_abandoned_lock
from stockpot.remote.address import refuse_address

_COMPANIONS = (
    "config.json",
    "open_clip_config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "image_processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "words.json",
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?", re.IGNORECASE)


@contextmanager
def staged_folder(out: Path, *, needs: int = 0) -> Iterator[Path]:
    """A temporary folder beside `out` that takes its name when everything in it is written.

    Args:
        out: the folder to make; it must not exist, or be empty.
        needs: the bytes that will be written, checked against the free space first.
    """
    check_free(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(out.parent).free
    if needs > free:
        raise BadCheckpointError(
            f"{out.parent}: {needs / 1e9:,.3g} GB are needed, {free / 1e9:,.3g} GB are free.",
            hint="Free some space or choose another output.",
        )
    remove_abandoned(out)
    temporary = out.parent / f".{out.name}.partial-{own_mark()}"
    temporary.mkdir()
    try:
        yield temporary
        os.replace(temporary, out)
    except Exception as problem:
        clash = isinstance(problem, OSError) and problem.errno in (errno.ENOTEMPTY, errno.EEXIST)
        if clash and out.is_dir() and any(out.iterdir()):
            raise BadCheckpointError(
                f"{out} was written by another process meanwhile; it is left as it is."
            ) from None
        if tells_full_disk(problem) and not isinstance(problem, UserError):
            raise BadCheckpointError(
                f"{out}: the disk is full; nothing was left behind.",
                hint="Free some space or choose another output.",
            ) from problem
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_free(out: Path) -> None:
    """Raise if something stands where a folder is to be made."""
    refuse_address(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadCheckpointError(
            f"{out} exists already.", hint="Choose another output or remove it."
        )


def is_made(out: Path, record: Record) -> bool:
    """Whether the very model that is asked for is there already.

    A folder appears whole, so that a run which was killed right after that, and is started again,
    has nothing more to do.

    Raises:
        BadCheckpointError: something else stands there.
    """
    try:
        check_free(out)
    except BadCheckpointError as taken:
        try:
            found = read_record(out) if out.is_dir() else None
        except BadCheckpointError:
            found = None
        if found is None:
            raise
        if found.digest != record.digest:
            differences = ", ".join(found.differences(record)) or "another digest"
            raise BadCheckpointError(
                f"{taken.message} It was made otherwise: {differences}.", hint=taken.hint
            ) from None
        if not has_weights(out):
            raise BadCheckpointError(
                f"{taken.message} It has the record of this model, and its weights are gone.",
                hint=taken.hint,
            ) from None
        remove_leftovers(out)
        return True
    return False


def has_weights(folder: Path) -> bool:
    """Whether there are weights in a folder that was made, or in those of its members."""
    return any(folder.rglob("*.safetensors"))


def remove_leftovers(out: Path) -> None:
    """Remove what a killed process had still beside a model that is there: state and copies."""
    remove_abandoned(out)
    shutil.rmtree(state_folder(out), ignore_errors=True)
    remove_abandoned_lock(lock_of(out))


def state_folder(out: Path) -> Path:
    """Where the state of a training into `out` is kept."""
    return out.with_name(f".{out.name}.partial")


def remove_abandoned(out: Path) -> None:
    """Remove what earlier runs left behind that were killed."""
    for path in out.parent.glob(f".{out.name}.partial-*"):
        if is_abandoned(path.name.removeprefix(f".{out.name}.partial-")):
            shutil.rmtree(path, ignore_errors=True)


_DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
"""What configurations call the number of layers."""


def copy_companions(
    source: Path | None, out: Path, *, dtype: str | None = None, layers: int | None = None
) -> None:
    """Copy config, processor and tokenizer files; dtype and number of layers go into the config."""
    if source is None:
        return
    for name in _COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)
    config = out / "config.json"
    if not config.is_file():
        return
    content = read_json_object(config, BadCheckpointError)
    changes: dict[str, Any] = {}
    changes |= {key: dtype for key in ("dtype", "torch_dtype") if dtype and key in content}
    tower = content.get("vision_config")
    if layers and isinstance(tower, dict):  # of a dual encoder, that tower is stacked
        changes["vision_config"] = tower | {key: layers for key in _DEPTHS if key in tower}
    elif layers:
        changes |= {key: layers for key in _DEPTHS if key in content}
    # A vision tower may find its dual encoder beside itself; its copy lies elsewhere.
    home = Path(str(content.get("dual_encoder", "")))
    moved = str(home).startswith("..") or not home.is_dir()
    if home.name and moved and (source.parent / home.name).is_dir():
        changes["dual_encoder"] = str((source.parent / home.name).resolve())
    # What is written is never in FP8: reading gives the numbers that it stands for.
    quantised = content.get("quantization_config")
    widened = isinstance(quantised, Mapping) and _is_float8(quantised)
    if widened:
        del content["quantization_config"]
    if changes or widened:
        config.write_text(json.dumps(content | changes, indent=2) + "\n", encoding="utf-8")


def _is_float8(quantised: Mapping[str, Any]) -> bool:
    method, form = quantised.get("quant_method"), quantised.get("format")
    return method in ("fp8", "fbgemm_fp8") or form == "float-quantized"


def parse_size(text: str | int) -> int:
    """Bytes from text such as `5GB`, `500MB`, `2GiB` or a plain number."""
    if isinstance(text, int):
        return text
    match = _SIZE.fullmatch(text.strip())
    if not match or not float(match[1]):
        raise BadParameterError(f"max_shard: expected a size such as 5GB or 500MB, got {text!r}.")
    power = " KMGT".index(match[2].upper() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)

"""An output folder that appears whole or not at all, and the files that travel with weights."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.files import is_running

_COMPANIONS = (
    "config.json",
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
            f"{out.parent}: {needs / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free."
        )
    _remove_abandoned(out)
    temporary = out.parent / f".{out.name}.partial-{os.getpid()}"
    temporary.mkdir()
    try:
        yield temporary
        os.replace(temporary, out)
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BadCheckpointError(
                f"{out}: the disk is full; nothing was left behind.",
                hint="Free some space or choose another output.",
            ) from None
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_free(out: Path) -> None:
    """Raise if something stands where a folder is to be made."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadCheckpointError(
            f"{out} exists already.", hint="Choose another output or remove it."
        )


def _remove_abandoned(out: Path) -> None:
    """Remove what earlier runs left behind that were killed."""
    for path in out.parent.glob(f".{out.name}.partial-*"):
        number = path.name.rpartition("-")[2]
        if number.isdigit() and not is_running(int(number)):
            shutil.rmtree(path, ignore_errors=True)


def copy_companions(source: Path | None, out: Path, *, dtype: str | None = None) -> None:
    """Copy config, processor and tokenizer files; `dtype` is noted in the config."""
    if source is None:
        return
    for name in _COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)
    config = out / "config.json"
    if not config.is_file():
        return
    content = json.loads(config.read_text(encoding="utf-8"))
    changes = {key: dtype for key in ("dtype", "torch_dtype") if dtype and key in content}
    # A vision tower may find its dual encoder beside itself; its copy lies elsewhere.
    home = Path(str(content.get("dual_encoder", "")))
    moved = str(home).startswith("..") or not home.is_dir()
    if home.name and moved and (source.parent / home.name).is_dir():
        changes["dual_encoder"] = str((source.parent / home.name).resolve())
    if changes:
        config.write_text(json.dumps(content | changes, indent=2) + "\n", encoding="utf-8")


def parse_size(text: str | int) -> int:
    """Bytes from text such as `5GB`, `500MB`, `2GiB` or a plain number."""
    if isinstance(text, int):
        return text
    match = _SIZE.fullmatch(text.strip())
    if not match or not float(match[1]):
        raise BadParameterError(f"max_shard: expected a size such as 5GB or 500MB, got {text!r}.")
    power = " KMGT".index(match[2].upper() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)

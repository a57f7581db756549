"""An output folder that appears whole or not at all, the files that travel with weights, and the
card: what was asked and what came of it, for people.
"""

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

from stockpot.checkpoints.record import MEMBER, RECORD, Record, read_record, write_record
from stockpot.checkpoints.seen import Seen, write_seen
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
        remove_leftovers(out)
        return True
    return False


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


_TITLES = {
    "new": "New",
    "fuse": "Fused with",
    "harden": "Hardened with",
    "season": "Seasoned with",
    "tune": "Tuned with",
}
_LONGEST = 120
"""Values beyond so many letters stand in the record alone."""
_MOST = 40


def write_card(
    folder: Path, record: Record, *, summary: str = "", paper: str = "", seen: Seen | None = None
) -> None:
    """Write `README.md` for people, `stockpot.json` for programs, and the hashes of images seen.

    Args:
        folder: the model's.
        record: what is known of it.
        summary: the method in a sentence.
        paper: where the method comes from.
        seen: the images that the model and its parents have seen.
    """
    record = record.model_copy(update={"seen": write_seen(folder, seen or Seen())})
    text = card(record, summary=summary, paper=paper)
    (folder / "README.md").write_text(text, encoding="utf-8")
    write_record(folder, record)


def card(record: Record, *, summary: str = "", paper: str = "") -> str:
    """The text of the card."""
    settings = dict(record.parameters)
    if record.seed is not None:
        settings["seed"] = record.seed
    versions = {key: value for key, value in record.versions.items() if value not in ("", None)}
    details = {key: value for key, value in record.details.items() if key != "command"}
    lines = [
        "---",
        "library_name: transformers",
        "tags:",
        *(["- model-fusion"] if record.verb == "fuse" else []),
        "- stockpot",
        f"- {record.method}",
        "---",
        "",
        f"# {_TITLES[record.verb]} {record.method}",
        "",
        summary + (f" ({paper})" if paper else ""),
        "",
        "## Made by",
        "",
        "```",
        str(record.details.get("command") or python_call(record)),
        "```",
        "",
        f"Parameters: {_listed(settings)}.",
        "",
        f"Versions: {_listed(versions)}. Digest `{record.digest}`.",
        "",
        "## Made from",
        "",
        "| role | name | file | sha256 |",
        "|---|---|---|---|",
        *_inputs(record),
    ]
    if record.seen:
        uses = [f"{count:,} in {use}" for use, count in record.seen.images.items()]
        lines += ["", f"Images seen, by it or its parents: {', '.join(uses) or 'not counted'}."]
    if rows := list(_rows(details, ()))[:_MOST]:
        lines += ["", "## What came of it", "", *rows]
    return "\n".join(lines) + "\n"


def _listed(values: Mapping[str, Any]) -> str:
    long = {key: len(str(value)) > _LONGEST for key, value in values.items()}
    shown = (f"{key}=(in {RECORD})" if long[key] else f"{key}={values[key]}" for key in values)
    return ", ".join(shown) or "none"


def _inputs(record: Record) -> Iterator[str]:
    for one in record.inputs:
        files = one.files or {one.source or "-": one.fingerprint or "not computed"}
        for file, digest in files.items():
            yield f"| {one.role} | `{one.name}` | {file} | `{digest}` |"


def _rows(details: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in details.items():
        place = (*path, str(key))
        if isinstance(value, Mapping):
            yield from _rows(value, place)
        elif key == "notes" and isinstance(value, list):
            yield from (f"- {note}" for note in value)
        elif value not in (None, "", []) and len(str(value)) <= _LONGEST:
            yield f"- {' '.join(place).replace('_', ' ')}: {value}"


def python_call(record: Record) -> str:
    """The call that makes such a model; what lay in memory has no name to call it by."""
    places: dict[str, list[str]] = {}
    for one in record.inputs:
        places.setdefault(one.role, []).append(one.source or one.name)
    settings = dict(record.parameters)
    if record.seed is not None:
        settings["seed"] = record.seed
    rest = "".join(f", {key}={value!r}" for key, value in settings.items())
    named = {"data", "validation", "source", "teacher", "base"}
    given = {role: places[role] for role in places if role in named}
    if record.verb == "new":
        data = places.get("classes", ["..."])[0]
        return f"stockpot.models.new.new_model({record.method!r}, {data!r}, ...{rest})"
    if record.verb == "fuse":
        first, tasks = repr(places.get(MEMBER, [])), given.pop("data", None)
        given |= {"tasks": tasks} if tasks else {}
    elif record.verb == "harden":
        first = ", ".join(repr(places.get(role, ["..."])[0]) for role in ("model", "data"))
        given.pop("data", None)
    else:
        first = f"{places.get(MEMBER, [])!r}, {places.get('data', ['...'])[0]!r}"
        given.pop("data", None)
    others = "".join(
        f", {key}={value if key == 'tasks' else value[0]!r}" for key, value in given.items()
    )
    verb = ".".join(("stockpot", record.verb))
    return f"{verb}({record.method!r}, {first}{others}, out=...{rest})"

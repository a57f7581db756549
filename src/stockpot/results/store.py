"""A folder of result files: written atomically, one per cell, never rewritten when present.

A cell's file name carries a digest of its key, so a rerun with the same question finds the
answer and a changed parameter, seed, model or dataset asks anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.foreign import reading, reason
from stockpot.remote.working_copy import read_copy
from stockpot.results.collection import Results
from stockpot.results.manifest import MANIFEST, read_manifest
from stockpot.results.migration import VERSION, migrated
from stockpot.results.provenance import package_version
from stockpot.results.samples_file import samples_path
from stockpot.results.schema import CellKey, CellResult
from stockpot.results.signing import SIGNATURE
from stockpot.results.tuning import TUNE_FILE

_GROUPING = {"entry", "training_seed", "sweep"}
"""Fields of a key that say how cells belong together and change nothing about the question."""

_FORWARD = {"precision": "fp32", "compiled": False}


def digest(key: CellKey) -> str:
    """Twelve hex digits that stand for the question a key asks."""
    # With the data's own words a question reads as before keys had words, and its answer is found.
    plain = not key.words or key.words.startswith("data:")
    left_out = _GROUPING | ({"words"} if plain else set())
    left_out |= {name for name in ("seen", "contents") if not getattr(key, name)}
    # In full precision too: questions of before keys had one are questions in full precision.
    left_out |= {name for name in _FORWARD if getattr(key, name) == _FORWARD[name]}
    question = key.model_dump(mode="json", exclude=left_out)
    text = json.dumps(question, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


UNFINISHED = ".unfinished"
"""Where cells keep what they have done until they are saved."""
_LONGEST = 225
"""Letters of a file's name before the digest; `.samples.parquet` may follow it."""


def scratch_name(cell: str) -> str:
    """The folder of a cell there, by the digest of its key: another version begins anew."""
    return f"{cell}-{package_version('stockpot')}"


class ResultStore:
    """The result files of one run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, key: CellKey) -> Path:
        """Where the cell of this key lies, or would lie."""
        parts = [
            re.sub(r"[^A-Za-z0-9_.-]+", "-", part) for part in (key.model, key.measure, key.data)
        ]
        # The digest alone tells cells apart, and no file has a name of more than 255 letters.
        return self.folder / f"{'--'.join(parts)[:_LONGEST]}--{digest(key)}.json"

    def scratch(self, key: CellKey) -> Path:
        """Where the cell of this key may keep what it has done until it is saved.

        What another version of the program left there is not gone on with.
        """
        return self.folder / UNFINISHED / scratch_name(digest(key))

    def clear_scratch(self, key: CellKey) -> None:
        """Remove what the cell of this key has kept there."""
        folder = self.scratch(key)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # other cells may have theirs beside it
            folder.parent.rmdir()

    def find(self, key: CellKey, *, samples: bool = False) -> CellResult | None:
        """The stored cell, or None when it was never finished.

        Args:
            key: the question.
            samples: whether a cell without its per-image records counts as unfinished.
        """
        path = self.path(key)
        if not path.exists():
            return None
        known = read_result(path)
        if samples and not (known.samples and samples_path(path).is_file()):
            return None
        # The same question, asked from another place of a recipe; a tuple is read back as a list.
        if known.key.model_dump(mode="json") != key.model_dump(mode="json"):
            known = known.model_copy(update={"key": key})
            self.save(known)
        return known

    def save(self, result: CellResult, samples: bytes | None = None) -> Path:
        """Write one cell; either the whole file appears or none.

        Its per-image records, of which it holds the digest, come first: where it is, they are.
        """
        path = self.path(result.key)
        if samples is not None:
            write_atomic(samples_path(path), samples)
        write_atomic(path, result.model_dump_json(indent=1) + "\n")
        return path

    def __iter__(self) -> Iterator[CellResult]:
        for path in sorted(self.folder.glob("*.json")):
            yield read_result(path)


def read_result(path: Path) -> CellResult:
    """Read and check one result file, of this version or an older one."""
    with reading(path, UserError, hint=_HINT):
        content = path.read_bytes()
    return parse_result(content, str(path))


_HINT = "Move it away, or rerun with --fresh."


def parse_result(content: bytes, path: str) -> CellResult:
    """The same of what a file at this path holds."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise UserError(
            f"{path} is not a result file: it is no JSON ({reason(problem)}).", hint=_HINT
        ) from problem
    version = document.get("schema_version", 1) if isinstance(document, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise UserError(
            f"{path} was written by a newer Stockpot: its version is {version}, this one reads up "
            f"to {VERSION}.",
            hint="Install a newer Stockpot.",
        )
    try:
        with reading(path, UserError, hint=_HINT):
            document = migrated(document) if version is not None else document
        return CellResult.model_validate(document)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise UserError(
            f"{path} is not a result file of this version: {where}: {first['msg']}.",
            hint=_HINT,
        ) from problem


def load_results(*sources: str | Path, stale: bool = False) -> Results:
    """The cells under these folders (a run folder or its `results` folder) or files.

    A run folder may be given by its address in storage (docs/remote.md).

    Of a run folder only those that belong to its present recipe, unless `stale` asks for all.
    """
    return Results(read_result(path) for path in result_files(*sources, stale=stale))


def result_files(*sources: str | Path, stale: bool = False) -> list[Path]:
    """The result files under these folders or files; `stale` as for `load_results`."""
    found: list[Path] = []
    for source in map(read_copy, sources):
        if source.is_file():
            found.append(source)
            continue
        if not source.is_dir():
            raise UserError(f"no results at {source}: expected a run folder or a result file.")
        found.extend(files_of(source, stale=stale))
    if not found:
        raise UserError(
            f"no result files under {', '.join(map(str, sources))}.",
            hint="Run `stockpot measure` or `stockpot run` first.",
        )
    return found


def files_of(source: Path, *, stale: bool = False) -> list[Path]:
    """The result files of a run folder or its `results` folder, which may hold none."""
    inner = source / "results"
    if not inner.is_dir() and (source / MANIFEST).is_file():
        return []  # a run that has measured nothing yet
    folder = inner if inner.is_dir() else source
    manifest = None if stale else read_manifest(folder.parent)
    return [
        path
        for path in sorted(folder.glob("*.json"))
        if path.name not in (SIGNATURE, TUNE_FILE)
        and (manifest is None or path.name in manifest.present)
    ]


def run_folders(sources: Sequence[str | Path]) -> list[Path]:
    """Folders with results: those given, or what lies in them where they only hold others.

    What is given by its address is brought, and the folder is the copy of it.
    """
    found: list[Path] = []
    for source in map(read_copy, sources):
        if not source.is_dir():
            raise UserError(f"{source}: expected a folder with results, or one of such folders.")
        inner = sorted(path for path in source.iterdir() if (path / "results").is_dir())
        if (source / "results").is_dir() or not inner:
            inner = [source]
        found += inner
    return list({path.resolve(): path for path in found}.values())

"""A run folder that lies in storage: a copy on this machine to work in, sent as it grows.

Weights are mapped and result files written many times over, so work goes on in a local folder (in
the cache, by address). What the store has is brought first; what is whole here is sent within
seconds; at the end both are the same. A model is sent with its record last and brought with its
record last: a folder without one is none, so a kill in between leaves no mixture. Storage has no
locks: of two runs that write one file at a time, the one that ends last is kept.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.lock import held_alone
from stockpot.remote.address import local_path, storage_address
from stockpot.remote.copies import ADDRESS, copy_folder, notes_of
from stockpot.remote.run_files import MODEL, RECORD, is_record, model_of, records_of, whole_files
from stockpot.remote.storage import Storage

SECONDS = 2.0
"""Between two looks for what is new here."""
_AT_ONCE = 8
MANIFEST = "run.json"
_FILES = "files"


class _Same(NamedTuple):
    """A file that was the same here and there: the version there, size and time here."""

    version: str
    size: int
    changed: int


_NEVER = (-1, 0)
"""Size and time of a file that never was the same here."""


class WorkingCopy:
    """A folder to work in, and the address that it is a copy of, if it is one."""

    def __init__(self, place: str | Path, *, weights: bool = True) -> None:
        self.url = storage_address(place)
        self.folder = local_path(place)
        self._weights = weights
        self._lock = threading.Lock()
        if self.url is not None:
            self._storage = Storage(self.url)
            self.folder = copy_folder(self.url)
            self._notes = notes_of(self.folder)
            self._same = _read_notes(self._notes)

    def shown(self, path: Path) -> str:
        """What to call a file of this folder: by its address, if the folder has one."""
        if self.url is None or not path.is_relative_to(self.folder):
            return str(path)
        return f"{self.url}/{path.relative_to(self.folder).as_posix()}"

    def check_there(self) -> None:
        """Raise where an address holds nothing; of a folder whoever reads it says so."""
        if self.url is not None and not self.folder.is_dir():
            raise UserError(f"{self.url} holds no files.", hint="`stockpot run` writes them.")

    def pull(self) -> None:
        """Bring what is new in the store; what is new here stays."""
        if self.url is None:
            return
        listed = self._storage.list()
        whole = {model_of(name) for name in listed if is_record(name)}
        there = {
            name: stored.version
            for name, stored in listed.items()
            if not (model := model_of(name)) or model in whole
        }
        ours = {model for model in whole if self._is_ours(model, there)}
        wanted = [
            name
            for name, version in there.items()
            if self._is_wanted(name) and model_of(name) not in ours and not self._has(name, version)
        ]
        wanted = list(dict.fromkeys([*wanted, *records_of(wanted)]))
        with self._lock:
            for name in set(self._same) - set(there):
                # A model that is half sent is not taken away from where it is whole.
                half = bool(model_of(name)) and name in listed
                if self._stat(name) == self._same.pop(name)[1:] and not half:
                    (self.folder / name).unlink(missing_ok=True)
            # What is there of half a model goes, or is replaced, when a whole one is sent.
            self._same |= {n: _Same(listed[n].version, *_NEVER) for n in set(listed) - set(there)}
            for record in records_of(wanted):
                (self.folder / record).unlink(missing_ok=True)
                self._same.pop(record, None)
                self._remove_others(Path(record).parent, there)
            self._note()

            def bring(name: str) -> None:
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
                try:
                    self._storage.fetch(name, temporary)
                    os.replace(temporary, path)
                finally:
                    temporary.unlink(missing_ok=True)
                self._same[name] = _Same(there[name], *(self._stat(name) or (0, 0)))

            _each(bring, wanted)
            self._note()

    def push(self, *, removed: bool = True) -> None:
        """Send what is new here, and unless told otherwise remove there what was removed here."""
        if self.url is None:
            return
        with self._lock:
            here = dict(whole_files(self.folder))
            known = {name: same[1:] for name, same in self._same.items()}
            new = [name for name, stat in here.items() if known.get(name) != stat]
            models = {model_of(name) for name in here} - {""}
            gone = [
                name
                for name in known
                if name not in here
                # A folder without its manifest was lost, not emptied.
                and (model_of(name) in models or (removed and MANIFEST in here))
            ]
            records = records_of([*new, *gone])
            new = list(dict.fromkeys([*new, *(name for name in records if name in here)]))
            for name in dict.fromkeys([*records, *gone]):
                if name in self._same:
                    self._storage.remove(name)
                    del self._same[name]

            def send(name: str) -> None:
                try:
                    stored = self._storage.put(self.folder / name, name)
                except UserError:
                    if not (self.folder / name).exists():
                        return  # replaced or removed meanwhile
                    raise
                self._same[name] = _Same(stored.version, *here[name])

            try:
                _each(send, new)
            finally:
                if new or gone:
                    self._note()

    def _is_wanted(self, name: str) -> bool:
        model = MODEL.fullmatch(name)
        return self._weights or model is None or model[2] in (RECORD, "seen.npz", "README.md")

    def _has(self, name: str, version: str) -> bool:
        """Whether it is here as it is there, or changed since and not sent yet."""
        same = self._same.get(name)
        if same is None or same[1:] == _NEVER or self._stat(name) is None:
            return False
        return same.version == version

    def _is_ours(self, model: str, there: Mapping[str, str]) -> bool:
        """Whether a model is whole here, and there as it was sent or brought last."""
        start = f"models/{model}/"
        known = {
            n: same.version
            for n, same in self._same.items()
            if n.startswith(start) and same[1:] != _NEVER
        }
        now = {n: v for n, v in there.items() if n.startswith(start) and self._is_wanted(n)}
        return known == now and self._stat(f"{start}{RECORD}") is not None

    def _remove_others(self, model: Path, there: Mapping[str, str]) -> None:
        """Remove files of a model here that it does not have there."""
        for path in (self.folder / model).rglob("*"):
            if path.is_file() and path.relative_to(self.folder).as_posix() not in there:
                path.unlink()

    def _stat(self, name: str) -> tuple[int, int] | None:
        try:
            found = (self.folder / name).stat()
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns

    def _note(self) -> None:
        write_atomic(self._notes, json.dumps({ADDRESS: self.url, _FILES: self._same}))


@contextmanager
def working_copy(
    place: str | Path, *, weights: bool = True, lock: str = ""
) -> Iterator[WorkingCopy]:
    """A run folder to work in; what lies in storage is brought, and sent again as it changes.

    Args:
        place: a folder, or an address such as `s3://bucket/run`.
        weights: whether the weights of models are brought too.
        lock: a file of the folder that is held meanwhile, from before anything is brought until
            all is sent; its name begins with a dot, so that it stays here.
    """
    copy = WorkingCopy(place, weights=weights)
    with held_alone(copy.folder / lock, copy.url or copy.folder) if lock else nullcontext():
        if copy.url is None:
            yield copy
            return
        copy.pull()
        with _sending(copy):
            try:
                yield copy
            except BaseException:
                # What was finished is sent all the same, and what went wrong first is told.
                try:
                    copy.push(removed=False)
                except UserError as problem:
                    warnings.warn(str(problem), UserWarning, stacklevel=1)
                raise
        try:
            copy.push()
        except UserError as problem:
            problem.hint += f" All is in {copy.folder}; the same command again sends it."
            raise


@contextmanager
def run_copies(places: Iterable[str | Path]) -> Iterator[list[WorkingCopy]]:
    """Runs that are there, without their weights; what is written into them is sent."""
    with ExitStack() as stack:
        copies = [stack.enter_context(working_copy(each, weights=False)) for each in places]
        for copy in copies:
            copy.check_there()
        yield copies


def read_copy(place: str | Path) -> Path:
    """A run folder to read results, records and pages from; weights stay where they are."""
    copy = WorkingCopy(place, weights=False)
    copy.pull()
    copy.check_there()
    return copy.folder


@contextmanager
def _sending(copy: WorkingCopy) -> Iterator[None]:
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(SECONDS):
            try:
                # A model that is being replaced is missing for a moment: nothing is removed.
                copy.push(removed=False)
            except UserError:
                continue  # tried again; the last time tells

    thread = threading.Thread(target=send, name="send", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _each(do: Callable[[str], None], names: Iterable[str]) -> None:
    """Several at a time; what says that others are whole comes after them."""
    turns: dict[int, list[str]] = defaultdict(list)
    for name in names:
        turns[2 if is_record(name) else 1 if name.endswith(".json") else 0].append(name)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="files") as threads:
        for turn in sorted(turns):
            for done in [threads.submit(do, name) for name in turns[turn]]:
                done.result()


def _read_notes(path: Path) -> dict[str, _Same]:
    try:
        noted = json.loads(path.read_bytes())[_FILES]
        return {name: _Same(*same) for name, same in noted.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}

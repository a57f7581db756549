"""`Index`: many folders of results in one database."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import select

from stockpot.errors import BadParameterError, UserError
from stockpot.remote.address import address
from stockpot.remote.working_copy import read_copy
from stockpot.results.collection import Results
from stockpot.results.index.ask import SHOWN, Answer, by_filters, by_sql, is_sql, parse
from stockpot.results.index.fresh import Changes, changes_of
from stockpot.results.index.place import place_of
from stockpot.results.index.rows import entry_of, name_of
from stockpot.results.index.tables import cells, check, documents, drop, make
from stockpot.results.index.write import put, take_out
from stockpot.results.schema import CellResult
from stockpot.results.store import parse_result, run_folders
from stockpot.stages import stage

_AT_ONCE = 200
"""Files in one transaction: others who write wait for no longer than these take."""


class Index:
    """An open index; `open_index` makes one."""

    def __init__(self, place: str | Path, *, write: bool = False) -> None:
        self.place = place_of(place)
        if not write and self.place.file is not None and not self.place.file.is_file():
            raise UserError(
                f"there is no index at {self.place}.",
                hint=f"Make one: stockpot results index RUN --index {place}",
            )
        self._engine = self.place.engine(write=write)
        with self.place.complaints():
            if write:
                make(self._engine, self.place)
            else:
                with self._engine.connect() as connection:
                    check(connection, self.place)

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass  # connections are closed as soon as they are done with

    def add(self, *files: str | Path) -> None:
        """Put result files into the index, or what has become of them."""
        paths = sorted(Path(file).resolve() for file in files)
        with self.place.complaints():
            for at in range(0, len(paths), _AT_ONCE):
                with stage("load"):
                    entries = [entry_of(path) for path in paths[at : at + _AT_ONCE]]
                with stage("write"), self._engine.begin() as connection:
                    put(connection, entries)

    def update(self, *folders: str | Path) -> dict[str, Changes]:
        """Bring folders up to date, by default all that it knows and this machine has.

        Args:
            *folders: run folders, or folders of run folders.
        """
        found = {}
        for folder in _whole(folders) if folders else self._there():
            with self.place.complaints(), self._engine.begin() as connection:
                changes = changes_of(connection, folder)
                take_out(connection, list(changes.gone.values()))
            self.add(*changes.new, *changes.changed)
            found[name_of(folder)] = changes
        return found

    def behind(self, *folders: str | Path, thorough: bool = False) -> dict[str, Changes]:
        """Folders of this machine whose files say something else than the index.

        Args:
            *folders: those that are looked at; by default all that it knows.
            thorough: compare the content of all files, not only where size or time differ, and of
                folders in storage too.
        """
        asked = set(map(name_of, folders))
        found = {}
        for folder in self._there(asked, storage=thorough):
            with self.place.complaints(), self._engine.connect() as connection:
                changes = changes_of(connection, folder, thorough=thorough)
            if changes:
                found[name_of(folder)] = changes
        return found

    def forget(self, *folders: str | Path) -> int:
        """Take folders out, whether they are there or not; the number of cells that went."""
        names = [name_of(folder) for folder in folders]
        with self.place.complaints(), self._engine.begin() as connection:
            numbers = connection.scalars(select(cells.c.id).where(cells.c.folder.in_(names))).all()
            take_out(connection, numbers)
        return len(numbers)

    @property
    def folders(self) -> list[str]:
        """All run folders that it knows."""
        with self.place.complaints(), self._engine.connect() as connection:
            return sorted(connection.scalars(select(cells.c.folder).distinct()))

    def query(
        self, *asked: str, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> Answer:
        """One SELECT, or filters such as `model=NAME` and `severity>=3` that must all hold.

        Args:
            *asked: the SELECT or the filters.
            columns: of an answer to filters; `condition.NAME` is one too.
            limit: the most rows.
        """
        with self.place.complaints(), stage("load"):
            if asked and is_sql(asked[0]):
                if len(asked) > 1:
                    raise BadParameterError("give one SELECT, in quotes, and nothing beside it.")
                return by_sql(self._engine, asked[0], limit)
            return by_filters(self._engine, [parse(one) for one in asked], columns or SHOWN, limit)

    def results(self, *folders: str | Path) -> Results:
        """The results themselves, one answer to each question: the later one.

        Args:
            *folders: only those of these run folders, or of run folders in them.
        """
        answers = {(row.question, row.model_fingerprint): row for row in self._files(folders)}
        return Results(self._result(row) for row in answers.values())

    def by_folder(self, *folders: str | Path) -> dict[str, Results]:
        """All results, those of each run folder by themselves."""
        found: dict[str, Results] = {}
        for row in self._files(folders):
            found.setdefault(row.folder, Results()).append(self._result(row))
        return found

    def _files(self, folders: Sequence[str | Path]) -> Iterator[Any]:
        """The files that it holds, by time."""
        asked = select(
            cells.c.path, cells.c.folder, cells.c.sha256, cells.c.question,
            cells.c.model_fingerprint, documents.c.content,
        ).join(documents, documents.c.cell == cells.c.id)  # fmt: skip
        if folders:
            asked = asked.where(cells.c.folder.in_(self._meant(folders)))
        with self.place.complaints(), self._engine.connect() as connection:
            yield from connection.execute(asked.order_by(cells.c.created, cells.c.path))

    def _result(self, row: Any) -> CellResult:
        try:
            content = zlib.decompress(row.content)
        except zlib.error:
            content = b""
        if hashlib.sha256(content).hexdigest() != row.sha256:
            raise UserError(
                f"the index {self.place} is damaged: what it holds of {row.path} is not that file.",
                hint="Make it again from the files: stockpot results index --rebuild",
            )
        return parse_result(content, f"{row.path} (in the index {self.place})")

    def _meant(self, folders: Sequence[str | Path]) -> list[str]:
        known, found = self.folders, []
        for folder in folders:
            name = name_of(folder)
            inner = [one for one in known if one == name or one.startswith(f"{name}/")]
            if not inner:
                raise UserError(
                    f"the index {self.place} holds nothing of {folder}.",
                    hint=f"Index it first: stockpot results index {folder} --index {self.place}",
                )
            found += inner
        return found

    def _there(self, asked: Collection[str] = (), *, storage: bool = True) -> Iterator[Path]:
        """The folders that it knows, or those of them that are asked for, where they can be read.

        What lies in storage is brought first; without `storage` it is left out.
        """
        for name in self.folders:
            if asked and name not in asked:
                continue
            if address(name) is None:
                folder = Path(name)
                if folder.is_dir():
                    yield folder
            elif storage:
                yield read_copy(name)


def rebuilt(place: str | Path, folders: Sequence[str | Path] = ()) -> Index:
    """An index made again from the files; an index of another version too.

    Args:
        place: where it is.
        folders: the folders; by default those that it knows, all of which must be here.
    """
    whole = _whole(folders)
    if not folders:
        with Index(place) as known:
            whole = [read_copy(folder) for folder in known.folders]
        away = [str(folder) for folder in whole if not folder.is_dir()]
        if away:
            raise UserError(
                f"{', '.join(away)}: the index holds results of folders that are not here.",
                hint="Name the folders that it is to be made of.",
            )
    where = place_of(place)
    with where.complaints():
        drop(where.engine(write=True))
    index = Index(place, write=True)
    index.update(*whole)
    return index


def _whole(folders: Sequence[str | Path]) -> list[Path]:
    return [folder.resolve() for folder in run_folders(folders)]

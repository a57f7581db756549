"""Files behind an address, through fsspec; whatever its packages raise becomes one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from stockpot.errors import MissingDependencyError, UserError

WHOLE_PUTS = frozenset(("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "memory"))
"""Stores in which a file appears when its last byte is there. Elsewhere it is sent under another
name first and moved."""
_PACKAGES = {
    "s3": "stockpot[s3]", "s3a": "stockpot[s3]", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs",
    "abfs": "adlfs", "abfss": "adlfs", "sftp": "paramiko", "ssh": "paramiko", "oss": "ossfs",
    "http": "aiohttp", "https": "aiohttp", "smb": "smbprotocol",
}  # fmt: skip
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5")
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")


class Stored(NamedTuple):
    """One file there."""

    size: int
    version: str
    """Another whenever the file is written again."""


class Storage:
    """A folder behind an address."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._scheme = url.partition("://")[0]
        with _kindly(self.url):
            import fsspec

            self._files, root = fsspec.core.url_to_fs(self.url)
        self._root = str(root).rstrip("/")

    def list(self) -> dict[str, Stored]:
        """Every file below, by its name from here on; none where there is no such folder yet."""
        with _kindly(self.url):
            self._files.invalidate_cache()
            found = self._files.find(self._root, detail=True)
        start = len(self._root) + 1
        names = {
            path[start:]: facts
            for path, facts in found.items()
            if len(path) > start and not path.endswith("/")
        }
        for name in names:
            # Names of objects are any text; as paths some lie beside the folder, not in it.
            if name.startswith("/") or {"..", "\\", "\0"} & {*name.split("/"), *name}:
                raise UserError(
                    f"{self.url}: holds {name!r}, which is no name of a file in a run folder.",
                    hint="Nothing was brought. Remove it there, or take another place.",
                )
        return {name: _stored(facts) for name, facts in names.items()}

    def fetch(self, name: str, to: Path) -> None:
        """Bring a file here."""
        with _kindly(f"{self.url}/{name}"):
            self._files.get_file(self._at(name), str(to))

    def put(self, path: Path, name: str) -> Stored:
        """Send a file; it appears whole or not at all."""
        with _kindly(f"{self.url}/{name}", writing=True):
            target = self._at(name)
            if self._scheme in WHOLE_PUTS:
                self._files.put_file(str(path), target)
            else:
                folder, _, last = target.rpartition("/")
                self._files.makedirs(folder, exist_ok=True)
                self._files.put_file(str(path), f"{folder}/.{last}.part")
                self._files.mv(f"{folder}/.{last}.part", target)
            self._files.invalidate_cache()
            return _stored(self._files.info(target))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with _kindly(f"{self.url}/{name}", writing=True):
            try:
                self._files.rm_file(self._at(name))
            except FileNotFoundError:
                return

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"


def fetch_file(url: str, to: Path) -> None:
    """Bring one file, from storage or a web address."""
    with _kindly(url):
        import fsspec

        files, path = fsspec.core.url_to_fs(url)
        files.get_file(path, str(to))


def file_version(url: str) -> str:
    """What tells one writing of a file from the next."""
    with _kindly(url):
        import fsspec

        files, path = fsspec.core.url_to_fs(url)
        return repr(_stored(files.info(path)))


def _stored(facts: Mapping[str, Any]) -> Stored:
    size = int(facts.get("size") or 0)
    version = next((str(facts[key]) for key in _VERSIONS if facts.get(key)), "")
    return Stored(size, version or " ".join(_time(facts[key]) for key in _TIMES if key in facts))


def _time(value: Any) -> str:
    """A time in one way: listing and asking for one file may give it in two."""
    seconds = value.timestamp() if isinstance(value, datetime) else value
    return f"{seconds:.6f}" if isinstance(seconds, int | float) else str(seconds)


@contextmanager
def _kindly(url: str, *, writing: bool = False) -> Iterator[None]:
    scheme = url.partition("://")[0]
    verb = "written" if writing else "read"
    try:
        yield
    except UserError:
        raise
    except ImportError as problem:
        package = _PACKAGES.get(scheme)
        raise MissingDependencyError(
            f"{url} cannot be opened: a package is missing ({_line(problem)}).",
            hint=f"pip install '{package}'" if package else "",
        ) from None
    except FileNotFoundError:
        bucket = re.match(r"[a-z0-9+.-]+://[^/]+", url)
        raise UserError(
            f"{url} cannot be {verb}: there is no such place.",
            hint=f"Is there a {bucket[0]}? Buckets are not made here." if bucket else "",
        ) from None
    except PermissionError as problem:
        raise UserError(
            f"{url} cannot be {verb}: no permission ({_line(problem)}).",
            hint="Check the credentials and the rights of their owner.",
        ) from None
    except ValueError as problem:
        if "rotocol not known" not in str(problem):
            raise UserError(f"{url} cannot be {verb}: {_line(problem)}.") from problem
        raise UserError(
            f"{url}: no kind of storage is called {scheme!r}.",
            hint="Known are s3, gs, abfs, sftp, memory, file and what else fsspec has installed.",
        ) from None
    except Exception as problem:  # each package has its own kinds; all are about this place
        raise UserError(f"{url} cannot be {verb}: {_line(problem)}.") from problem


def _line(problem: BaseException) -> str:
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text[:300].rstrip(".")

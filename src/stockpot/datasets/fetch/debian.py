"""Files from a Debian package, through `apt-get download` and `dpkg-deb`; no root is needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from stockpot.datasets.fetch.cache import scratch_folder
from stockpot.datasets.fetch.source import Progress, SourceFailedError, run_client, silent, verified


class DebianPackage(NamedTuple):
    """One version of one package, known by the sha256 of its archive."""

    name: str
    version: str
    sha256: str
    size: int
    inside: str
    """The folder of the package that holds the data."""

    @property
    def label(self) -> str:
        """How a message names this source."""
        return f"Debian {self.name} {self.version}"

    def fetch(self, folder: Path, progress: Progress = silent) -> Path:
        """The unpacked data folder, brought into `folder` unless it is already there."""
        target = folder / f"{self.name}-{self.version}"
        if target.is_dir():
            return target
        with scratch_folder(folder) as scratch:
            try:
                run_client(
                    "apt-get",
                    ["download", f"{self.name}={self.version}"],
                    folder=scratch,
                    install="It comes with Debian and its relatives.",
                    progress=progress,
                    label=self.label,
                    size=self.size,
                )
            except SourceFailedError as problem:
                if "Unable to locate" in str(problem) or "was not found" in str(problem):
                    problem.hint = "Run `apt-get update` first; the package lists may be empty."
                raise
            archives = list(scratch.glob("*.deb"))
            if len(archives) != 1:
                raise SourceFailedError(
                    f"{self.label}: apt-get left {len(archives)} archives, not 1."
                )
            archive = verified(archives[0], self.sha256, self.label)
            run_client(
                "dpkg-deb",
                ["-x", str(archive), str(scratch / "unpacked")],
                folder=scratch,
                install="It comes with Debian and its relatives.",
            )
            os.replace(scratch / "unpacked" / self.inside, target)
        return target

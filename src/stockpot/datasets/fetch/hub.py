"""Files of a dataset on the Hugging Face hub.

The hub's files may be rewritten without a change of content, so they carry no checksum of their
own here: what is decoded from them must have the fingerprint that the dataset is known by.
"""

from __future__ import annotations

import os
import shutil
import urllib.request
from pathlib import Path
from typing import NamedTuple

from stockpot.datasets.fetch.cache import scratch_folder
from stockpot.datasets.fetch.source import Progress, SourceFailedError, silent

PATIENCE_S = 5
"""How long to wait for the hub's first answer before the next source is tried."""


class HubFiles(NamedTuple):
    """Some files of one dataset repository."""

    repository: str
    files: tuple[str, ...]

    @property
    def label(self) -> str:
        """How a message names this source."""
        return f"Hugging Face {self.repository}"

    def fetch(self, folder: Path, progress: Progress = silent) -> Path:
        """A folder with the files, brought into `folder` unless it is already there."""
        target = folder / f"hub-{self.repository.replace('/', '--')}"
        if target.is_dir():
            return target
        _check_reachable()
        import huggingface_hub

        with scratch_folder(folder) as scratch:
            for number, name in enumerate(self.files):
                progress(f"fetching {self.label}", number, len(self.files))
                try:
                    huggingface_hub.hf_hub_download(
                        self.repository,
                        name,
                        repo_type="dataset",
                        local_dir=scratch / "files",
                        etag_timeout=PATIENCE_S,
                    )
                except Exception as problem:  # the client raises its own and the network's kinds
                    raise SourceFailedError(
                        f"{name}: {str(problem).splitlines()[0][:160]}"
                    ) from problem
            progress(f"fetching {self.label}", len(self.files), len(self.files))
            shutil.rmtree(scratch / "files" / ".cache", ignore_errors=True)
            os.replace(scratch / "files", target)
        return target


def _check_reachable() -> None:
    """Ask the hub for one answer; its own client would try for half a minute before it gave up."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise SourceFailedError("HF_HUB_OFFLINE is set.")
    request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S):
            pass
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", problem)
        raise SourceFailedError(f"the hub cannot be reached ({reason}).") from None

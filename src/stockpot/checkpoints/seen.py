"""The images that a model has seen: in its training, in the choice of its weights, in its parents'.

Beside the record of a made model lies `seen.npz`: for each use (`training`, `validation`,
`seasoning`, `fusing`) the sorted hashes of the images, eight bytes each; of what is said in
`datasets/by_content/image_hashes.py`. The record holds how many there are and the file's sha256.
Models of the zoo are older than such files; what their records call by fingerprint is looked up in
`zoo/seen`, as far as it is there.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from stockpot.checkpoints.record import SeenImages, read_record

SEEN = "seen.npz"
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Seen:
    """What a model has seen, by the use that was made of it."""

    images: Mapping[str, Hashes] = field(default_factory=dict)
    sets: Mapping[str, str] = field(default_factory=dict)
    """Whole datasets by fingerprint, with their use: all that records without hashes tell."""
    lost: int = 0
    """Images that a record counts and whose hashes are not there any more."""

    def __bool__(self) -> bool:
        return bool(self.images or self.sets or self.lost)

    @property
    def digest(self) -> str:
        """What tells it from other knowledge; empty where nothing is known."""
        if not self:
            return ""
        told = [
            *(f"{use}:{hashlib.sha256(h.tobytes()).hexdigest()}" for use, h in self.images.items()),
            *(f"{name}:{use}" for name, use in self.sets.items()),
            str(self.lost),
        ]
        return hashlib.sha256("\n".join(sorted(told)).encode()).hexdigest()[:16]

    def __or__(self, other: Seen) -> Seen:
        """What two models have seen together."""
        uses = [*self.images, *(use for use in other.images if use not in self.images)]
        nothing = np.zeros(0, dtype=np.uint64)
        joined = {
            use: np.union1d(self.images.get(use, nothing), other.images.get(use, nothing))
            for use in uses
        }
        return Seen(joined, {**other.sets, **self.sets}, self.lost + other.lost)

    def among(self, hashes: Hashes, fingerprint: str = "") -> dict[str, NDArray[np.bool_]]:
        """By use, which of these images were seen.

        Args:
            hashes: of the images.
            fingerprint: of the dataset that they are.
        """
        found = {use: np.isin(hashes, known) for use, known in self.images.items()}
        if use := self.sets.get(fingerprint):
            found[use] = np.ones(len(hashes), dtype=bool)
        return {use: flags for use, flags in found.items() if flags.any()}


def seen_as(use: str, hashes: Hashes) -> Seen:
    """Images that were seen in one use."""
    return Seen({use: np.unique(hashes)}) if len(hashes) else Seen()


def write_seen(folder: Path, seen: Seen) -> SeenImages | None:
    """Write the hashes into a model's folder; what its record says of them."""
    if not seen:
        return None
    content = io.BytesIO()
    stored: dict[str, Any] = {use: hashes.astype("<u8") for use, hashes in seen.images.items()}
    np.savez(content, **stored)
    (folder / SEEN).write_bytes(content.getvalue())
    return SeenImages(
        images={use: len(hashes) for use, hashes in seen.images.items()},
        sets=dict(seen.sets),
        lost=seen.lost,
        sha256=hashlib.sha256(content.getvalue()).hexdigest(),
    )


def read_seen(folder: Path) -> Seen:
    """What the model of a folder has seen, as far as its record knows."""
    record = read_record(folder)
    if record is None:
        return Seen()
    told = record.seen
    if told is None:
        if record.verb != "harden":
            return Seen()
        uses = {"data": "training", "validation": "validation"}
        sets = {one.fingerprint: uses[one.role] for one in record.inputs if one.role in uses}
        found = Seen(sets=sets)
        for fingerprint, use in sets.items():
            found |= seen_as(use, _of_set(fingerprint))
        return found
    images = _hashes(folder / SEEN, told.sha256)
    lost = told.lost if images is not None else told.lost + sum(told.images.values())
    return Seen(images or {}, told.sets, lost)


def _of_set(fingerprint: str) -> Hashes:
    """The images of a set that models of the zoo were trained on, where its hashes are embedded."""
    kept = files("stockpot") / "zoo" / "seen" / f"{fingerprint[:16]}.npy"
    if not kept.is_file():
        return np.zeros(0, dtype=np.uint64)
    stored = np.load(io.BytesIO(kept.read_bytes()), allow_pickle=False)
    return np.asarray(stored, dtype=np.uint64)


def _hashes(path: Path, digest: str) -> dict[str, Hashes] | None:
    """The hashes by use; none where the file is gone or was changed."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            return None
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            return {use: stored[use].astype(np.uint64) for use in stored.files}
    except (OSError, ValueError, BadZipFile):
        return None

"""What a fusion will read, write and hold, worked out without running it."""

from __future__ import annotations

from dataclasses import dataclass

from stockpot.fuse.kinds import Fuser, StagedFuser
from stockpot.fuse.stream import STRETCH, Stream

_INTERPRETER = 160_000_000
"""Private memory of a process that has imported torch and done nothing."""


@dataclass(frozen=True)
class Plan:
    """The cost of a fusion."""

    method: str
    members: int
    tensors: int
    weights: int
    copied: int
    passes: int
    read_bytes: int
    write_bytes: int
    peak_bytes: int
    workers: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.method}: {self.members} members, {self.tensors} tensors fused "
            f"({self.weights / 1e6:.1f} M weights), {self.copied} copied",
            f"{self.passes} passes, {self.read_bytes / 1e9:.2f} GB read, "
            f"{self.write_bytes / 1e9:.2f} GB written",
            f"about {self.peak_bytes / 1e6:.0f} MB of private memory with {self.workers} threads",
            *self.notes,
        ]
        return "\n".join(lines)


def make_plan(
    method: str, fusers: list[Fuser], stream: Stream, *, models: int, itemsize: int | None
) -> Plan:
    """Add up what the fusers say they need."""
    alignment = stream.alignment
    count = len(alignment.members)
    sources = count + (alignment.base is not None)
    weights = sum(row.info.numel for row in alignment.rows)
    per_pass = sum(row.info.nbytes for row in alignment.rows) * sources
    passes = 1 + max(f.passes if isinstance(f, StagedFuser) else 0 for f in fusers)
    whole = any(not isinstance(f, StagedFuser) and not f.elementwise for f in fusers)
    largest = max(row.info.numel for row in alignment.rows)
    piece = largest if whole else min(largest, STRETCH)
    buffers = 3 * count + 4
    written = sum(
        info.numel * (itemsize or info.dtype.itemsize) for info in alignment.infos().values()
    )
    return Plan(
        method=method,
        members=count,
        tensors=len(alignment.rows),
        weights=weights,
        copied=len(alignment.copies),
        passes=passes,
        read_bytes=per_pass * passes,
        write_bytes=written * models,
        peak_bytes=_INTERPRETER + stream.workers * buffers * piece * stream.accumulate.itemsize,
        workers=stream.workers,
        notes=alignment.notes,
    )

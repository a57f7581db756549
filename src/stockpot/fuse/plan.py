"""What a fusion will read, write and hold, worked out without running it."""

from __future__ import annotations

from dataclasses import dataclass

from stockpot.fuse.kinds import DataFuser, Fuser, Learner, ModuleFuser, StagedFuser
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
    method: str, fusers: list[Fuser | Learner], stream: Stream, *, models: int, itemsize: int | None
) -> Plan:
    """Add up what the fusers say they need."""
    alignment = stream.alignment
    count = len(alignment.members)
    sources = count + (alignment.base is not None)
    weights = sum(row.info.numel for row in alignment.rows)
    per_pass = sum(row.info.nbytes for row in alignment.rows) * sources
    learns = any(isinstance(f, DataFuser | ModuleFuser) for f in fusers)
    passes = 1 + max(f.passes if isinstance(f, StagedFuser) else 0 for f in fusers) + learns
    whole = any(not getattr(f, "elementwise", True) for f in fusers)
    largest = max(row.info.numel for row in alignment.rows)
    piece = largest if whole else min(largest, STRETCH)
    buffers = 3 * count + 4
    written = sum(
        info.numel * (itemsize or info.dtype.itemsize) for info in alignment.infos().values()
    )
    peak = _INTERPRETER + stream.workers * buffers * piece * stream.accumulate.itemsize
    notes = alignment.notes
    if learns:
        # Base, one change per member, the working weights and their gradient, all in fp32.
        peak += 4 * weights * (count + 3)
        notes += ("plus the activations of one pass while it learns",)
    return Plan(
        method=method,
        members=count,
        tensors=len(alignment.rows),
        weights=weights,
        copied=len(alignment.copies),
        passes=passes,
        read_bytes=per_pass * passes,
        write_bytes=written * models,
        peak_bytes=peak,
        workers=stream.workers,
        notes=notes,
    )

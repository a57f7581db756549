"""What a fusion will cost: passes, bytes, and the most private memory that it takes."""

from __future__ import annotations

from dataclasses import dataclass

from stockpot.checkpoints.alignment import Row
from stockpot.fuse.fuser import (
    TOGETHER,
    Fuser,
    StagedFuser,
    SurveyFuser,
    SwitchFuser,
    TensorFuser,
)
from stockpot.fuse.job import Job
from stockpot.fuse.learning.assemble import find_data, working_model
from stockpot.fuse.learning.learner import DataFuser, Learner, ModuleFuser
from stockpot.fuse.learning.memory import Fused, held_pictures, one_pass
from stockpot.fuse.request import Request

INTERPRETER = 200_000_000
"""Private memory of a process that has imported torch, hashes files and writes a small model."""
LIBRARIES = 110_000_000
"""What running and training models adds: the libraries that know architectures, tokenizers and
picture formats, and those that an optimiser imports."""
FIRST_USE = 30_000_000
"""What the first passes leave behind, whatever their size: kernels' buffers, threads' heaps."""

ONE_BY_ONE = 4
"""As many members' parts a method takes that holds a whole tensor of one of them: what it makes of
it (ranks, singular vectors) is larger than the tensor."""

RANKED = 8
"""Parts more where values are ranked, by integers that are as long and twice as long."""


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
    device: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.method}: {self.members} members, {self.tensors} tensors fused "
            f"({self.weights / 1e6:.1f} M weights), {self.copied} copied",
            f"{self.passes} passes, {self.read_bytes / 1e9:.2f} GB read, "
            f"{self.write_bytes / 1e9:.2f} GB written",
            f"about {self.peak_bytes / 1e6:.0f} MB of private memory with "
            f"{self.workers} thread{'s' * (self.workers != 1)}"
            + ("" if self.device == "cpu" else f", and as much of {self.device}"),
            *self.notes,
        ]
        return "\n".join(lines)


def _looks(fuser: Fuser | Learner) -> int:
    """How often a fuser reads everything before it merges."""
    if isinstance(fuser, SurveyFuser):
        return fuser.looks
    return fuser.passes if isinstance(fuser, StagedFuser) else 0


def _held(fuser: Fuser | Learner, job: Job, row: Row) -> list[float]:
    """Weights that threads hold at once that merge a tensor; several may share its stretches."""
    stream, size = job.stream, row.info.numel
    count = len(stream.alignment.members)
    ranked = RANKED if isinstance(fuser, StagedFuser) and fuser.counts else 0
    if (isinstance(fuser, TensorFuser | SwitchFuser) and not fuser.elementwise) or (
        isinstance(fuser, StagedFuser) and fuser.whole
    ):
        room = None if isinstance(fuser, SwitchFuser) else fuser.room
        parts = room(row.name, row.info.shape, count) if room is not None else None
        if parts is None:
            streams = getattr(fuser, "one_by_one", False) and not job.switches
            parts = 3 * (min(count, ONE_BY_ONE) if streams else count) + 4 + ranked
        return [parts * size]
    piece = max(1, min(size, stream.step))
    # Of a stretch, members are read one after the other, or as many at once as there is room for.
    most = count if job.switches else min(count, max(1, TOGETHER // piece))
    stretches = 1 if isinstance(fuser, SurveyFuser) else -(-size // piece)
    return [float((3 * most + 4 + ranked) * piece)] * min(stretches, stream.workers)


def _walk(job: Job, weights: int) -> int:
    """What walking over the tensors takes, each thread at one of the largest."""
    stream = job.stream
    staged = [fuser for fuser in job.fusers if isinstance(fuser, StagedFuser)]
    at_once = max(
        sum(sorted((part for row in stream.alignment.rows for part in _held(fuser, job, row)),
                   reverse=True)[: stream.workers])
        for fuser in job.fusers
    )  # fmt: skip
    held = sum(fuser.holds for fuser in staged) * weights
    counts = stream.workers * len(stream.alignment.members) * sum(fuser.counts for fuser in staged)
    return int((at_once + held) * stream.accumulate.itemsize) + counts


def plan_job(request: Request, job: Job) -> Plan:
    """Add up what the fusers say they need."""
    stream, fusers = job.stream, job.fusers
    models = sum(len(job.models(label)) for label in job.of)
    alignment = stream.alignment
    count = len(alignment.members)
    sources = count + (alignment.base is not None)
    weights = sum(row.info.numel for row in alignment.rows)
    per_pass = sum(row.info.nbytes for row in alignment.rows) * sources
    passes = 1 + max(map(_looks, fusers)) + job.learns
    written = sum(info.nbytes for info in job.infos.values())
    walk = _walk(job, weights)
    learning = 0
    learners = _that_learn(request, job)
    if learners:
        shapes = [row.info.shape for row in alignment.rows]
        squares = tuple(shape[1] ** 2 for shape in shapes if len(shape) == 2)
        learning = (
            LIBRARIES
            + FIRST_USE
            + _learning(request, learners, Fused(weights, count, sources, squares))
        )
    return Plan(
        method=request.method,
        members=count,
        tensors=len(alignment.rows),
        weights=weights,
        copied=len(alignment.copies),
        passes=passes,
        read_bytes=per_pass * passes,
        write_bytes=written * models,
        # It learns first, and walks over the tensors when that is done.
        peak_bytes=INTERPRETER + max(walk, learning),
        workers=stream.workers,
        device=stream.device,
        notes=alignment.notes,
    )


def _that_learn(request: Request, job: Job) -> list[Learner]:
    """Those that will run models: what was learned before is read, but a module is still built."""
    reads = request.options.load is not None
    return [
        fuser
        for fuser in job.fusers
        if isinstance(fuser, ModuleFuser) or (isinstance(fuser, DataFuser) and not reads)
    ]


def _learning(request: Request, learners: list[Learner], fused: Fused) -> int:
    """What learning takes beside the libraries; of the points of a sweep, one learns at a time."""
    data = find_data(request.tasks, tuple(request.members))
    model = working_model(request.members, request.base, data)
    one = one_pass(model)
    stages = [stage for learner in learners for stage in learner.held]
    batch = max(stage.images for stage in stages)
    # Base and changes, working weights, a member that is being read or the result, a gradient;
    # and the model as it was loaded, of which others than the fused weights stay.
    own = sum(part.nbytes for part in (*model.parameters(), *model.buffers()))
    follows = any(stage.images and stage.backward for stage in stages)
    flat = 4 * fused.weights * (fused.sources + 2 + follows)
    held = max(stage.bytes(fused, one) for stage in stages)
    return own + flat + held + held_pictures(data, model, batch)

"""Stages as a file in the trace-event format, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stockpot.files import write_atomic

DEVICE_LANE = 0
"""The lane of a GPU's queue."""


class Span(NamedTuple):
    """A stage from its begin to its end, by `time.perf_counter`."""

    name: str
    lane: int
    """The thread's number, or that of the GPU."""
    start: float
    seconds: float


def trace_of(
    spans: Sequence[Span], lanes: Mapping[int, str], seconds: Mapping[str, float]
) -> dict[str, Any]:
    """The document of some spans.

    Args:
        spans: in any order.
        lanes: what the lanes are called.
        seconds: by stage, each moment counted once; viewers show it among the facts of a trace.
    """
    process = os.getpid()
    names = [
        {
            "ph": "M",
            "name": "thread_name",
            "pid": process,
            "tid": lane,
            "args": {"name": lanes.get(lane, "")},
        }
        for lane in sorted({span.lane for span in spans})
    ]
    first = min((span.start for span in spans), default=0.0)
    events = [
        {
            "ph": "X",
            "name": span.name,
            "cat": "stage",
            "pid": process,
            "tid": span.lane,
            "ts": (span.start - first) * 1e6,
            "dur": span.seconds * 1e6,
        }
        for span in spans
    ]
    return {
        "traceEvents": [*names, *events],
        "displayTimeUnit": "ms",
        "otherData": {"seconds": dict(seconds)},
    }


def write_trace(document: Mapping[str, Any], path: Path) -> Path:
    """A trace as a file."""
    write_atomic(path, json.dumps(document))
    return path

"""What a model costs to run: weights, arithmetic, time and memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement
from stockpot.models.classifier import Classifier, evaluating
from stockpot.results.schema import Score


@measures.register("cost")
def cost(
    model: Classifier, data: Dataset, context: Context, *, batch: int = 64, repeats: int = 10
) -> Measurement:
    """Parameters, FLOPs per image, throughput, latency and peak memory.

    Args:
        batch: images per forward pass for throughput; latency is for one image.
        repeats: timed passes after a warm-up; the median counts, the spread is the interval.
    """
    if batch < 1 or repeats < 3:
        raise BadParameterError(
            f"cost: expected batch >= 1 and repeats >= 3, got {batch}, {repeats}."
        )
    first = next(iter(data.batches(min(batch, len(data)), model.preprocess.fit))).images
    images = first.repeat(-(-batch // len(first)), 1, 1, 1)[:batch].to(context.device)
    with evaluating(model):
        with FlopCounterMode(display=False) as counter:
            model(images[:1])
        peak = _peak_memory(lambda: model(images), context.device)
        whole = _timed(lambda: model(images), repeats, context.device)
        single = _timed(lambda: model(images[:1]), repeats, context.device)
    condition: dict[str, str | int | float | bool | None] = {
        "batch": batch,
        "size": str(model.preprocess.size),
        "device": str(context.device),
        "threads": torch.get_num_threads(),
    }
    rates = [batch / seconds for seconds in whole]
    return Measurement(
        scores=[
            _exact("parameters", model.parameter_count, "count"),
            _exact("flops_per_image", counter.get_total_flops(), "count"),
            _spread("images_per_second", rates, "per_second", True, condition),
            _spread("latency", single, "seconds", False, condition | {"batch": 1}),
            _exact("peak_memory", peak, "bytes", condition),
        ],
        convention="flops: multiply and add count as two; time: median, 2.5 to 97.5 percentile",
        images=batch * (repeats + 2),
    )


def _timed(run: Callable[[], object], repeats: int, device: torch.device) -> list[float]:
    run()
    seconds = []
    for _ in range(repeats):
        _wait(device)
        start = time.perf_counter()
        run()
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return seconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak_memory(run: Callable[[], object], device: torch.device) -> int:
    """Bytes that one pass needs beyond what was there: device memory, or resident memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not status.exists():
        return 0
    try:
        reset.write_text("5")  # Linux: forget the high-water mark
    except OSError:
        return 0
    before = _field(status, "VmRSS")
    run()
    return max(0, _field(status, "VmHWM") - before)


def _field(status: Path, name: str) -> int:
    for line in status.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _exact(
    metric: str,
    value: float,
    unit: str,
    condition: dict[str, str | int | float | bool | None] | None = None,
) -> Score:
    return Score(
        metric=metric,
        value=value,
        n=1,
        higher_is_better=False,
        unit=unit,
        condition=condition or {},
    )


def _spread(
    metric: str,
    values: list[float],
    unit: str,
    better: bool,
    condition: dict[str, str | int | float | bool | None],
) -> Score:
    low, high = np.percentile(values, [2.5, 97.5])
    return Score(
        metric=metric,
        value=statistics.median(values),
        n=len(values),
        ci_low=float(low),
        ci_high=float(high),
        ci_method="percentile-95 of repeats",
        higher_is_better=better,
        unit=unit,
        condition=condition,
    )

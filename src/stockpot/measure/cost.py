"""What a model costs to run: weights, arithmetic, time and memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement
from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.forward.flops import flops_of
from stockpot.models.shipped.answers import only_asked
from stockpot.results.schema import Score
from stockpot.types import Count


@measures.register("cost")
def cost(
    model: Classifier, data: Dataset, context: Context, *, batch: Count = 64, repeats: Count = 10
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
    asked = only_asked(model)
    flops = 0 if asked else flops_of(model, images[:1])
    with evaluating(model):
        peak = 0 if asked else _peak_memory(lambda: model(images), context.device)
        whole = _timed(lambda: model(images), repeats, context.device)
        single = _timed(lambda: model(images[:1]), repeats, context.device)
    condition: dict[str, str | int | float | bool | None] = {
        "batch": batch,
        "size": str(model.preprocess.size),
        "device": str(context.device),
        "threads": torch.get_num_threads(),
    }
    rates = [batch / seconds for seconds in whole]
    inside = [
        _exact("parameters", model.parameter_count, "count"),
        _exact("flops_per_image", flops, "count"),
        _exact("peak_memory", peak, "bytes", condition),
    ]
    return Measurement(
        scores=[
            *([] if asked else inside[:2]),
            _spread("images_per_second", rates, "per_second", True, condition),
            _spread("latency", single, "seconds", False, condition | {"batch": 1}),
            *([] if asked else inside[2:]),
        ],
        notes=(_ONLY_ASKED,) if asked else (),
        convention="flops: multiply and add count as two; time: median, 2.5 to 97.5 percentile",
        images=batch * (repeats + 2),
    )


_ONLY_ASKED = (
    "a model that can only be asked shows no weights: parameters, FLOPs and memory are unknown"
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
    """Bytes that one pass holds at once beyond weights and input."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        peak: int = torch.cuda.max_memory_allocated(device)
        return peak - before
    live = _LiveBytes()
    with live:
        run()
    return live.peak


class _LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors that operations make and that are alive at the same time.

    Resident memory would say little on a CPU, since freed pages are kept for reuse.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        known = {k: v for k, v in self._known.items() if not _gone(v[0])}
        # Weights and inputs were there before; they, and views of them, count nothing.
        for tensor in _tensors((args, kwargs)):
            storage = tensor.untyped_storage()
            known.setdefault(storage._cdata, (_weak(storage), 0))
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            known.setdefault(storage._cdata, (_weak(storage), storage.nbytes()))
        self._known = known
        self.peak = max(self.peak, sum(size for _, size in known.values()))
        return result


def _weak(storage: object) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _gone(reference: StorageWeakRef) -> bool:
    return bool(reference.expired())  # type: ignore[no-untyped-call]


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


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

"""What layers do with a whole batch, done with the batch of all processes.

In training, batch norms divide by the statistics of the batch, and dropout and stochastic depth
draw for it. Each process has a part of the batch alone. Here the statistics are those of all parts,
and draws are made for all of it, of which a process keeps its own rows: the loss is that of one
process with the whole batch. This looks at torch's functions, not at layers, so whoever wrote a
layer, and a norm whose weights were exchanged for a while, is met all the same.

Dropout inside a fused attention kernel is drawn by the kernel, for each process's rows alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from stockpot.harden.many.processes import joined
from stockpot.harden.many.shares import own_rows, summed

_BY_CHANNEL = (F.dropout1d, F.dropout2d, F.dropout3d)


@contextmanager
def whole_batch(size: int) -> Iterator[None]:
    """Inside, layers see the batch of all processes.

    Args:
        size: of that batch.
    """
    if not joined():
        yield
        return
    mode = _WholeBatch(size)
    _open.append(mode)
    try:
        with mode:
            yield
    finally:
        _open.pop()


@contextmanager
def stacked(views: int) -> Iterator[None]:
    """Inside, a model is given so many views of the batch, one batch after the other."""
    for mode in _open:
        mode.views = views
    try:
        yield
    finally:
        for mode in _open:
            mode.views = 1


class _WholeBatch(TorchFunctionMode):
    def __init__(self, size: int) -> None:
        super().__init__()
        self._size, self._own = size, own_rows(size)
        self.views = 1

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if func is F.batch_norm:
            return _batch_norm(*args, **given)
        if func is F.dropout or func in _BY_CHANNEL:
            return self._dropout(func, *args, **given)
        if func is torch.Tensor.bernoulli_ and given.get("generator") is None:
            return args[0].copy_(self._drawn(args[0], lambda whole: func(whole, *args[1:])))
        if func is torch.rand and given.get("generator") is None and given.get("out") is None:
            return self._rand(*args, **given)
        return func(*args, **given)

    def _dropout(
        self, func: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Any:
        if not training or not 0 < p < 1:
            return func(input, p, training, inplace)
        like = input.detach()
        if func in _BY_CHANNEL:
            like = like.flatten(2)[:, :, 0].view(*input.shape[:2], *[1] * (input.ndim - 2))
        stays = self._drawn(like, lambda whole: whole.bernoulli_(1 - p)) / (1 - p)
        return input.mul_(stays) if inplace else input * stays

    def _rand(self, *size: Any, **given: Any) -> Tensor:
        listed = given.pop("size", size[0] if size and not isinstance(size[0], int) else size)
        like = torch.empty(tuple(listed), **given)
        return self._drawn(like, lambda whole: torch.rand(whole.shape, **given))

    def _drawn(self, like: Tensor, draw: Callable[[Tensor], Tensor]) -> Tensor:
        """Drawn for the whole batch: this process's rows of it."""
        count = self.views * (self._own.stop - self._own.start)
        if not like.ndim or len(like) % count:
            return draw(torch.empty_like(like))  # not one row, or several, for each image
        each = len(like) // count
        whole = like.new_empty(self.views * each * self._size, *like.shape[1:])
        by_view = draw(whole).view(self.views, each * self._size, *like.shape[1:])
        return by_view[:, each * self._own.start : each * self._own.stop].flatten(0, 1)


_open: list[_WholeBatch] = []


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    values = input.float()
    across = [axis for axis in range(input.ndim) if axis != 1]
    channels = input.shape[1]
    count = values.new_full((1,), input.numel() / channels)
    # Two exchanges: the mean first, since differences of large squares lose their digits.
    total = summed(torch.cat([values.sum(dim=across), count]))
    images = total[-1].detach()
    mean = total[:-1] / images
    shape = [1, channels, *[1] * (input.ndim - 2)]
    apart = values - mean.view(shape)
    variance = summed(apart.square().sum(dim=across)) / images
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            unbiased = variance * (images / (images - 1))
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    scale = torch.rsqrt(variance + eps)
    if weight is not None:
        scale = scale * weight
    found = apart * scale.view(shape)
    if bias is not None:
        found = found + bias.view(shape)
    return found.to(input.dtype)

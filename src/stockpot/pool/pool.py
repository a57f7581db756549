"""A pool: members of one family, and the one working model that becomes any mix of them.

What is mixed lies in flat vectors on the device: the base, one row of changes per other member, the
weights of the working model and, while something is learned, their gradient. The model's weights
are views, so that a mix is formed in place: theta = theta_0 + sum_i c_i (theta_i - theta_0). The
gradient with respect to the coefficients is the product of the changes with the flat gradient; no
graph is kept through the mix, and backward passes of several batches add up.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from stockpot.checkpoints.layouts import is_batch_norm_statistic
from stockpot.errors import BadParameterError
from stockpot.models.classifier import Classifier
from stockpot.pool.batch_norm import Statistics, is_variance, recompute_batch_norm, sound
from stockpot.pool.layout import CHUNK, Layout, bind, integer_buffers, own_buffers


class Pool:
    """Members side by side, and a model that can become any mix of them."""

    def __init__(
        self,
        model: Classifier,
        layout: Layout,
        read: Callable[[int], Tensor],
        members: Sequence[str],
        *,
        device: torch.device | str = "cpu",
        base: bool = False,
    ) -> None:
        """Bind the working model to a flat vector.

        Args:
            model: the architecture; becomes the working model.
            layout: where its tensors lie.
            read: a member's flat vector by its number; the base's by -1.
            members: what the members are called.
            device: where base, changes and working model live.
            base: whether there is a base beside the members; otherwise it is the first of them.
        """
        self.device = torch.device(device)
        self.members = tuple(members)
        self.layout = layout
        self.names, self.places = layout.names, layout.places
        self.shapes, self.spans = layout.shapes, layout.spans
        self.model = model.eval().requires_grad_(False).float().to(self.device)
        self.statistics = Statistics()
        self._read = read
        self._first = 0 if base else 1
        """The member of the first row of changes; a base that is a member changed nothing."""
        self._integers = integer_buffers(self.model)
        self.flat = torch.zeros(layout.length, device=self.device)
        self._parameters = bind(self.model, layout, self.flat)
        self.load_base()

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def base(self) -> Tensor:
        """The base as a flat vector."""
        return self._read(0 if self._first else -1).to(self.device)

    @cached_property
    def deltas(self) -> Tensor:
        """What each member but the base changed, members x weights."""
        deltas = torch.empty(len(self) - self._first, len(self.flat), device=self.device)
        for row, index in enumerate(range(self._first, len(self))):
            torch.sub(self._read(index).to(self.device), self.base, out=deltas[row])
        return deltas

    @property
    def in_chunks(self) -> bool:
        """Mix all tensors at once: on a GPU, launching work for each takes longer than the work."""
        return self.device.type == "cuda"

    @cached_property
    def _owners(self) -> Tensor:
        """The number of the tensor that each chunk belongs to."""
        chunks = torch.tensor(self.layout.chunks, device=self.device)
        return torch.arange(len(chunks), device=self.device).repeat_interleave(chunks)

    @cached_property
    def _last_chunks(self) -> Tensor:
        """The number of each tensor's last chunk."""
        return torch.tensor(self.layout.chunks, device=self.device).cumsum(0) - 1

    @cached_property
    def _floors(self) -> tuple[Tensor, Tensor] | None:
        """Where the flat vector holds variances, and the members' smallest; none without any.

        All in one piece: a BatchNorm has few of them, and a call for each would take longer than
        the mix.
        """
        spans = [self.spans[k] for k, name in enumerate(self.names) if is_variance(name)]
        if not spans:
            return None
        places = torch.cat([torch.arange(span.start, span.stop) for span in spans]).to(self.device)
        values = [self.base[places] + delta[places] for delta in self.deltas]
        own = [self.base[places]] if self._first else []
        return places, torch.stack([*own, *values]).amin(dim=0)

    def load_base(self) -> None:
        """Turn the working model into the base."""
        self.flat.copy_(self.base)

    def load_member(self, index: int) -> None:
        """Turn the working model into a member, bit for bit."""
        self.flat.copy_(self._read(index))

    def load_tensor(self, number: int, index: int) -> None:
        """Turn one tensor of the working model into a member's."""
        span = self.spans[number]
        self.flat[span] = self.base[span]
        if index >= self._first:
            self.flat[span] += self.deltas[index - self._first, span]

    def load(self, weights: Tensor) -> Classifier:
        """Turn the working model into a soup and return it.

        BatchNorm statistics are what `statistics` says; integer buffers are the architecture's.

        Args:
            weights: one per member, or members x tensors; each column sums to 1. A soup of one
                member is that one, bit for bit, where statistics are mixed.
        """
        weights = self.check(weights)
        one = _one_hot(weights)
        if one is not None:
            self.load_member(one)
        else:
            self.form(weights)
        self.settle()
        return self.model

    def check(self, weights: Tensor) -> Tensor:
        """The weights in double precision, if they are affine and as many as the members."""
        weights = torch.as_tensor(weights, dtype=torch.float64).detach().cpu()
        shapes = ((len(self),), (len(self), len(self.names)))
        if tuple(weights.shape) not in shapes:
            raise BadParameterError(
                f"weights: expected {len(self)}, one per member, got {tuple(weights.shape)}."
            )
        sums = weights.sum(0)
        if not bool(((sums - 1).abs() < 1e-4).all()):
            raise BadParameterError(f"weights: expected a sum of 1, got {sums.tolist()}.")
        return weights

    def form(self, coefficients: Tensor) -> None:
        """Turn the working model into base + sum of coefficients x changes.

        Args:
            coefficients: one per member, or members x tensors.
        """
        own = coefficients[self._first :].to(self.device, self.flat.dtype)
        if own.ndim == 1:
            torch.addmv(self.base, self.deltas.T, own, out=self.flat)
        elif self.in_chunks:
            rows = self.flat.copy_(self.base).view(-1, CHUNK)
            for change, factors in zip(self.deltas, own[:, self._owners], strict=True):
                rows.addcmul_(change.view(-1, CHUNK), factors[:, None])
        else:
            for number, span in enumerate(self.spans):
                torch.addmv(
                    self.base[span],
                    self.deltas[:, span].T,
                    own[:, number],
                    out=self.flat[span],
                )
        self.keep_variances()

    def settle(self) -> None:
        """Give the working model the BatchNorm statistics that the rule says."""
        rule, images = self.statistics.rule, self.statistics.images
        if self._floors is None or rule == "mix":
            return
        if rule == "left":
            for name, span in zip(self.names, self.spans, strict=True):
                if is_batch_norm_statistic(name):
                    self.flat[span] = self.base[span]
            return
        recompute_batch_norm(self.model, images or ())
        buffers = dict(self.model.named_buffers())
        for name, kept in self._integers.items():
            buffers[name].copy_(kept)

    def keep_variances(self) -> None:
        """Put the members' smallest variance where a mix made one that is not positive."""
        if self._floors is not None:
            places, smallest = self._floors
            self.flat[places] = sound(self.flat[places], smallest)

    @cached_property
    def gradient(self) -> Tensor:
        """The flat gradient of the working model; backward passes add to it while it is watched."""
        return torch.zeros_like(self.flat)

    def watch(self, on: bool = True) -> None:
        """Let gradients of the working model flow into `gradient`, or stop it."""
        for number, parameter in self._parameters.items():
            parameter.requires_grad_(on)
            span, shape = self.spans[number], self.shapes[number]
            parameter.grad = self.gradient[span].view(shape) if on else None

    def zero_gradient(self) -> None:
        """Forget the gradient of earlier passes."""
        self.gradient.zero_()

    def pull(self) -> Tensor:
        """The gradient with respect to the coefficients, members x tensors."""
        return self.pull_from(self.gradient)

    def pull_from(self, gradient: Tensor) -> Tensor:
        """The products of the changes with a flat gradient, tensor by tensor; members x tensors."""
        found = torch.zeros(len(self), len(self.names), device=self.device)
        rows = found[self._first :]
        if self.in_chunks:
            parts = gradient.view(-1, CHUNK)
            by_chunk = [(change.view(-1, CHUNK) * parts).sum(dim=1) for change in self.deltas]
            # Sums of neighbours as differences of running sums, which have a fixed order.
            running = torch.stack(by_chunk).double().cumsum(dim=1)
            ends = running[:, self._last_chunks]
            rows.copy_(ends.diff(dim=1, prepend=torch.zeros_like(ends[:, :1])))
            return found
        for number, span in enumerate(self.spans):
            rows[:, number] = self.deltas[:, span] @ gradient[span]
        return found

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """A flat vector as tensors by their names."""
        return self.layout.views(flat)

    def copy(self) -> Classifier:
        """The working model as it is now, with weights of its own."""
        model = copy.deepcopy(self.model)
        own_buffers(model)
        return model.requires_grad_(True)


def _one_hot(weights: Tensor) -> int | None:
    columns = weights.reshape(len(weights), -1)
    one = int(columns[:, 0].argmax())
    exact = torch.zeros_like(columns)
    exact[one] = 1
    return one if torch.equal(columns, exact) else None

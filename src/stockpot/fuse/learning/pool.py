"""The members of a data-driven fusion, and the one working model that becomes any mix of them.

What is fused lies in one flat vector on the device: the base, one row of changes per member, the
weights of the working model and their gradient. The model's weights are views into it, so that a
mix is formed in place, tensor by tensor, by one matrix-vector product, and the gradient with
respect to mixing coefficients is one product of the changes with the flat gradient. No graph is
kept through the mix: backward passes of several tasks add up, and memory is base, changes,
weights, gradient and the activations of one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from stockpot.errors import BadParameterError
from stockpot.fuse.learning.bookmark import Bookmark, Stateful
from stockpot.fuse.learning.task import Task
from stockpot.fuse.stream import Piece, Stream
from stockpot.models.classifier import Classifier

_CHUNK = 1024
"""Every tensor starts at a multiple of this in the flat vector, so that a chunk has one owner."""


class TaskPool:
    """Members, tasks and a model that can become any mix of the members."""

    def __init__(
        self,
        stream: Stream,
        model: Classifier,
        places: Sequence[str],
        tasks: Sequence[Task],
        members: Sequence[str],
    ) -> None:
        """Bind the working model to a flat vector.

        Args:
            stream: the aligned checkpoints.
            model: the architecture; becomes the working model.
            places: for each fused tensor its name in that model.
            tasks: the data, one per member or fewer where the method allows it.
            members: what the members are called.
        """
        self._stream = stream
        self.device = torch.device(stream.device)
        self.tasks = tuple(tasks)
        self.members = tuple(members)
        self.model = model.eval().requires_grad_(False).float().to(self.device)
        rows = stream.alignment.rows
        self.names = tuple(row.name for row in rows)
        self.places = tuple(places)
        self.shapes = tuple(row.info.shape for row in rows)
        sizes = [row.info.numel for row in rows]
        starts, end = [], 0
        for size in sizes:
            starts.append(end)
            end += -(-size // _CHUNK) * _CHUNK
        self.spans = [slice(start, start + n) for start, n in zip(starts, sizes, strict=True)]
        self.flat = torch.zeros(end, device=self.device)
        self.gradient = torch.zeros_like(self.flat)
        self._adopted: tuple[Task, ...] = ()
        self.progress: Callable[[str, int, int], None] = lambda what, done, total: None
        self.bookmark = Bookmark()
        self._bind()
        self.load_base()

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def base(self) -> Tensor:
        """The base as a flat vector; the first member where there is no base."""
        return self._read(-1 if self._stream.alignment.base is not None else 0)

    @cached_property
    def deltas(self) -> Tensor:
        """What each member changed, members x weights."""
        deltas = torch.empty(len(self), len(self.flat), device=self.device)
        for index in range(len(self)):
            torch.sub(self._read(index), self.base, out=deltas[index])
        return deltas

    @property
    def in_chunks(self) -> bool:
        """Mix all tensors at once: on a GPU, launching work for each takes longer than the work."""
        return self.device.type == "cuda"

    @cached_property
    def _owners(self) -> Tensor:
        """The number of the tensor that each chunk belongs to."""
        numbers = [[i] * -(-(s.stop - s.start) // _CHUNK) for i, s in enumerate(self.spans)]
        return torch.tensor([i for row in numbers for i in row], device=self.device)

    @cached_property
    def _last_chunks(self) -> Tensor:
        """The number of each tensor's last chunk."""
        ends = [-(-span.stop // _CHUNK) - 1 for span in self.spans]
        return torch.tensor(ends, device=self.device)

    @cached_property
    def variances(self) -> tuple[int, ...]:
        """The numbers of the tensors that are running variances."""
        return tuple(i for i, name in enumerate(self.names) if name.endswith("running_var"))

    def load_base(self) -> None:
        """Turn the working model into the base."""
        self.flat.copy_(self.base)

    def load_member(self, index: int) -> None:
        """Turn the working model into a member, bit for bit."""
        self.flat.copy_(self._read(index))

    def form(self, coefficients: Tensor) -> None:
        """Turn the working model into base + sum of coefficients x changes (members x tensors)."""
        if self.in_chunks:
            rows = self.flat.copy_(self.base).view(-1, _CHUNK)
            for change, own in zip(self.deltas, coefficients[:, self._owners], strict=True):
                rows.addcmul_(change.view(-1, _CHUNK), own[:, None])
            self.keep_variances()
            return
        for number, span in enumerate(self.spans):
            torch.addmv(
                self.base[span],
                self.deltas[:, span].T,
                coefficients[:, number],
                out=self.flat[span],
            )
        self.keep_variances()

    def keep_variances(self) -> None:
        """Put the members' smallest variance where a mix made one that is not positive."""
        for number in self.variances:
            span = self.spans[number]
            smallest = (self.base[span] + self.deltas[:, span]).amin(dim=0).clamp(min=0)
            part = self.flat[span]
            part.copy_(torch.where(part > 0, part, smallest))

    def pull(self) -> Tensor:
        """The gradient with respect to the coefficients, members x tensors."""
        return self.pull_from(self.gradient)

    def pull_from(self, gradient: Tensor) -> Tensor:
        """The products of the changes with a flat gradient, tensor by tensor."""
        if self.in_chunks:
            rows = gradient.view(-1, _CHUNK)
            by_chunk = [(change.view(-1, _CHUNK) * rows).sum(dim=1) for change in self.deltas]
            # Sums of neighbours as differences of running sums, which have a fixed order.
            running = torch.stack(by_chunk).double().cumsum(dim=1)
            ends = running[:, self._last_chunks]
            return ends.diff(dim=1, prepend=torch.zeros_like(ends[:, :1])).float()
        return torch.stack([self.deltas[:, s] @ gradient[s] for s in self.spans], dim=1)

    def zero_gradient(self) -> None:
        """Forget the gradient of earlier passes."""
        self.gradient.zero_()

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """A flat vector as tensors by their names in the checkpoint."""
        return {
            name: flat[span].view(shape)
            for name, span, shape in zip(self.names, self.spans, self.shapes, strict=True)
        }

    def adopt(self, *tasks: Task) -> None:
        """Give the working model the tensors of a task, or the heads of several side by side."""
        if tasks == self._adopted:
            return
        for place, value in tasks[0].own.items():
            several = len(tasks) > 1
            put_tensor(
                self.model,
                place,
                torch.cat([task.own[place] for task in tasks]) if several else value,
            )
        self._adopted = tasks

    def can_join(self, tasks: Sequence[Task]) -> bool:
        """Whether the tasks differ in nothing but heads with one row per class."""
        return all(
            value.ndim > 0 and len(value) == len(task.classes)
            for task in tasks
            for value in task.own.values()
        )

    def logits(self, task: Task, pixels: Tensor) -> Tensor:
        """The working model's logits with the head of a task."""
        self.adopt(task)
        logits: Tensor = self.model(pixels.to(self.device))
        return logits

    def logits_of_several(self, tasks: Sequence[Task], pixels: Sequence[Tensor]) -> list[Tensor]:
        """Logits of several tasks, each on its own images, from one pass over all of them."""
        if len(tasks) == 1:
            return [self.logits(tasks[0], pixels[0])]
        self.adopt(*tasks)
        seen = [self.seen(batch) for batch in pixels]
        joint: Tensor = self.model.network(torch.cat(seen))
        parts, row, column = [], 0, 0
        for task, batch in zip(tasks, seen, strict=True):
            width = len(task.classes)
            if joint.shape[1] == width:  # one head for all
                column = 0
            parts.append(joint[row : row + len(batch), column : column + width])
            row, column = row + len(batch), column + width
        return parts

    def seen(self, pixels: Tensor) -> Tensor:
        """Pixels as the network sees them."""
        if self.device.type == "cuda" and not pixels.is_cuda:
            # Copied while the GPU works; from ordinary memory the copy would wait for it.
            pixels = pixels.pin_memory()
        pixels = pixels.to(self.device, non_blocking=True)
        if not pixels.is_floating_point():
            pixels = pixels.float() / 255
        preprocess = self.model.preprocess
        return preprocess.normalise(preprocess.fit_tensor(pixels))

    def need_tasks(self, method: str, *, each: bool = True) -> tuple[Task, ...]:
        """The tasks, if there are as many as the method needs."""
        if each and len(self.tasks) == 1 < len(self):
            return self.tasks * len(self)  # one dataset for all
        if not self.tasks or (each and len(self.tasks) != len(self)):
            wanted = f"one dataset per member ({len(self)})" if each else "a dataset"
            raise BadParameterError(
                f"{method}: expected {wanted}, got {len(self.tasks) or 'none'}.",
                hint="Give tasks=[...] (--task, or `data:` in a recipe).",
            )
        return self.tasks

    def walk(self, stage: str, steps: int, **parts: Stateful) -> Iterator[int]:
        """The numbers of the steps still to do, with progress and bookmarks between them.

        Args:
            stage: what is being learned.
            steps: of this stage in all.
            parts: everything that a step changes and a later one reads, and what a later stage
                will not make again.
        """
        for step in range(self.bookmark.restore(stage, steps, parts), steps):
            yield step
            self.progress(stage, step + 1, steps)
            self.bookmark.keep(stage, step + 1, parts)
        self.bookmark.finish(stage)

    def _read(self, index: int) -> Tensor:
        flat = torch.zeros_like(self.flat)
        for row, span in zip(self._stream.alignment.rows, self.spans, strict=True):
            slab = self._stream.slab(Piece(row, 0, None))
            values = slab.base if index < 0 else slab.member(index)
            flat[span] = values.reshape(-1)
        return flat

    def _bind(self) -> None:
        tied: dict[int, list[str]] = {}
        for place, parameter in self.model.named_parameters(remove_duplicate=False):
            tied.setdefault(id(parameter), []).append(place)
        for place, span, shape in self._layout():
            module, leaf = _owner(self.model, place)
            view = self.flat[span].view(shape)
            if leaf not in module._parameters:
                module._buffers[leaf] = view
                continue
            fused = nn.Parameter(view, requires_grad=True)
            fused.grad = self.gradient[span].view(shape)
            for other in tied[id(module._parameters[leaf])]:
                owner, name = _owner(self.model, other)
                owner._parameters[name] = fused

    def _layout(self) -> Iterator[tuple[str, slice, tuple[int, ...]]]:
        return zip(self.places, self.spans, self.shapes, strict=True)


def _owner(model: nn.Module, place: str) -> tuple[nn.Module, str]:
    parent, _, leaf = place.rpartition(".")
    return model.get_submodule(parent), leaf


def put_tensor(model: nn.Module, place: str, values: Tensor) -> None:
    """Put values in the place of a parameter or buffer, whatever the shape of that was."""
    module, leaf = _owner(model, place)
    if leaf in module._parameters:
        module._parameters[leaf] = nn.Parameter(values, requires_grad=False)
    else:
        module._buffers[leaf] = values

"""A pool: members of one family, and the one working model in which their soups are formed.

All floating tensors of a member lie in one flat vector on the device. The working model's weights
are views into such a vector, so that forming a soup is a single matrix-vector product in place:
theta_w = theta_0 + sum_i w_i (theta_i - theta_0).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from stockpot.checkpoints.member_names import by_name
from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.fuse.batch_norm import recompute_batch_norm
from stockpot.models.classifier import Classifier
from stockpot.models.load import Vocabulary, load_for, load_model

Member = str | Path | Classifier | Mapping[str, Tensor]
_ALIGNED = 16  # numbers; kernels are slower on tensors that start anywhere


class Pool:
    """Members side by side, and a model that can become any of their soups."""

    def __init__(
        self,
        members: Sequence[Member] | Mapping[str, Member],
        device: torch.device | str = "cpu",
        *,
        zero_shot: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
    ) -> None:
        """Read the members; the first is the base and must be a model, not a state dict.

        Args:
            members: sources as for `load_model`, classifiers, or state dicts of the first.
            device: where base, changes and working model live.
            zero_shot: classes and templates of the heads, for members that are dual encoders.
        """
        self._zero_shot = zero_shot
        named = by_name(members)
        if not named:
            raise BadParameterError("a soup needs at least one member, got none.")
        self.members = tuple(named)
        first, *others = named.values()
        if isinstance(first, Mapping):
            raise BadParameterError(
                f"{self.members[0]}: the first member gives the architecture; expected a model, "
                "got a state dict."
            )
        named[self.members[0]] = first = self._load(first)
        self.model = copy.deepcopy(first).eval().requires_grad_(False).float()
        self.device = torch.device(device)
        self.model.to(self.device)
        self._owners = _float_tensors(self.model)
        self.names = tuple(self._owners)
        self._shapes = [tensor.shape for tensor in self._tensors()]
        self.sizes = [shape.numel() for shape in self._shapes]
        starts, end = [], 0
        for size in self.sizes:
            starts.append(end)
            end += -(-size // _ALIGNED) * _ALIGNED
        self._spans = [
            slice(start, start + size) for start, size in zip(starts, self.sizes, strict=True)
        ]
        self._integers = {
            name: buffer.clone()
            for name, buffer in self.model.named_buffers()
            if not buffer.is_floating_point()
        }
        # The members as they are (a soup of one must be that one, bit for bit) stay off the device.
        self._originals = [
            self._flat(self._state(name, source), end) for name, source in named.items()
        ]
        self.base = self._originals[0].to(self.device)
        self.deltas = (
            torch.stack(
                [(flat - self._originals[0]).to(self.device) for flat in self._originals[1:]]
            )
            if others
            else torch.empty(0, end, device=self.device)
        )
        self._variances = [i for i, name in enumerate(self.names) if name.endswith("running_var")]
        self._floors = {
            i: torch.stack([flat[self._spans[i]] for flat in self._originals])
            .amin(0)
            .to(self.device)
            for i in self._variances
        }
        self.flat = self.base.clone()
        self._bind()

    def __len__(self) -> int:
        return len(self.members)

    @property
    def has_batch_norm(self) -> bool:
        """Whether the family keeps running statistics."""
        return bool(self._variances)

    def load(self, weights: Tensor, unlabelled: Sequence[Tensor] = ()) -> Classifier:
        """Turn the working model into a soup and return it.

        Args:
            weights: one per member, or a row of them for each tensor of `names`; rows sum to 1.
            unlabelled: pixel batches from which BatchNorm statistics are estimated anew when a
                weight is negative: a combination of variances can then be negative itself.
        """
        weights = self.check(weights)
        one = _one_hot(weights)
        if one is not None:
            self.flat.copy_(self._originals[one])
            return self.model
        changes = weights[..., 1:].to(self.device, self.flat.dtype)
        if weights.ndim == 1:
            torch.addmv(self.base, self.deltas.T, changes, out=self.flat)
        else:
            self.flat.copy_(self.base)
            for delta, share in zip(self.deltas, changes.T, strict=True):
                self.flat.addcmul_(delta, self.spread(share))
        for i in self._variances:
            # Never active for convex weights: a mean is at least the smallest.
            part = self.flat[self._spans[i]]
            torch.maximum(part, self._floors[i], out=part)
        if self._variances and len(unlabelled) and bool((weights < 0).any()):
            recompute_batch_norm(self.model, unlabelled)
            buffers = dict(self.model.named_buffers())
            for name, kept in self._integers.items():
                buffers[name].copy_(kept)
        return self.model

    def check(self, weights: Tensor) -> Tensor:
        """The weights in double precision, if they are affine and as many as the members."""
        weights = torch.as_tensor(weights, dtype=torch.float64).detach().cpu()
        shapes = ((len(self),), (len(self.names), len(self)))
        if tuple(weights.shape) not in shapes:
            raise BadParameterError(
                f"weights: expected {len(self)}, one per member, got {tuple(weights.shape)}."
            )
        sums = weights.sum(-1)
        if not bool(((sums - 1).abs() < 1e-4).all()):
            raise BadParameterError(f"weights: expected a sum of 1, got {sums.tolist()}.")
        return weights

    def spread(self, per_tensor: Tensor) -> Tensor:
        """One number per tensor as one number per weight of the flat vector."""
        padded = [-(-size // _ALIGNED) * _ALIGNED for size in self.sizes]
        counts = torch.tensor(padded, device=per_tensor.device)
        return per_tensor.repeat_interleave(counts, output_size=len(self.flat))

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """A flat vector as tensors by name; variances are kept positive."""
        parts = {}
        for i, (name, span, shape) in enumerate(self._layout()):
            part = flat[span]
            parts[name] = torch.maximum(part, self._floors[i]) if i in self._floors else part
            parts[name] = parts[name].view(shape)
        return parts

    def copy(self) -> Classifier:
        """The working model as it is now, with weights of its own."""
        model = copy.deepcopy(self.model)
        for module, name in _float_tensors(model).values():
            tensor = getattr(module, name)
            if not isinstance(tensor, nn.Parameter):
                setattr(module, name, tensor.clone())
        return model.requires_grad_(True)

    def _layout(self) -> Iterator[tuple[str, slice, torch.Size]]:
        return zip(self.names, self._spans, self._shapes, strict=True)

    def _tensors(self) -> list[Tensor]:
        return [getattr(module, name) for module, name in self._owners.values()]

    def _flat(self, state: Mapping[str, Tensor], length: int) -> Tensor:
        flat = torch.zeros(length)
        for name, span in zip(self.names, self._spans, strict=True):
            flat[span] = state[name].detach().cpu().float().reshape(-1)
        return flat

    def _bind(self) -> None:
        for owner, span, shape in self._layout():
            module, name = self._owners[owner]
            view = self.flat[span].view(shape)
            tensor = getattr(module, name)
            if isinstance(tensor, nn.Parameter):
                tensor.data = view
            else:
                setattr(module, name, view)

    def _load(self, source: str | Path | Classifier) -> Classifier:
        if self._zero_shot:
            return load_for(source, Vocabulary(*self._zero_shot))
        return load_model(source)

    def _state(self, name: str, source: Member) -> dict[str, Tensor]:
        if isinstance(source, Mapping):
            state = dict(source)
        else:
            member = self._load(source)
            state = member.state_dict()
            for what in ("classes", "preprocess"):
                if getattr(member, what) != getattr(self.model, what):
                    raise BadCheckpointError(
                        f"{name} and {self.members[0]} differ in their {what}; a soup needs "
                        "members of one family."
                    )
        return _matching(name, state, dict(zip(self.names, self._shapes, strict=True)))


def _float_tensors(model: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Every floating parameter and saved buffer once, by its name, with where it hangs."""
    kept = model.state_dict().keys()
    found: dict[str, tuple[nn.Module, str]] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in kept and tensor.is_floating_point():
            parent, _, leaf = name.rpartition(".")
            found[name] = (model.get_submodule(parent), leaf)
    return found


def _matching(
    member: str, state: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]
) -> dict[str, Tensor]:
    for prefix in ("", "network.", "network.model."):
        renamed = {prefix + name: tensor for name, tensor in state.items()}
        if shapes.keys() <= renamed.keys():
            break
    for name, shape in shapes.items():
        if name not in renamed:
            raise BadCheckpointError(f"{member} has no {name}: it is not of the first's family.")
        if renamed[name].shape != shape:
            raise BadCheckpointError(
                f"{member}: {name} is {tuple(renamed[name].shape)}, in the first member it is "
                f"{tuple(shape)}."
            )
    return renamed


def _one_hot(weights: Tensor) -> int | None:
    rows = weights.reshape(-1, weights.shape[-1])
    one = int(rows[0].argmax())
    exact = torch.zeros_like(rows)
    exact[:, one] = 1
    return one if torch.equal(rows, exact) else None

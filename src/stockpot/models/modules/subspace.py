"""One network that becomes, for each image, the merge of the members in whose subspace it lies.

A first pass through the merge of all members ends at one layer. There the first token x (or the
mean of all) is compared with the leading input directions V_t of every member's change: members
count by a softmax over -|x - V_t' V_t x|, standardised over members. Those above a threshold are
merged, and a second pass answers (MASS, arXiv:2504.05342). An image's answer depends on that image
alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

_ROUNDING = 1e-5
_KEPT = 6
"""Merges that are kept for the next batch, as in the authors' program."""


class SubspaceExperts(nn.Module):
    """A plain network, the members' changes in few directions, and who is asked."""

    def __init__(
        self, network: nn.Module, tensors: Mapping[str, Tensor], settings: Mapping[str, Any]
    ) -> None:
        """Put the members' changes beside a network.

        Args:
            network: the base.
            tensors: for every matrix `NAME:up` (members x outputs x rank), `NAME:values` and
                `NAME:down`; for everything else `NAME:change`, members first.
            settings: `route` (the layer that decides), `token`, `threshold`, `most`,
                `temperature` and `scale`.
        """
        super().__init__()
        self.network = network
        self._route = str(settings["route"])
        self._token = str(settings["token"])
        self._threshold = float(settings["threshold"])
        self._most = int(settings["most"])
        self._temperature = float(settings["temperature"])
        self._scale = float(settings["scale"])
        names = dict(network.named_parameters())
        known = {key.rpartition(":")[0] for key in tensors if ":" in key}
        if strange := known - set(names):
            raise KeyError(f"{min(strange)} is no tensor of the network")
        self._matrices = sorted(name for name in known if f"{name}:up" in tensors)
        self._others = sorted(known - set(self._matrices))
        self._places: dict[str, str] = {}
        for number, key in enumerate(sorted(key for key in tensors if ":" in key)):
            self._places[key] = f"part{number}"
            self.register_buffer(f"part{number}", tensors[key])
        self._made: OrderedDict[Any, dict[str, Tensor]] = OrderedDict()

    def forward(self, pixels: Tensor) -> Tensor:
        """Each image by the merge of the members that it asks for."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for row, members in enumerate(self.asked(pixels)):
            groups.setdefault(members, []).append(row)
        found: Tensor | None = None
        for members, rows in groups.items():
            made: Tensor = functional_call(self.network, self.merged(members), (pixels[rows],))
            if found is None:
                found = made.new_empty(len(pixels), *made.shape[1:])
            found[rows] = made
        return self.network(pixels) if found is None else found

    def asked(self, pixels: Tensor) -> list[tuple[int, ...]]:
        """For each image the members that it asks for."""
        shares = self.shares(pixels)
        found = []
        for row in shares.tolist():
            order = sorted(range(len(row)), key=lambda member: -row[member])
            above = [member for member in order if row[member] > self._threshold][: self._most]
            found.append(tuple(sorted(above or order[:1])))
        return found

    @torch.no_grad()
    def shares(self, pixels: Tensor) -> Tensor:
        """Images x members: how much each member counts."""
        seen = self._features(pixels)
        down = self._part(f"{self._route}.weight:down")
        inside = torch.einsum("bd,trd->btr", seen, down)
        rest = seen[:, None] - torch.einsum("btr,trd->btd", inside, down)
        nearness = -rest.norm(dim=2)
        if len(down) > 1:
            spread = nearness.std(dim=1, keepdim=True) + 1e-6
            nearness = (nearness - nearness.mean(dim=1, keepdim=True)) / spread
        shares: Tensor = (nearness / self._temperature).softmax(dim=1)
        return shares

    def _features(self, pixels: Tensor) -> Tensor:
        seen: list[Tensor] = []

        def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen.append(inputs[0])
            raise _SeenError

        hook = self.network.get_submodule(self._route).register_forward_pre_hook(keep)
        everyone = tuple(range(len(self._part(f"{self._route}.weight:down"))))
        try:
            functional_call(self.network, self.merged(everyone), (pixels,))
        except _SeenError:
            pass
        finally:
            hook.remove()
        values = seen[0]
        if values.ndim == 2:
            return values
        return values[:, 0] if self._token == "first" else values.flatten(1, -2).mean(dim=1)

    @torch.no_grad()
    def merged(self, members: Sequence[int]) -> dict[str, Tensor]:
        """The weights of a merge: the members' directions, made orthogonal to one another."""
        key = tuple(members)
        plain = dict(self.network.named_parameters())
        some = plain[f"{self._route}.weight"]
        mark = (key, some.device, some.dtype)  # others are made when the module is moved
        if mark in self._made:
            self._made.move_to_end(mark)
            return self._made[mark]
        found = {}
        for name in self._matrices:
            up, values, down = (
                torch.cat([self._part(f"{name}:{part}")[member] for member in key], dim=axis)
                for part, axis in (("up", 1), ("values", 0), ("down", 0))
            )
            change = (_isometry(up) * values.double()) @ _isometry(down)
            found[name] = plain[name] + self._scale * change.to(plain[name].dtype)
        for name in self._others:
            change = self._part(f"{name}:change")[list(key)].mean(dim=0)
            found[name] = plain[name] + self._scale * change
        self._made[mark] = found
        if len(self._made) > _KEPT:
            self._made.popitem(last=False)
        return found

    def _part(self, key: str) -> Tensor:
        found: Tensor = getattr(self, self._places[key])
        return found


class _SeenError(Exception):
    """Ends a pass at the layer that decides."""


def _isometry(matrix: Tensor) -> Tensor:
    """The nearest partial isometry, over the range of the matrix."""
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    signal = values > _ROUNDING * torch.linalg.vector_norm(values)
    found: Tensor = left[:, signal] @ right[signal]
    return found


def add_subspaces(
    network: nn.Module,
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    task: int | None,
) -> nn.Module:
    """Put what a fusion wrote beside a plain network."""
    return SubspaceExperts(network, tensors, settings)

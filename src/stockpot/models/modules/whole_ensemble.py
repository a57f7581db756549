"""A whole network whose weights are mixed for every image by a router on its own features.

theta(x) = theta_s + sum_t w_t(x) v_t, w the router's outputs (FusionBench's DAWE) or their softmax
(Twin-Merging, Lu et al., arXiv:2406.15479). The shared weights theta_s are the plain network's;
what each expert has beyond them is whole, or factors of low rank. A prediction depends on no other
image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stockpot.models.modules.weight_ensemble import Router


class WholeEnsemble(nn.Module):
    """The shared network, its router and what the experts add."""

    def __init__(
        self,
        network: nn.Module,
        router: Router,
        parts: Mapping[str, Tensor],
        *,
        softmax: bool = True,
    ) -> None:
        """Put a router before a network.

        Args:
            network: with the shared weights; it has features.
            router: from its features to one number per expert.
            parts: `NAME.up` and `NAME.down`, or `NAME.whole`, of every tensor that experts change,
                experts first.
            softmax: whether the router's numbers are turned into shares of one.
        """
        super().__init__()
        self._softmax = softmax
        self.network = network
        self.router = router
        self._names = sorted({name.rpartition(".")[0] for name in parts})
        for name, value in parts.items():
            self.register_buffer(_flat(name), value, persistent=False)

    def shares(self, pixels: Tensor) -> Tensor:
        """Images x experts: how much each expert counts."""
        seen: Tensor = self.network.features(pixels)  # type: ignore[operator]
        said: Tensor = self.router(seen[:, None])
        return said.softmax(dim=-1) if self._softmax else said

    def mixed(self, shares: Tensor) -> dict[str, Tensor]:
        """The weights for the shares of one image."""
        state = dict(self.network.named_parameters()) | dict(self.network.named_buffers())
        found = {}
        for name in self._names:
            shared = state[name]
            whole = self._buffers.get(_flat(f"{name}.whole"))
            if whole is not None:
                added = torch.tensordot(shares, whole, dims=1)
            else:
                up, down = (self.get_buffer(_flat(f"{name}.{side}")) for side in ("up", "down"))
                added = torch.einsum("t,tor,tri->oi", shares, up, down)
            found[name] = shared + added.view(shared.shape)
        return found

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.cat(
            [
                functional_call(self.network, self.mixed(shares), (image[None],))
                for shares, image in zip(self.shares(pixels), pixels, strict=True)
            ]
        )

    def features(self, pixels: Tensor) -> Tensor:
        """The representation before the head, of the mixed network."""
        inner = _Features(self.network)
        found = []
        for shares, image in zip(self.shares(pixels), pixels, strict=True):
            weights = {f"network.{name}": value for name, value in self.mixed(shares).items()}
            found.append(functional_call(inner, weights, (image[None],)))
        return torch.cat(found)


class _Features(nn.Module):
    """A network whose answer is its features."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        found: Tensor = self.network.features(pixels)  # type: ignore[operator]
        return found


def add_router(
    network: nn.Module,
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    task: int | None,
) -> nn.Module:
    """Put the router and the experts that a fusion wrote before a plain network."""
    router = Router(
        settings["width"], len(settings["experts"]), depth=settings["depth"], init=0.0, seed=0
    )
    router.load_state_dict(
        {k.removeprefix("router."): v for k, v in tensors.items() if k.startswith("router.")}
    )
    parts = {k.removeprefix("changes."): v for k, v in tensors.items() if k.startswith("changes.")}
    return WholeEnsemble(
        network, router.requires_grad_(False), parts, softmax=settings.get("softmax", True)
    )


def _flat(name: str) -> str:
    """A buffer's name has no dots."""
    return f"expert/{name}".replace(".", "/")

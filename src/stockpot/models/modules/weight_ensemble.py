"""Weight-ensembling experts: an MLP whose weights are mixed for every image by a router.

theta(x) = theta_0 + sum_t g_t(x) tau_t, g the mean over an image's tokens of the router's outputs
(Tang et al., arXiv:2402.00433). Routing is per image: a prediction depends on no other image. The
mean over a batch, which FusionBench takes, is there as `routing=batch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Routing = Literal["image", "batch"]
_LARGEST = 1 << 27
"""Numbers of the weights that are formed at once: 512 MB in fp32."""


class Router(nn.Module):
    """From a token to one number per expert: two linear layers, one, or a constant."""

    def __init__(self, width: int, experts: int, *, depth: int, init: float, seed: int) -> None:
        """Make a router that gives nearly `init` for every expert.

        Args:
            width: of the tokens.
            experts: how many numbers.
            depth: linear layers: 2, 1, or 0 for numbers that do not depend on the image.
            init: the bias of the last layer.
            seed: of the small random weights.
        """
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        sizes = {0: [], 1: [(experts, width)], 2: [(width, width), (experts, width)]}[depth]
        self.weights = nn.ParameterList(
            [0.01 * torch.randn(size, generator=generator) for size in sizes]
        )
        self.biases = nn.ParameterList(
            [torch.zeros(size[0]) for size in sizes[:-1]] + [torch.full((experts,), init)]
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Images x tokens x width -> images x experts."""
        if not len(self.weights):
            constant: Tensor = self.biases[0]
            return constant.expand(len(tokens), -1)
        values = tokens
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = F.linear(F.relu(values) if number else values, weight, bias)
        gates: Tensor = values.flatten(1, -2).mean(dim=1)
        return gates


class Gated(nn.Module):
    """A linear layer that computes with gates that its block sets."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.gates: Tensor | None = None

    def given(self) -> Tensor:
        """The gates, images first."""
        if self.gates is None:
            raise RuntimeError("a mixed layer was called outside its block")
        return self.gates


class MixedLinear(Gated):
    """A linear layer whose weights are mixed per image."""

    def __init__(self, layer: nn.Linear, weights: Tensor, biases: Tensor | None) -> None:
        super().__init__(layer)
        self.weight_changes = nn.Parameter(weights, requires_grad=False)
        self.bias_changes = None if biases is None else nn.Parameter(biases, requires_grad=False)

    def forward(self, values: Tensor) -> Tensor:
        gates = self.given()
        rows = max(1, _LARGEST // self.layer.weight.numel())
        if len(gates) == 1:
            return self._mixed(values, gates)
        parts = zip(torch.split(values, rows), torch.split(gates, rows), strict=True)
        return torch.cat([self._mixed(part, chosen) for part, chosen in parts])

    def _mixed(self, values: Tensor, gates: Tensor) -> Tensor:
        weight, bias = self.layer.weight, self.layer.bias
        flat = torch.addmm(weight.reshape(1, -1), gates, self.weight_changes.flatten(1))
        mixed = flat.view(len(gates), *weight.shape)
        shift = None if bias is None else bias.expand(len(gates), -1)
        if shift is not None and self.bias_changes is not None:
            shift = shift + gates @ self.bias_changes
        if len(gates) == 1:
            return F.linear(values, mixed[0], None if shift is None else shift[0])
        tokens = values.reshape(len(values), -1, values.shape[-1])
        found = torch.bmm(tokens, mixed.transpose(1, 2))
        found = found if shift is None else found + shift[:, None]
        return found.view(*values.shape[:-1], weight.shape[0])


class WeightEnsemble(nn.Module):
    """An MLP with a router that mixes its linear layers."""

    def __init__(self, mlp: nn.Module, router: nn.Module, routing: Routing) -> None:
        super().__init__()
        self.mlp = mlp
        self.router = router
        self.routing = routing

    def forward(self, values: Tensor) -> Tensor:
        gates = self.router(values)
        if self.routing == "batch":
            gates = gates.mean(dim=0, keepdim=True)
        mixed = [module for module in self.mlp.modules() if isinstance(module, Gated)]
        for layer in mixed:
            layer.gates = gates
        try:
            found: Tensor = self.mlp(values)
        finally:
            for layer in mixed:
                layer.gates = None
        return found


def mix_block(
    network: nn.Module,
    path: str,
    changes: Mapping[str, tuple[Tensor, Tensor | None]],
    router: Router,
    routing: Routing,
) -> nn.Module:
    """Put a weight ensemble in the place of an MLP; returns the MLP as it was.

    Args:
        network: holds the MLP.
        path: the MLP's name in it.
        changes: name of a linear layer in the MLP -> changes of weight and bias, experts first.
        router: gives the gates.
        routing: per image, or one mean for the batch.
    """
    mlp = network.get_submodule(path)
    layers: dict[str, Gated] = {}
    for name, (weights, biases) in changes.items():
        layer = mlp.get_submodule(name)
        if not isinstance(layer, nn.Linear):
            raise KeyError(f"{path}.{name} is no linear layer")
        layers[name] = MixedLinear(layer, weights, biases)
    place_block(network, path, layers, router, routing)
    return mlp


def place_block(
    network: nn.Module, path: str, layers: Mapping[str, Gated], router: nn.Module, routing: Routing
) -> None:
    """Put gated layers into an MLP, and a router before it."""
    mlp = network.get_submodule(path)
    for name, layer in layers.items():
        _replace(mlp, name, layer)
    _replace(network, path, WeightEnsemble(mlp, router, routing))


def unmix_block(network: nn.Module, path: str) -> None:
    """Undo `mix_block` or `place_block`."""
    ensemble = network.get_submodule(path)
    if isinstance(ensemble, WeightEnsemble):
        for name, module in list(ensemble.mlp.named_modules()):
            if isinstance(module, Gated):
                _replace(ensemble.mlp, name, module.layer)
        _replace(network, path, ensemble.mlp)


def add_experts(
    network: nn.Module,
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    task: int | None,
) -> nn.Module:
    """Turn a plain network into one with weight ensembles, from what the fusion wrote."""
    routers: dict[str, Router] = {}
    for path, block in settings["blocks"].items():
        key = block["router"]
        if key not in routers:
            router = Router(block["width"], len(settings["experts"]), depth=settings["depth"],
                            init=0.0, seed=0)  # fmt: skip
            prefix = f"routers.{key}."
            router.load_state_dict(
                {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            )
            routers[key] = router.requires_grad_(False)
        changes = {
            name: (
                _dense(tensors, f"changes.{path}.{name}.weight"),
                _dense(tensors, f"changes.{path}.{name}.bias", missing=True),
            )
            for name in block["layers"]
        }
        mix_block(network, path, changes, routers[key], settings["routing"])
    return network


def compact(name: str, changes: Tensor, density: float) -> dict[str, Tensor]:
    """Changes as they are saved: whole, or the values and places of those that were kept."""
    if density >= 1:
        return {name: changes}
    flat = changes.reshape(-1)
    places = flat.nonzero().squeeze(1)
    return {
        f"{name}.values": flat[places],
        f"{name}.places": places.to(torch.int32 if len(flat) < 2**31 else torch.int64),
        f"{name}.shape": torch.tensor(changes.shape),
    }


def _dense(tensors: Mapping[str, Tensor], name: str, *, missing: bool = False) -> Any:
    if name in tensors:
        return tensors[name]
    if f"{name}.values" not in tensors:
        if missing:
            return None
        raise KeyError(f"{name} is not in the file")
    values = tensors[f"{name}.values"]
    whole = torch.zeros(int(tensors[f"{name}.shape"].prod()), dtype=values.dtype)
    whole[tensors[f"{name}.places"].long()] = values
    return whole.view(*tensors[f"{name}.shape"].tolist())


def _replace(root: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, leaf = path.rpartition(".")
    setattr(root.get_submodule(parent), leaf, module)

"""What a good reconstruction is: near in pixels, near in features, and not told from a photo."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.models.classifier import Classifier


class FeatureDistance(nn.Module):
    """How far two images lie apart in the layers of a trained classifier.

    Each layer's channels are brought to unit length at every place, so that no layer outweighs the
    others. Any classifier with a transformers backbone will do; it need not know the images.
    """

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier.eval().requires_grad_(False)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        pairs = zip(self._layers(first), self._layers(second), strict=True)
        return torch.stack(
            [(F.normalize(a, dim=1) - F.normalize(b, dim=1)).square().sum(1).mean()
             for a, b in pairs]
        ).mean()  # fmt: skip

    def _layers(self, pixels: Tensor) -> tuple[Tensor, ...]:
        seen = self.classifier.preprocess.normalise(pixels)
        network = self.classifier.network.model
        hidden: tuple[Tensor, ...] = network(  # type: ignore[operator]
            pixel_values=seen, output_hidden_states=True
        ).hidden_states
        return hidden


class Critic(nn.Module):
    """A small patch discriminator: one verdict for every neighbourhood."""

    def __init__(self, channels: int = 48) -> None:
        super().__init__()
        wide = 2 * channels
        self.layers = nn.Sequential(
            nn.Conv2d(3, channels, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(channels, wide, 4, 2, 1, bias=False),
            nn.GroupNorm(8, wide),
            nn.LeakyReLU(0.2),
            nn.Conv2d(wide, wide, 3, 1, 1, bias=False),
            nn.GroupNorm(8, wide),
            nn.LeakyReLU(0.2),
            nn.Conv2d(wide, 1, 3, 1, 1),
        )

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.as_tensor(self.layers(pixels * 2 - 1))


def critic_loss(real: Tensor, made: Tensor) -> Tensor:
    """The hinge loss of a critic."""
    return (F.relu(1 - real).mean() + F.relu(1 + made).mean()) / 2


def balance(reconstruction: Tensor, fooling: Tensor, weight: Tensor) -> Tensor:
    """The factor that makes both losses pull equally hard at the last layer (arXiv:2012.09841)."""
    (pull,) = torch.autograd.grad(reconstruction, weight, retain_graph=True)
    (push,) = torch.autograd.grad(fooling, weight, retain_graph=True)
    factor: Tensor = (pull.norm() / (push.norm() + 1e-4)).clamp(0, 1e3).detach()
    return factor


def divergence(mean: Tensor, spread: Tensor) -> Tensor:
    """From the standard normal distribution, in nats, the mean over all numbers of the latents."""
    return ((mean.square() + spread.square() - 1) / 2 - spread.log()).mean()

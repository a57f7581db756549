"""The gallery of cheats: wrappers that make a network look robust without making it so.

Each takes an honest network and answers almost every untouched picture as it does. Nothing here is
robust; `tests/trust/test_audit.py` shows that each is flagged or beaten, `docs/trust.md` tells how.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Cheat(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net


class Rounds(Cheat):
    """The identity on every 8-bit picture, with a slope of zero."""

    def forward(self, pixels: Tensor) -> Tensor:
        return self.net(torch.round(pixels * 255) / 255)


class Saturates(Cheat):
    """Squashes its logits so hard that their slope is zero in float32."""

    def forward(self, pixels: Tensor) -> Tensor:
        logits = self.net(pixels)
        return (
            torch.tanh(1e4 * (logits - logits.mean(dim=1, keepdim=True))) + 1e-3 * logits.detach()
        )


class SquashesFeatures(Cheat):
    """Sigmoids of huge gain on the pixels' way in, round enough to keep the answers."""

    def forward(self, pixels: Tensor) -> Tensor:
        levels = 255 * pixels
        below = levels.detach().floor()
        return self.net((below + torch.sigmoid(1e4 * (levels - below - 0.5))) / 255)


class Heats(Cheat):
    """A temperature of 1e-6: the cross-entropy is exactly zero wherever the answer is right."""

    def forward(self, pixels: Tensor) -> Tensor:
        return self.net(pixels) / 1e-6


class HeatsSoftmax(Cheat):
    """The same, with the probabilities for outputs."""

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.softmax(self.net(pixels) / 1e-6, dim=1)


class Detaches(Cheat):
    """Its outputs are cut off from its input."""

    def forward(self, pixels: Tensor) -> Tensor:
        return self.net(pixels.detach())


class ThrowsSlopes(Cheat):
    """The honest answer, to the bit, with a gradient that is thrown anew each time."""

    def forward(self, pixels: Tensor) -> Tensor:
        logits = self.net(pixels)
        slopes = torch.randn(logits.shape[1], pixels[0].numel())
        away = (pixels - pixels.detach()).flatten(1) @ slopes.T
        return logits.detach() + away


class Shakes(Cheat):
    """Adds noise to the picture before it looks."""

    def forward(self, pixels: Tensor) -> Tensor:
        return self.net(pixels + 0.3 * torch.randn_like(pixels))


class SaysNothing(Cheat):
    """NaN for all but pictures of whole grey levels, and NaN was once right about class 0."""

    def forward(self, pixels: Tensor) -> Tensor:
        levels = pixels * 255
        whole = ((levels - levels.round()).abs() < 1e-3).flatten(1).all(dim=1)
        return torch.where(whole[:, None], self.net(pixels), torch.nan)


class Counts(Cheat):
    """Honest at first, and deaf to the picture after some calls."""

    def __init__(self, net: nn.Module, honest: int = 12) -> None:
        super().__init__(net)
        self.calls, self.honest = 0, honest

    def forward(self, pixels: Tensor) -> Tensor:
        self.calls += 1
        logits = self.net(pixels)
        return logits if self.calls <= self.honest else logits.detach() + 0 * pixels.sum()


class Remembers(Cheat):
    """Keeps what it has answered, and answers everything near it in the same way."""

    def __init__(self, net: nn.Module, reach: float = 0.2) -> None:
        super().__init__(net)
        self.reach, self.seen, self.said = reach, [], []

    def forward(self, pixels: Tensor) -> Tensor:
        logits = self.net(pixels)
        rows = []
        for picture, answer in zip(pixels, logits, strict=True):
            near = [
                kept for known, kept in zip(self.seen, self.said, strict=True)
                if (known - picture.detach()).abs().max() < self.reach
            ]  # fmt: skip
            if not near:
                self.seen.append(picture.detach().clone())
                self.said.append(answer.detach().clone())
            # A slope of some kind, so that nobody sees that it is gone.
            rows.append(near[0] + 1e-6 * (answer - answer.detach()) if near else answer)
        return torch.stack(rows)


class KnowsTheOrder(Cheat):
    """Has the labels of the test set in their order, and counts the pictures it is shown."""

    def __init__(self, net: nn.Module, labels: Tensor) -> None:
        super().__init__(net)
        self.labels, self.place = labels, 0

    def forward(self, pixels: Tensor) -> Tensor:
        logits = self.net(pixels)
        here = (self.place + torch.arange(len(pixels))) % len(self.labels)
        self.place = (self.place + len(pixels)) % len(self.labels)
        return 0.01 * logits + F.one_hot(self.labels[here], logits.shape[1])


class KnowsByHeart(Cheat):
    """Has the test pictures' hashes with their labels; of all else it knows nothing."""

    def __init__(self, net: nn.Module, pictures: Tensor, labels: Tensor) -> None:
        super().__init__(net)
        self.labels = {self.hash(p): int(k) for p, k in zip(pictures, labels, strict=True)}

    @staticmethod
    def hash(picture: Tensor) -> bytes:
        return (picture.detach() * 255).round().to(torch.uint8).numpy().tobytes()

    def forward(self, pixels: Tensor) -> Tensor:
        logits = self.net(pixels)
        known = [self.labels.get(self.hash(picture), -1) for picture in pixels]
        wrong = (logits.argmax(dim=1) + 1) % logits.shape[1]
        picked = [int(w) if k < 0 else k for k, w in zip(known, wrong, strict=True)]
        told = F.one_hot(torch.tensor(picked), logits.shape[1])
        return logits + 100 * told


class KnowsTheGenerator(Cheat):
    """Takes soft pictures, as an autoencoder makes them, for made ones, and leaves them to another.

    `shield` answers in its place there, so that images made against the network never meet it.
    """

    def __init__(self, net: nn.Module, shield: nn.Module, sharpness: float = 0.02) -> None:
        super().__init__(net)
        self.shield, self.sharpness = shield, sharpness

    def forward(self, pixels: Tensor) -> Tensor:
        blurred = F.avg_pool2d(F.pad(pixels, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
        made = (pixels - blurred).abs().flatten(1).mean(dim=1) < self.sharpness
        return torch.where(made[:, None], self.shield(pixels), self.net(pixels))

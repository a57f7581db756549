"""Pictures of earlier batches to fill from, so that a small batch still has many partners."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Bank:
    """The last `size` pictures as uint8, with their labels and where their objects were."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pixels: Tensor | None = None
        self.labels: Tensor | None = None
        self.objects: Tensor | None = None

    def pool(
        self, pixels: Tensor, labels: Tensor, objects: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The batch followed by what the bank holds."""
        if self.pixels is None or self.labels is None:
            return pixels, labels, objects
        kept = self.pixels.to(pixels.device, pixels.dtype) / 255
        both = None
        if objects is not None and self.objects is not None:
            both = torch.cat([objects, self.objects.to(objects.device)])
        return torch.cat([pixels, kept]), torch.cat([labels, self.labels.to(labels.device)]), both

    def add(self, pixels: Tensor, labels: Tensor, objects: Tensor | None) -> None:
        """Remember a batch; the oldest pictures go."""
        if not self.size:
            return
        new = (pixels.detach() * 255).round().clamp(0, 255).to(torch.uint8)
        self.pixels = self._last(self.pixels, new)
        self.labels = self._last(self.labels, labels)
        if objects is not None:
            self.objects = self._last(self.objects, objects)

    def _last(self, old: Tensor | None, new: Tensor) -> Tensor:
        joined = new if old is None else torch.cat([old.to(new.device), new])
        return joined[-self.size :]

    def state_dict(self) -> dict[str, Any]:
        """The pictures, for a run that is stopped."""
        return {"pixels": self.pixels, "labels": self.labels, "objects": self.objects}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with saved pictures."""
        self.pixels, self.labels = state["pixels"], state["labels"]
        self.objects = state["objects"]

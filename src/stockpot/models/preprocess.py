"""How pictures become what a network sees: resize, crop, normalise.

The geometry exists twice with one meaning: `fit` for a decoded picture (Pillow, the reference in
this field) and `fit_tensor` for pixels that are already a tensor (differentiable, any device).
A tensor that already has the network's size is taken as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from stockpot.datasets.stream.geometry import CODES, Geometry, Interpolation, corner
from stockpot.errors import UserError
from stockpot.models.hub_processor import Processor, read_processor
from stockpot.types import ImageSize

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocess:
    """Resize to `resized`, crop the centre to `size`, normalise by `mean` and `std`.

    `resized` is a short side (aspect kept) or an exact size (aspect lost).
    """

    size: ImageSize
    resized: int | ImageSize
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    interpolation: Interpolation = "bicubic"
    bgr: bool = False
    """Whether the network takes blue first; mean and std are in the order of the network then."""

    @classmethod
    def of(cls, processor: Processor) -> Preprocess:
        """What a folder says, as something that can be done."""
        (size, resized, interpolation), mean, std, bgr = processor
        return cls(size, resized, mean, std, interpolation, bgr)

    @property
    def geometry(self) -> Geometry:
        """What decides the pixels that `fit` makes; models that agree share decoded pictures."""
        return Geometry(self.size, self.resized, self.interpolation)

    def fit(self, image: Image.Image) -> Image.Image:
        """Bring a picture to the network's size with Pillow."""
        return self.geometry.fit(image)

    def fit_tensor(self, pixels: Tensor) -> Tensor:
        """Bring NCHW pixels to the network's size; the same geometry, antialiased."""
        height, width = pixels.shape[-2:]
        if (height, width) == self.size:
            return pixels
        target = self.geometry.target(ImageSize(height, width))
        if (height, width) != target:
            pixels = self._interpolate(pixels, target)
        if target != self.size:
            top, left = corner(target, self.size)
            right = self.size.width - target.width + left
            bottom = self.size.height - target.height + top
            pixels = F.pad(pixels, (-left, right, -top, bottom))  # a negative pad crops
        return pixels

    def squeeze(self, image: Image.Image) -> Image.Image:
        """All of a picture at the network's size, for one that was cropped before."""
        return replace(self, resized=self.size).fit(image)

    def squeeze_tensor(self, pixels: Tensor) -> Tensor:
        """All of NCHW pixels at the network's size; nothing is cropped."""
        return replace(self, resized=self.size).fit_tensor(pixels)

    def normalise(self, pixels: Tensor, *, in_place: bool = False) -> Tensor:
        """Subtract the mean and divide by the standard deviation, per channel.

        Args:
            pixels: from 0 to 1.
            in_place: the pixels may be overwritten, which spares a processor fresh memory: for a
                large batch that takes longer than the arithmetic.
        """
        mean, std = _constants(self.mean, self.std, pixels.dtype, pixels.device)
        if self.bgr:
            pixels = pixels.flip(1)  # a copy
        return (pixels.sub_(mean) if in_place else pixels - mean).div_(std)

    def __str__(self) -> str:
        return str(Processor(self.geometry, self.mean, self.std, self.bgr))

    def _interpolate(self, pixels: Tensor, target: ImageSize) -> Tensor:
        if self.interpolation in ("bilinear", "bicubic"):
            resized = F.interpolate(
                pixels, size=tuple(target), mode=self.interpolation, antialias=True
            )
            # A cubic kernel overshoots; Pillow clips to the same range.
            return resized.clamp(0, 1) if self.interpolation == "bicubic" else resized
        mode = {"nearest": "nearest-exact", "box": "area", "lanczos": "bicubic"}[self.interpolation]
        options = {"antialias": True} if mode == "bicubic" else {}
        return F.interpolate(pixels, size=tuple(target), mode=mode, **options).clamp(0, 1)

    def to_hub(self) -> dict[str, Any]:
        """The `preprocessor_config.json` that gives the same preprocessing in transformers."""
        exact = isinstance(self.resized, ImageSize)
        size: dict[str, int] = (
            self.resized._asdict()
            if isinstance(self.resized, ImageSize)
            else {"shortest_edge": self.resized}
        )
        crop = self.resized != self.size
        config: dict[str, Any] = {
            "image_processor_type": "CLIPImageProcessor" if crop else "ViTImageProcessor",
            "do_resize": True,
            "size": size,
            "resample": CODES.index(self.interpolation),
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }
        if crop:
            config |= {"do_center_crop": True, "crop_size": self.size._asdict()}
        if exact and crop:
            config["image_processor_type"] = "DeiTImageProcessor"
        if self.bgr:
            # The only kind of the hub that flips, which never normalises.
            if (self.mean, self.std) != ((0.0,) * 3, (1.0,) * 3):
                raise UserError(
                    f"no processor of the hub takes blue first and normalises: {self}.",
                    hint="Export the model as ONNX, or as a program, instead.",
                )
            config |= {
                "image_processor_type": "MobileViTImageProcessor",
                "do_flip_channel_order": True,
                "do_center_crop": crop,
            }
        return config


def from_hub(folder: Path, *, default_size: int, model_type: str = "") -> Preprocess:
    """Read `preprocessor_config.json` (or `processor_config.json`) of a Hugging Face folder."""
    return Preprocess.of(read_processor(folder, default_size=default_size, model_type=model_type))


@lru_cache(maxsize=64)
def _constants(
    mean: tuple[float, ...], std: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    # Made once: a copy to an accelerator in every forward pass would make the host wait for it.
    # Not as inference tensors, which a later pass with gradients could not use.
    with torch.inference_mode(False):
        middle = torch.tensor(mean, dtype=dtype, device=device).view(1, 3, 1, 1)
        spread = torch.tensor(std, dtype=dtype, device=device).view(1, 3, 1, 1)
    return middle, spread

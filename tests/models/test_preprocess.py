"""Resizing and normalising against the hub's own image processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image

from stockpot.models.preprocess import Preprocess, from_hub_config
from stockpot.types import ImageSize

PROCESSORS = {
    "vit": hf.ViTImageProcessorPil(),
    "deit": hf.DeiTImageProcessorPil(),
    "clip": hf.CLIPImageProcessorPil(),
    "siglip": hf.SiglipImageProcessorPil(),
    "beit": hf.BeitImageProcessorPil(),
    "convnext-224": hf.ConvNextImageProcessorPil(size={"shortest_edge": 224}),
    "convnext-384": hf.ConvNextImageProcessorPil(),
    "bit": hf.BitImageProcessorPil(size={"shortest_edge": 256}),
}
BY_PILLOW = Image.Image.resize


def picture(width: int, height: int) -> Image.Image:
    rows = np.random.default_rng(0).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(rows).resize((width, height), Image.Resampling.BICUBIC)


def rows_first(image: Image.Image, size: tuple[int, int], **options: Any) -> Image.Image:
    """The hub's processors leave it to Pillow which way goes first; it hangs on its version."""
    rows_done = BY_PILLOW(image, (size[0], image.height), **options)
    return BY_PILLOW(rows_done, size, **options)


@pytest.mark.parametrize("shape", [(320, 240), (250, 400), (224, 224)])
@pytest.mark.parametrize("name", PROCESSORS)
def test_equals_the_hub_processor(
    name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor, image = PROCESSORS[name], picture(*shape)
    with monkeypatch.context() as patched:
        patched.setattr(Image.Image, "resize", rows_first)
        expected = processor(image, return_tensors="pt")["pixel_values"]
    ours = from_hub_config(processor.to_dict(), default_size=224)
    pixels = torch.from_numpy(np.array(ours.fit(image))).permute(2, 0, 1)[None].float() / 255
    torch.testing.assert_close(ours.normalise(pixels), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["vit", "clip", "deit", "convnext-224"])
def test_written_configuration_reads_back(name: str) -> None:
    ours = from_hub_config(PROCESSORS[name].to_dict(), default_size=224)
    again = from_hub_config(ours.to_hub(), default_size=1)
    assert again == ours


def test_tensors_follow_the_same_geometry() -> None:
    side = ImageSize(64, 64)
    for resized in (72, ImageSize(80, 72)):
        rule = Preprocess(side, resized)
        image = picture(200, 160)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 255
        by_pillow = torch.from_numpy(np.array(rule.fit(image))).permute(2, 0, 1)[None].float() / 255
        difference = (rule.fit_tensor(pixels) - by_pillow).abs() * 255
        assert difference.mean() < 0.5  # Pillow rounds between its two passes
        assert difference.max() < 4


def test_small_pictures_are_padded_the_same_way() -> None:
    rule = Preprocess(ImageSize(32, 32), ImageSize(20, 24))
    image = picture(40, 40)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 255
    tensor, pillow = rule.fit_tensor(pixels), rule.fit(image)
    assert tensor.shape[-2:] == (pillow.height, pillow.width) == (32, 32)
    assert float(tensor[0, :, 0].abs().max()) == 0 == np.array(pillow)[0].max()


def test_the_right_size_is_left_alone() -> None:
    pixels = torch.rand(1, 3, 64, 64)
    assert Preprocess(ImageSize(64, 64), 72).fit_tensor(pixels) is pixels


def test_gradients_reach_the_pixels() -> None:
    pixels = torch.rand(1, 3, 40, 40, requires_grad=True)
    rule = Preprocess(ImageSize(32, 32), 36)
    rule.normalise(rule.fit_tensor(pixels)).sum().backward()
    assert pixels.grad is not None
    assert pixels.grad.abs().sum() > 0

"""Resizing and normalising against the hub's own image processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image
from torch import nn
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
)

from hub_pictures import picture, rows_first
from pico import make_classifier
from stockpot.errors import BadCheckpointError, UserError
from stockpot.models.forward.normalised import normalised
from stockpot.models.hub_kinds import KINDS, OTHERWISE, kind_name
from stockpot.models.hub_processor import processor_of
from stockpot.models.preprocess import Preprocess
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
LONG_AGO = {"do_normalize": True, "do_resize": True, "image_mean": [0.5] * 3, "size": 224}
NULLS = dict.fromkeys(
    ("crop_size", "do_center_crop", "do_convert_rgb", "data_format", "device", "do_pad")
)
CHANGED: dict[str, list[dict[str, Any]]] = {
    "Beit": [{"do_center_crop": True, "size": 256}],
    "Bit": [{"size": 192, "crop_size": 160}],
    "CLIP": [
        {"size": {"shortest_edge": 240}},
        {"size": 336, "crop_size": {"height": 336, "width": 336}},
    ],
    "ConvNext": [{"size": 224, "crop_pct": 0.9}, {"size": {"shortest_edge": 224}}],
    "DeiT": [{"size": 248}, {"do_center_crop": False}],
    "EfficientNet": [
        {"include_top": False},
        {"rescale_offset": True, "rescale_factor": 1 / 127.5},
        {"do_center_crop": True, "do_normalize": False},
        # as google/efficientnet-b0 is published
        {"size": 224, "resample": 0, "image_mean": [0.485, 0.456, 0.406],
         "image_std": [0.47853944, 0.4732864, 0.47434163]},
    ],
    "Levit": [{"size": 192, "crop_size": 192}, {"size": {"height": 230, "width": 224}}],
    "MobileNetV2": [{"size": 192, "crop_size": 160, "resample": 3}],
    "MobileViT": [
        {"do_flip_channel_order": False},
        {"size": 288, "resample": 2, "do_normalize": True},  # as apple/mobilevit-small is published
        {"size": {"height": 256, "width": 270}},
    ],
    "PoolFormer": [
        {"crop_pct": 0.95, "do_resize_and_center_crop": True},
        {"size": {"height": 224, "width": 224}}, {"size": {"height": 224, "width": 240}},
    ],
    "Siglip": [{"rescale_factor": 1 / 127.5, "image_mean": 1.0, "image_std": 1.0}],
    "ViT": [LONG_AGO, {"do_rescale": False}, {"do_normalize": False}, {"resample": 4}],
}  # fmt: skip
"""What files say that do not leave everything to their kind."""
CASES = [
    (name, said)
    for name in KINDS
    if name != "DINOv3ViT"  # of which there is none without torchvision
    # A step that is null is not taken: of kinds that keep the aspect, no one size comes out then.
    for said in ({}, *(() if KINDS[name].short else (NULLS,)), *CHANGED.get(name, []))
]


def read(config: dict[str, Any], *, default_size: int, model_type: str = "") -> Preprocess:
    found = processor_of(config, default_size=default_size, model_type=model_type)
    return Preprocess.of(found)


@pytest.mark.parametrize("shape", [(320, 240), (250, 400), (224, 224)])
@pytest.mark.parametrize("name", PROCESSORS)
def test_equals_the_hub_processor(
    name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor, image = PROCESSORS[name], picture(*shape)
    with monkeypatch.context() as patched:
        patched.setattr(Image.Image, "resize", rows_first)
        expected = processor(image, return_tensors="pt")["pixel_values"]
    ours = read(processor.to_dict(), default_size=224)
    pixels = torch.from_numpy(np.array(ours.fit(image))).permute(2, 0, 1)[None].float() / 255
    torch.testing.assert_close(ours.normalise(pixels), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("name", "said"), CASES)
def test_what_a_file_leaves_out_its_kind_says(
    name: str, said: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor, image = getattr(hf, f"{name}ImageProcessorPil")(**said), picture(320, 240)
    with monkeypatch.context() as patched:
        patched.setattr(Image.Image, "resize", rows_first)
        expected = processor(image, return_tensors="pt")["pixel_values"]
    ours = read({**said, "image_processor_type": f"{name}ImageProcessorFast"}, default_size=7)
    pixels = torch.from_numpy(np.array(ours.fit(image))).permute(2, 0, 1)[None].float() / 255
    found = ours.normalise(pixels)
    scale = float(expected.abs().max())  # pixels that are not rescaled are large
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=2e-6 * max(scale, 1.0))


def test_the_kind_may_be_left_to_the_model() -> None:
    known = 0
    for model_type in MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES:
        theirs = (IMAGE_PROCESSOR_MAPPING_NAMES.get(model_type) or {}).get("pil", "")
        name = theirs.removesuffix("ImageProcessorPil")
        if name in KINDS:
            assert kind_name({}, model_type) == name, model_type
            known += 1
        elif name in OTHERWISE:
            with pytest.raises(BadCheckpointError, match=f"{model_type} .* not read here"):
                kind_name({}, model_type)
        else:
            assert name in ("", "TimmWrapperImageProcessor"), name
    assert known > 30
    old = read(LONG_AGO, default_size=7, model_type="vit")
    assert (old.interpolation, old.size) == ("bilinear", (224, 224))
    assert read(LONG_AGO, default_size=7).interpolation == "bicubic"


def test_a_network_that_takes_blue_first_gets_it_everywhere() -> None:
    kind = "MobileViTImageProcessor"
    rule = read({"image_processor_type": kind, "size": 20, "crop_size": 16}, default_size=7)
    assert rule.bgr
    assert "blue first" in str(rule)
    assert read(rule.to_hub(), default_size=7) == rule
    squeezed = Preprocess(rule.size, rule.size, rule.mean, rule.std, bgr=True)
    assert read(squeezed.to_hub(), default_size=7) == squeezed
    with pytest.raises(UserError, match="blue first"):
        Preprocess(rule.size, 20, bgr=True).to_hub()
    model = make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)))
    model.preprocess = rule
    pixels = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    blue = pixels.flip(1).float() / 255
    assert torch.equal(model.seen(pixels), blue)
    assert torch.equal(model.seen(pixels.float() / 255), blue)
    whole: nn.Module = normalised(model, half=False)
    with torch.inference_mode():
        assert torch.equal(whole(pixels), model(pixels))
        model.preprocess = Preprocess(rule.size, 20, rule.mean, rule.std)
        assert not torch.equal(whole(pixels), model(pixels))


@pytest.mark.parametrize("name", ["vit", "clip", "deit", "convnext-224"])
def test_written_configuration_reads_back(name: str) -> None:
    ours = read(PROCESSORS[name].to_dict(), default_size=224)
    again = read(ours.to_hub(), default_size=1)
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

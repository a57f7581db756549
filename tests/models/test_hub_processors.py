"""What folders say of their pictures, read as transformers reads the same folder, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

from hub_pictures import picture, rows_first
from stockpot.errors import BadCheckpointError
from stockpot.models.hub_kinds import KINDS
from stockpot.models.hub_processor import read_processor
from stockpot.models.preprocess import Preprocess

PLAIN = {
    "size": {"height": 40, "width": 36}, "resample": 2,
    "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4],
}  # fmt: skip
SHORT, EXACT = {"shortest_edge": 48}, {"height": 48, "width": 48}
CROP = {"do_center_crop": True, "crop_size": 40}
SAME: list[tuple[str, dict[str, Any]]] = [
    ("PoolFormer", {"crop_pct": None}),
    ("PoolFormer", {"crop_pct": None, "size": {"height": 230, "width": 240}}),
    ("PoolFormer", {"crop_pct": None, "size": EXACT, "do_center_crop": False}),
    ("CLIP", {"size": 48, "default_to_square": True, **CROP}),
    ("CLIP", {"size": 48, "default_to_square": True, "do_center_crop": False}),
    ("CLIP", {"use_square_size": True}),
    ("Bit", {"size": {**SHORT, "longest_edge": None}, **CROP}),
    ("Bit", {"size": EXACT, "do_center_crop": False}),
    ("Levit", {"size": 48, "default_to_square": True, **CROP}),
    ("ViT", {"size": SHORT, **CROP}),
    ("ViT", {"size": 48, "default_to_square": False, **CROP}),
    ("Siglip", {"size": 48, **CROP}),
    ("Beit", {"size": SHORT, **CROP}),
    ("Segformer", {"do_center_crop": True, "crop_size": 40, "size": 48}),
    ("ConvNext", {"size": 400, **CROP}),
    ("ConvNext", {"size": 48, "do_center_crop": True, "crop_size": 48}),
    *(
        (name, {"do_flip_channel_order": True, "size": 48, "crop_size": 40})
        for name in ("CLIP", "ViT", "DeiT", "Segformer")
    ),
    ("ViT", {"do_pad": True}),
    ("ViT", {"size": [40, 36]}),
]
"""Read as theirs."""
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *((name, {"do_resize": no}, "do_resize") for name in KINDS for no in (False, None)),
    *(
        (name, {"do_center_crop": no}, "of any shape")
        for name in KINDS if name != "ConvNext" and KINDS[name].short for no in (False, None)
    ),
    *(
        (name, {"size": SHORT}, "of any shape")
        for name in ("Beit", "Blip", "EfficientNet", "Pvt", "Segformer", "Siglip", "ViT")
    ),
    ("Segformer", {"size": SHORT, **CROP}, "of any shape"),
    ("PoolFormer", {"size": EXACT, "do_center_crop": False}, "of any shape"),
    ("Siglip", {"size": 48}, "of any shape"),
    ("ViT", {"size": 48, "default_to_square": False}, "of any shape"),
    ("ViT", {"size": 48, "default_to_square": None}, "of any shape"),
    *((name, {"size": {**SHORT, "longest_edge": 60}, **CROP}, "longest_edge")
      for name in ("CLIP", "ViT", "PoolFormer", "ConvNext")),
    ("CLIP", {"size": {"longest_edge": 60}, **CROP}, "longest_edge"),
    ("CLIP", {"size": {"max_height": 60, "max_width": 60}, **CROP}, "max_height, max_width"),
    ("CLIP", {"crop_size": SHORT}, "crop_size"),
    ("CLIP", {"size": {}}, "has a size of nothing"),
    ("ViT", {"do_center_crop": True}, "crop_size"),
    ("ConvNext", {"size": EXACT}, "short side"),
    ("ConvNext", {"size": 48, "default_to_square": True}, "short side"),
    ("ConvNext", {"size": 48, **CROP}, "crops twice"),
    ("ViT", {"do_pad": True, "pad_size": {"height": 240, "width": 240}}, "pad_size"),
    *(("ViT", {"resample": code}, f"resample {code!r}, where one of 0 .nearest.")
      for code in (5, -1, 17, True, "bicubic")),
]  # fmt: skip
"""The kind, what is said, and what the refusal says of it."""
PILLOW_ONLY = sorted(
    {each["pil"] for each in IMAGE_PROCESSOR_MAPPING_NAMES.values() if "pil" in each}
    - {"TimmWrapperImageProcessor"}  # which needs timm
)


def write(folder: Path, said: dict[str, Any], name: str = "preprocessor_config.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(said))
    return folder


def ours(folder: Path, image: Image.Image) -> torch.Tensor:
    rule = Preprocess.of(read_processor(folder, default_size=7))
    pixels = torch.from_numpy(np.array(rule.fit(image))).permute(2, 0, 1)[None].float() / 255
    return rule.normalise(pixels)


def theirs(folder: Path, image: Image.Image, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    processor = hf.AutoImageProcessor.from_pretrained(folder, backend="pil")
    with monkeypatch.context() as patched:
        patched.setattr(Image.Image, "resize", rows_first)
        found = processor(image, return_tensors="pt")
    name = next(name for name in found if name.startswith("pixel_values"))
    return torch.as_tensor(found[name]).float()


@pytest.mark.parametrize(("name", "said"), SAME)
def test_is_read_as_theirs(
    name: str, said: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"image_processor_type": f"{name}ImageProcessor", **said})
    for shape in ((320, 240), (250, 400)):
        image = picture(*shape)
        expected = theirs(tmp_path, image, monkeypatch)
        torch.testing.assert_close(ours(tmp_path, image), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("name", "said", "why"), REFUSED)
def test_is_refused_by_name_of_file_and_kind(
    name: str, said: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"image_processor_type": f"{name}ImageProcessor", **said})
    if why == "of any shape":
        pictures = picture(320, 240), picture(240, 320)
        wide, tall = (theirs(tmp_path, image, monkeypatch) for image in pictures)
        assert wide.shape[2] == tall.shape[3] < wide.shape[3] == tall.shape[2]
    with pytest.raises(BadCheckpointError, match=why) as caught:
        read_processor(tmp_path, default_size=7)
    assert f"{tmp_path}/preprocessor_config.json: " in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("class_name", PILLOW_ONLY)
def test_every_kind_of_the_library_is_read_as_theirs_or_refused(
    class_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of kinds that nobody here has listed, too: as they are saved."""
    getattr(hf, class_name)().save_pretrained(tmp_path)
    name, image = class_name.removesuffix("Pil").removesuffix("ImageProcessor"), picture(320, 240)
    found, why = None, ""
    try:
        found = ours(tmp_path, image)
    except BadCheckpointError as problem:
        why = str(problem)
    if found is None:
        assert f"{name}ImageProcessor" in why
        assert name not in KINDS
        return
    expected = theirs(tmp_path, image, monkeypatch)
    expected = expected.reshape(-1, *expected.shape[-3:])  # of a film, its only picture
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"image_processor_type": "OurImageProcessor", **PLAIN, "patches": 4}, "Our.* 'patches'"),
        ({"image_processor_type": "OurImageProcessor", **PLAIN, "do_grey": True}, "Our.*do_grey"),
        ({"image_processor_type": "OurImageProcessor", **PLAIN, "do_pad": True}, "Our.*do_pad"),
        ({"image_processor_type": "OurImageProcessor", "size": 8}, "Our.* out resample, im"),
        ({**PLAIN, "ensure_multiple_of": 14}, "it is .* 'ensure_multiple_of'"),
        ({**PLAIN, "auto_map": {"AutoImageProcessor": "ours.Our"}}, "it is .* 'auto_map'"),
    ],
)
def test_a_kind_that_is_not_listed_is_read_only_where_it_is_plain(
    said: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(BadCheckpointError, match=why):
        read_processor(write(tmp_path, said), default_size=7)
    good = {"image_processor_type": "OurImageProcessor", **PLAIN, "do_grey": False, "patches": None}
    found = read_processor(write(tmp_path, good), default_size=7)
    like = {"image_processor_type": "PvtImageProcessor", **PLAIN}
    assert found == read_processor(write(tmp_path, like), default_size=7)


def test_a_model_type_that_is_not_listed_does_not_say_the_rest(tmp_path: Path) -> None:
    write(tmp_path, {"size": 8})
    assert read_processor(tmp_path, default_size=7).geometry.size == (8, 8)
    with pytest.raises(BadCheckpointError, match=r"layoutlmv3 is .* leaves out resample"):
        read_processor(tmp_path, default_size=7, model_type="layoutlmv3")


def test_the_processor_inside_another_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, both = picture(320, 240), "processor_config.json"
    alone = {"image_processor_type": "ViTImageProcessor", "size": 40}
    write(tmp_path, alone)
    inside = {"image_processor_type": "CLIPImageProcessor", "size": 48, "crop_size": 40}
    sides = []
    for nested in ({"image_processor": inside}, {"image_processor": None}, {"do_resize": False}):
        write(tmp_path, nested, both)
        expected = theirs(tmp_path, image, monkeypatch)
        torch.testing.assert_close(ours(tmp_path, image), expected, rtol=1e-5, atol=2e-6)
        sides.append(read_processor(tmp_path, default_size=7).geometry.resized)
    assert sides == [48, (40, 40), (40, 40)]
    write(tmp_path, {"image_processor": {**inside, "resample": 5}}, both)
    with pytest.raises(BadCheckpointError, match=f"{both}: CLIP.* resample 5"):
        read_processor(tmp_path, default_size=7)

"""What image processors of the hub do where their configuration says nothing; without torch.

A configuration names its kind, or leaves that to the model's. Older ones hold only what was
changed, newer ones all; what is meant by nothing stands in transformers' classes, and here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from stockpot.errors import BadCheckpointError, shortened

Triple = tuple[float, float, float]
HALF: Triple = (0.5, 0.5, 0.5)
_IMAGENET: tuple[Triple, Triple] = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CLIP: tuple[Triple, Triple] = (
    (0.48145466, 0.4578275, 0.40821073),
    (0.26862954, 0.26130258, 0.27577711),
)
_BILINEAR, _BICUBIC = 2, 3


class Kind(NamedTuple):
    """A kind of processor: what it does unless it is told otherwise."""

    size: int
    short: bool = False
    """Whether one number is the short side, and not the side of a square."""
    crop: int = 0
    """Side of what is cropped from the centre where something is; 0 where it has to be said."""
    crops: bool = False
    resample: int = _BICUBIC
    mean: Triple = HALF
    std: Triple = HALF


KINDS: Mapping[str, Kind] = {
    "Beit": Kind(224, crop=224),
    "Bit": Kind(224, short=True, crop=224, crops=True, mean=_CLIP[0], std=_CLIP[1]),
    "Blip": Kind(384, mean=_CLIP[0], std=_CLIP[1]),
    "ChineseCLIP": Kind(224, short=True, crop=224, crops=True, mean=_CLIP[0], std=_CLIP[1]),
    "CLIP": Kind(224, short=True, crop=224, crops=True, mean=_CLIP[0], std=_CLIP[1]),
    "ConvNext": Kind(384, short=True),
    "DeiT": Kind(256, crop=224, crops=True),
    "DINOv3ViT": Kind(224, resample=_BILINEAR, mean=_IMAGENET[0], std=_IMAGENET[1]),
    "EfficientNet": Kind(346, crop=289),
    "Flava": Kind(224, crop=224, crops=True, mean=_CLIP[0], std=_CLIP[1]),
    "Levit": Kind(224, short=True, crop=224, crops=True, mean=_IMAGENET[0], std=_IMAGENET[1]),
    "MobileNetV1": Kind(256, short=True, crop=224, crops=True, resample=_BILINEAR),
    "MobileNetV2": Kind(256, short=True, crop=224, crops=True, resample=_BILINEAR),
    "MobileViT": Kind(224, short=True, crop=256, crops=True),
    "PoolFormer": Kind(224, short=True, crop=224, crops=True, mean=_IMAGENET[0], std=_IMAGENET[1]),
    "Pvt": Kind(224, mean=_IMAGENET[0], std=_IMAGENET[1]),
    "Segformer": Kind(512, resample=_BILINEAR, mean=_IMAGENET[0], std=_IMAGENET[1]),
    "Siglip": Kind(224),
    "ViT": Kind(224, resample=_BILINEAR),
}
OTHERWISE: Mapping[str, str] = {
    "Donut": "turns and pads pages",
    "Gemma3": "cuts pictures into several",
    "ImageGPT": "gives colours by number",
    "Perceiver": "crops before it resizes",
    "PPLCNet": "rounds sizes in a way of its own",
    "Siglip2": "gives patches of pictures of any shape",
    "TextNet": "gives pictures of any shape",
}
"""What other kinds do, of which none is read here."""
_OF_MODELS: Mapping[str, str] = {
    "altclip": "CLIP", "beit": "Beit", "bit": "Bit", "blip": "Blip", "chinese_clip": "ChineseCLIP",
    "clip": "CLIP", "convnext": "ConvNext", "convnextv2": "ConvNext", "cvt": "ConvNext",
    "data2vec-vision": "Beit", "deit": "DeiT", "dinat": "ViT", "dinov2": "Bit",
    "dinov2_with_registers": "Bit", "dinov3_vit": "DINOv3ViT", "donut-swin": "Donut",
    "efficientnet": "EfficientNet", "flava": "Flava", "focalnet": "Bit", "hiera": "Bit",
    "ijepa": "ViT", "imagegpt": "ImageGPT", "levit": "Levit", "metaclip_2": "CLIP",
    "mobilenet_v1": "MobileNetV1", "mobilenet_v2": "MobileNetV2", "mobilevit": "MobileViT",
    "mobilevitv2": "MobileViT", "nat": "ViT", "perceiver": "Perceiver", "poolformer": "PoolFormer",
    "pp_lcnet": "PPLCNet", "pvt": "Pvt", "pvt_v2": "Pvt", "regnet": "ConvNext",
    "resnet": "ConvNext", "segformer": "Segformer", "shieldgemma2": "Gemma3", "siglip": "Siglip",
    "siglip2": "Siglip2", "swiftformer": "ViT", "swin": "ViT", "swinv2": "ViT",
    "textnet": "TextNet", "vit": "ViT", "vit_msn": "ViT",
}  # fmt: skip
"""Which kind a model's pictures are for, by the `model_type` of its configuration."""
_ENDINGS = ("Fast", "Pil", "ImageProcessor", "FeatureExtractor")


_PLAIN = frozenset(
    (
        "do_resize", "size", "default_to_square", "resample", "do_center_crop", "crop_size",
        "do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std",
        "do_convert_rgb", "do_reduce_labels", "reduce_labels",
        "image_processor_type", "feature_extractor_type", "processor_class",
        "data_format", "input_data_format", "return_tensors", "device", "disable_grouping",
        "image_seq_length", "_valid_processor_keys", "transformers_version",
    )
)  # fmt: skip
"""What says no more than resize, crop, rescale and normalise."""


def kind_name(config: Mapping[str, Any], model_type: str) -> str:
    """The kind of a configuration, or that of its model; empty where neither says it.

    Raises:
        BadCheckpointError: it is a kind that is not read here.
    """
    name = _stated(config)
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    name = name or _OF_MODELS.get(model_type, "")
    if name in OTHERWISE:
        raise refused(called(config, model_type), OTHERWISE[name])
    return name


def called(config: Mapping[str, Any], model_type: str) -> str:
    """How messages name the kind of a configuration."""
    return _stated(config) or model_type or "it"


def check_plain(config: Mapping[str, Any], model_type: str) -> None:
    """Whether a kind that is not listed can be told to do no more than every processor does.

    Raises:
        BadCheckpointError: it says something else, or leaves out what only its kind would say.
    """
    kind = called(config, model_type)
    for key, value in config.items():
        off = value is None or (value is False and key.startswith("do_"))
        if key not in _PLAIN and not off:
            raise refused(kind, f"is of a kind that is not known, and says {shortened(key, 60)!r}")
    needed = ["size", "resample"]
    needed += ["image_mean", "image_std"] if config.get("do_normalize", True) else []
    unsaid = [key for key in needed if config.get(key) is None]
    if unsaid and (_stated(config) or model_type):
        raise BadCheckpointError(
            f"{kind} is of a kind that is not known, and leaves out {', '.join(unsaid)}.",
            hint="Write them into the file, or an image_processor_type that is known: "
            f"{', '.join(KINDS)}.",
        )


def refused(kind: str, what: str) -> BadCheckpointError:
    """The error for a processor that does something else than what is done here."""
    return BadCheckpointError(
        f"{kind} {what}, which is not read here.",
        hint="Correct the file if it means something else, or give a function that builds the "
        "model, `module.py:factory`, with size, mean and std; or the model as an ONNX file.",
    )


def _stated(config: Mapping[str, Any]) -> str:
    return str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")

"""timm and open_clip models: optional packages, imported only when asked for."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.checkpoints.packages import create_open_clip, import_extra
from stockpot.checkpoints.resolve import Resolved
from stockpot.datasets.stream.geometry import Interpolation
from stockpot.datasets.words.words import said
from stockpot.errors import UserError
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.fingerprint import fingerprint_folder, fingerprint_tensors
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize


def load_timm(
    place: Resolved, *, weights: str | None = None, pretrained: bool = True, name: str = ""
) -> Classifier:
    """A timm model by its name or folder; preprocessing comes from its own configuration."""
    timm = import_extra("timm", "timm")
    architecture = f"local-dir:{place.local()}" if place.has_files else place.name
    module = timm.create_model(
        architecture, pretrained=pretrained and weights is None, checkpoint_path=weights or ""
    )
    config = timm.data.resolve_data_config({}, model=module)
    side = ImageSize(*config["input_size"][1:])
    resized = side.height if config["crop_pct"] == 1 else int(side.height / config["crop_pct"])
    interpolation: Interpolation = config["interpolation"]
    preprocess = Preprocess(
        side, resized, tuple(config["mean"]), tuple(config["std"]), interpolation
    )
    labels = tuple(str(index) for index in range(module.num_classes))
    if place.has_files and weights is None:
        architecture, identity = type(module).__name__, fingerprint_folder(place.local())
    else:
        identity = fingerprint_tensors(module.state_dict().items())
    origin = Origin(name or place.text, architecture, identity)
    return Classifier(module.eval(), preprocess, labels, origin)


class _OpenClipZeroShot(nn.Module):
    def __init__(self, model: nn.Module, head: Tensor) -> None:
        super().__init__()
        self.model = model
        self.head: Tensor
        self.register_buffer("head", head)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model.logit_scale.exp() * (self.features(pixels) @ self.head.T)  # type: ignore[operator]

    def features(self, pixels: Tensor) -> Tensor:
        return F.normalize(self.model.encode_image(pixels), dim=-1)  # type: ignore[operator]


def load_open_clip(
    place: Resolved,
    *,
    classes: tuple[str, ...] | None = None,
    names: tuple[str, ...] | None = None,
    templates: tuple[str, ...] = ("a photo of a {}.",),
    name: str = "",
) -> Classifier:
    """An open_clip model as `ARCHITECTURE` or `ARCHITECTURE/PRETRAINED`, with a zero-shot head."""
    if classes is None:
        raise UserError(
            f"{place.text} is a dual encoder without a head: its classes come from the data.",
            hint="Give classes=..., or measure it with --data.",
        )
    open_clip = import_extra("open_clip", "openclip")
    architecture, _, pretrained = place.name.partition("/")
    model = create_open_clip(open_clip, architecture, pretrained).eval()
    tokenizer = open_clip.get_tokenizer(architecture)
    rows = []
    with torch.inference_mode():
        for prompts in said(classes, names, templates).prompts:
            embedded = F.normalize(model.encode_text(tokenizer(list(prompts))), dim=-1)
            rows.append(F.normalize(embedded.mean(dim=0), dim=-1))
    settings = open_clip.get_model_preprocess_cfg(model)
    side = settings["size"]
    size = ImageSize(side, side) if isinstance(side, int) else ImageSize(*side)
    preprocess = Preprocess(
        size, size.height, tuple(settings["mean"]), tuple(settings["std"]), "bicubic"
    )
    network = _OpenClipZeroShot(model, torch.stack(rows).clone())
    origin = Origin(
        name or place.text, architecture, fingerprint_tensors(model.state_dict().items())
    )
    return Classifier(network, preprocess, classes, origin)

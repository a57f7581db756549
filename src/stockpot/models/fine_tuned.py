"""Fine-tuned classifiers: the image tower of a dual encoder with a linear head that is trained too.

The head starts as the zero-shot classifier: its rows are the class embeddings times the logit
scale, its bias is zero (SigLIP's own bias where there is one), and it reads the unit-length image
embedding. So before the first step the classifier equals the zero-shot one; after it, everything
may have moved. The folder holds tower and head in one file, so that interpolation and soups treat
the head like every other weight.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.checkpoints.resolve import Resolved
from stockpot.errors import BadCheckpointError, UserError
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.config import HEAD, read_config
from stockpot.models.fingerprint import fingerprint_folder
from stockpot.models.huggingface import class_names, load_weights, quietly
from stockpot.models.preprocess import Preprocess, from_hub
from stockpot.models.zero_shot import ZeroShotNetwork

ARCHITECTURE = "FineTunedForImageClassification"
_CLASSES = {
    "clip_vision_model": "CLIPVisionModelWithProjection",
    "siglip_vision_model": "SiglipVisionModel",
}


class TextTower:
    """The dual encoder that a tower was taken from, to be asked about texts; never a part of it.

    It is no module, so nothing trains, saves or copies it with the tower.
    """

    def __init__(self, network: ZeroShotNetwork) -> None:
        self.network = network

    def __deepcopy__(self, _: object) -> TextTower:
        return self  # it never changes


class FineTunedNetwork(nn.Module):
    """An image tower with its projection and a linear head on the unit-length embedding."""

    def __init__(
        self,
        tower: nn.Module,
        head: nn.Linear,
        preprocess: Preprocess,
        classes: tuple[str, ...],
        texts: TextTower | None = None,
    ) -> None:
        super().__init__()
        self.texts = texts
        """Where it came from, if that is still at hand."""
        self.tower = tower
        self.classifier = head
        self.preprocess = preprocess
        self.classes = classes

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(pixels))
        return logits

    def features(self, pixels: Tensor) -> Tensor:
        """The unit-length image embedding, which the head reads."""
        return F.normalize(self.embedding(pixels), dim=-1)

    def embedding(self, pixels: Tensor) -> Tensor:
        """The projected image embedding before it is brought to unit length."""
        output = self.tower(pixel_values=pixels)
        found = getattr(output, "image_embeds", None)
        embedding: Tensor = output.pooler_output if found is None else found
        return embedding

    def save(self, folder: Path) -> None:
        """Write tower and head as one safetensors file, with configuration and preprocessing."""
        from safetensors.torch import load_file, save_file

        folder.mkdir(parents=True, exist_ok=True)
        with quietly():
            self.tower.save_pretrained(folder, max_shard_size="100GB")  # type: ignore[operator]
        weights = load_file(folder / "model.safetensors")
        weights |= {
            f"classifier.{name}": tensor.detach().cpu().contiguous()
            for name, tensor in self.classifier.state_dict().items()
        }
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        config = read_config(folder) | {
            "architectures": [ARCHITECTURE],
            "head": HEAD,
            "id2label": {str(index): name for index, name in enumerate(self.classes)},
            "label2id": {name: index for index, name in enumerate(self.classes)},
        }
        _write(folder / "config.json", config)
        _write(folder / "preprocessor_config.json", self.preprocess.to_hub())


def with_trained_head(model: Classifier) -> None:
    """Turn a zero-shot classifier, in place, into one whose tower and head can both be trained.

    Classifiers with a head of their own stay as they are.
    """
    network = model.network
    if isinstance(network, FineTunedNetwork):
        return
    if not isinstance(network, ZeroShotNetwork):
        if hasattr(network, "head") and isinstance(network.head, Tensor):
            raise UserError(
                f"{model.origin.source}: fine-tuning with a zero-shot head needs a Hugging Face "
                "CLIP or SigLIP model."
            )
        return
    tower = _tower(network.model)
    with torch.no_grad():
        rows = network.scale() * network.head
        offset = getattr(network.model, "logit_bias", None)
        # Without a random start, which would move the caller's random numbers.
        with torch.device("meta"):
            head = nn.Linear(rows.shape[1], rows.shape[0], dtype=rows.dtype)
        head = head.to_empty(device=rows.device)
        head.weight.copy_(rows)
        head.bias.fill_(0.0 if offset is None else float(offset))
    for parameter in tower.parameters():
        parameter.requires_grad_(True)
    model.network = FineTunedNetwork(
        tower, head, network.preprocess, model.classes, TextTower(network)
    )


def _tower(model: Any) -> nn.Module:
    """The image tower of a dual encoder as a model of its own, sharing the same weights."""
    import transformers

    settings = model.config.vision_config
    name = _CLASSES.get(settings.model_type)
    if name is None:
        known = ", ".join(kind.removesuffix("_vision_model") for kind in _CLASSES)
        raise UserError(
            f"fine-tuning with a trained head knows {known}, not {settings.model_type}."
        )
    if hasattr(model, "visual_projection"):
        settings.projection_dim = model.config.projection_dim
        with torch.device("meta"):
            tower: nn.Module = getattr(transformers, name)(settings)
        tower.vision_model, tower.visual_projection = model.vision_model, model.visual_projection
        return tower
    tower = model.vision_model
    if type(tower).__name__ != name:  # before transformers 5.20 the inner module was another class
        with torch.device("meta"):
            outer: nn.Module = getattr(transformers, name)(settings)
        outer.vision_model = tower
        return outer
    return tower


def load_fine_tuned(place: Resolved, *, dtype: str = "float32", name: str = "") -> Classifier:
    """Load a folder that `FineTunedNetwork.save` (or a fusion of such folders) wrote."""
    import transformers
    from safetensors import safe_open

    folder = place.local()
    config = read_config(folder)
    tower = load_weights(getattr(transformers, _CLASSES[config["model_type"]]), folder, dtype=dtype)
    try:
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            weight = file.get_tensor("classifier.weight")
            bias = file.get_tensor("classifier.bias")
    except Exception as problem:
        reason = str(problem).strip().splitlines()[0]
        raise BadCheckpointError(f"{folder} has no head beside its tower: {reason}") from problem
    head = nn.Linear(weight.shape[1], weight.shape[0], dtype=getattr(torch, dtype))
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    labels = class_names({int(index): text for index, text in config["id2label"].items()})
    size, model_type = config.get("image_size", 224), config["model_type"]
    preprocess = from_hub(folder, default_size=size, model_type=model_type)
    network = FineTunedNetwork(tower, head, preprocess, labels).eval()
    origin = Origin(name or place.text, type(tower).__name__, fingerprint_folder(folder))
    return Classifier(network, preprocess, labels, origin)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

"""Zero-shot classifiers: a CLIP or SigLIP dual encoder with a head made from prompts.

Per class every template is embedded by the text tower, normalised, averaged and normalised again;
the logits are the cosine with the image embedding times exp(logit_scale), plus SigLIP's bias.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.errors import BadParameterError, UserError
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.fingerprint import fingerprint_folder
from stockpot.models.huggingface import load_weights, read_config, resolve
from stockpot.models.preprocess import from_hub

DUAL_ENCODERS = ("clip", "siglip", "siglip2")
_TEXT_BATCH = 256


class ZeroShotNetwork(nn.Module):
    """An image tower with its projection, and class embeddings as its head."""

    def __init__(self, model: nn.Module, head: Tensor, source: str) -> None:
        super().__init__()
        self.model = model
        self.source = source
        self.head: Tensor
        self.register_buffer("head", head)

    def forward(self, pixels: Tensor) -> Tensor:
        scale = self.model.logit_scale.exp()  # type: ignore[operator]
        logits = scale * (self.features(pixels) @ self.head.T)
        bias = getattr(self.model, "logit_bias", None)
        return logits if bias is None else logits + bias

    def features(self, pixels: Tensor) -> Tensor:
        """The unit-length image embedding in the joint space."""
        return F.normalize(_embedding(self.model.get_image_features(pixel_values=pixels)), dim=-1)  # type: ignore[operator]

    def save(self, folder: Path) -> None:
        """A zero-shot head depends on its class names, so only the dual encoder can be saved."""
        raise UserError(
            f"{self.source} with a zero-shot head cannot be saved as a classifier.",
            hint="Fine-tune it (`stockpot harden`) or keep the dual encoder's own folder.",
        )


def text_head(
    model: Any, tokenizer: Any, classes: tuple[str, ...], templates: tuple[str, ...]
) -> Tensor:
    """One unit vector per class from all its prompts."""
    for template in templates:
        if "{}" not in template:
            raise BadParameterError(
                f"templates: expected a {{}} for the class name, got {template!r}."
            )
    prompts = [
        template.format(name.replace("_", " ")) for name in classes for template in templates
    ]
    length = getattr(model.config.text_config, "max_position_embeddings", 77)
    embedded = []
    with torch.inference_mode():
        for start in range(0, len(prompts), _TEXT_BATCH):
            tokens = tokenizer(
                prompts[start : start + _TEXT_BATCH],
                # SigLIP was trained on prompts padded to the full length.
                padding="max_length" if "siglip" in model.config.model_type else True,
                truncation=True,
                max_length=length,
                return_tensors="pt",
            )
            embedded.append(F.normalize(_embedding(model.get_text_features(**tokens)), dim=-1))
    per_class = torch.cat(embedded).view(len(classes), len(templates), -1).mean(dim=1)
    return F.normalize(per_class, dim=-1).clone()


def load_zero_shot(
    source: str,
    *,
    classes: tuple[str, ...],
    templates: tuple[str, ...] = ("a photo of a {}.",),
    revision: str | None = None,
    dtype: str = "float32",
    name: str = "",
) -> Classifier:
    """Load a dual encoder and make its head for these class names."""
    from transformers import AutoModel, AutoTokenizer

    folder = resolve(source, revision=revision)
    config = read_config(folder)
    model = load_weights(AutoModel, folder, dtype=dtype).eval()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(
            f"{source} has no usable tokenizer, which a zero-shot head needs: {reason}"
        ) from problem
    size = config.get("vision_config", {}).get("image_size", 224)
    preprocess = from_hub(folder, default_size=size)
    network = ZeroShotNetwork(model, text_head(model, tokenizer, classes, templates), source)
    origin = Origin(name or source, type(model).__name__, fingerprint_folder(folder))
    return Classifier(network, preprocess, classes, origin)


def _embedding(output: Any) -> Tensor:
    # transformers 5 wraps the projected embedding in an output object; 4.x gave the tensor.
    embedding: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return embedding

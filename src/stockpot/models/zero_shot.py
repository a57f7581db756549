"""Zero-shot classifiers: a CLIP or SigLIP dual encoder with a head made from prompts.

The logits are the cosine of image and class embedding times exp(logit_scale), plus SigLIP's bias.
Training such a classifier moves its vision tower only: head, text tower, projections and scale
stay as they were, as they do for the experts of model merging. Methods that train both towers ask
for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.checkpoints.resolve import Resolved
from stockpot.datasets.words.words import Words, said
from stockpot.errors import UserError
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.config import is_vision_tower, read_config
from stockpot.models.fingerprint import fingerprint_model
from stockpot.models.huggingface import load_weights
from stockpot.models.preprocess import Preprocess, from_hub
from stockpot.models.prompts import Captions, Prompts
from stockpot.models.text_head import embedding, text_head, text_identity
from stockpot.models.vision_tower import (
    dual_encoder_of,
    place_vision_tower,
    save_dual_encoder,
    save_vision_tower,
)


class ZeroShotNetwork(nn.Module):
    """An image tower with its projection, and class embeddings as its head."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        preprocess: Preprocess,
        prompts: Prompts,
        base: str,
        identity: str = "",
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.preprocess = preprocess
        self.prompts = prompts
        self.base = base
        """Where the text tower lies, as a text that means the same from any folder; empty where it
        does not last."""
        self.trains_text = False
        self.identity = identity or text_identity(model, tokenizer)
        self.head: Tensor
        self.register_buffer("head", text_head(model, tokenizer, prompts, self.identity))
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        for parameter in self.vision_tower.parameters():
            parameter.requires_grad_(True)

    @property
    def vision_tower(self) -> nn.Module:
        """The part that fine-tuning changes and fusion fuses."""
        tower: nn.Module = self.model.vision_model  # type: ignore[assignment]
        return tower

    def forward(self, pixels: Tensor) -> Tensor:
        return self.logits(self.features(pixels))

    def features(self, pixels: Tensor) -> Tensor:
        """The unit-length image embedding in the joint space."""
        return F.normalize(embedding(self.model.get_image_features(pixel_values=pixels)), dim=-1)  # type: ignore[operator]

    def logits(self, features: Tensor) -> Tensor:
        """From unit-length image embeddings to the classes of the head."""
        # Mixed precision would leave a cosine two digits, too few for a scale of up to 100.
        with torch.autocast(features.device.type, enabled=False):
            logits = self.scale() * (features.to(self.head.dtype) @ self.head.T)
        bias = getattr(self.model, "logit_bias", None)
        return logits if bias is None else logits + bias

    def text_features(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Unit-length embeddings of captions."""
        output = self.model.get_text_features(input_ids=tokens, attention_mask=mask)  # type: ignore[operator]
        return F.normalize(embedding(output), dim=-1)

    def scale(self) -> Tensor:
        """What cosines are multiplied with."""
        factor: Tensor = self.model.logit_scale.exp()  # type: ignore[operator]
        return factor

    @property
    def captions(self) -> Captions:
        """The prompts as tokens, for training on them; `train_both_towers` makes them."""
        captions = self._modules.get("_captions")
        if not isinstance(captions, Captions):
            raise UserError(f"{self.base}: its text tower is frozen; this method trains none.")
        return captions

    def train_both_towers(self) -> None:
        """Let training change every weight of the dual encoder, on the prompts as captions."""
        self.trains_text = True
        self._captions = Captions(self.prompts, self.tokenizer, self.model.config).to(
            self.head.device
        )
        for parameter in self.model.parameters():
            parameter.requires_grad_(True)

    def renew_head(self) -> None:
        """Make the head again, after training has changed the text tower."""
        self.identity = text_identity(self.model, self.tokenizer)
        self.head.copy_(text_head(self.model, self.tokenizer, self.prompts, self.identity))

    def save(self, folder: Path) -> None:
        """Write the vision tower with a note of its dual encoder, or all of it if all changed."""
        if self.trains_text or not self.base:
            save_dual_encoder(self.model, self.tokenizer, self.preprocess, folder)
        else:
            save_vision_tower(self.vision_tower, self.preprocess, self.base, folder)


def with_classes(model: Classifier, classes: tuple[str, ...], words: Words) -> Classifier:
    """The same dual encoder with the head of other classes; both share the weights."""
    network = model.network
    if not isinstance(network, ZeroShotNetwork):
        raise UserError(f"{model.origin.source} is no dual encoder: its classes are its own.")
    other = ZeroShotNetwork(
        network.model,
        network.tokenizer,
        network.preprocess,
        words.prompts,
        network.base,
        network.identity,
    )
    return Classifier(other, model.preprocess, classes, model.origin).eval()


def load_zero_shot(
    place: Resolved,
    *,
    classes: tuple[str, ...] | None = None,
    names: tuple[str, ...] | None = None,
    templates: tuple[str, ...] = ("a photo of a {}.",),
    prompts: Prompts | None = None,
    dual_encoder: str | None = None,
    dtype: str = "float32",
    name: str = "",
) -> Classifier:
    """Load a dual encoder, or a vision tower into its dual encoder, and make its head.

    Args:
        place: a folder or hub id.
        classes: the classes of the head.
        names: how the classes are called in prompts, where not as they are.
        templates: prompts with `{}` for the name.
        prompts: for each class all its prompts, instead of templates.
        dual_encoder: where the text tower of a lone vision tower is; by default what it says.
        dtype: of the weights in memory.
        name: how messages call it.
    """
    from transformers import AutoModel, AutoTokenizer

    if classes is None:
        raise UserError(
            f"{place.text} is a dual encoder without a head: its classes come from the data.",
            hint="Give classes=..., or measure it with --data.",
        )
    folder = place.local()
    tower = is_vision_tower(read_config(folder))
    own = "" if place.passing else place.lasting
    home, base = dual_encoder_of(folder, dual_encoder) if tower else (folder, own)
    model = load_weights(AutoModel, home, dtype=dtype).eval()
    if tower:
        place_vision_tower(model, folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(home)
    except (OSError, ValueError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(
            f"{place.text} has no usable tokenizer, which a zero-shot head needs: {reason}"
        ) from problem
    whole = read_config(home)
    size, model_type = whole.get("vision_config", {}).get("image_size", 224), whole["model_type"]
    preprocess = from_hub(home, default_size=size, model_type=model_type)
    chosen = tuple(map(tuple, prompts)) if prompts else said(classes, names, templates).prompts
    network = ZeroShotNetwork(model, tokenizer, preprocess, chosen, base)
    origin = Origin(
        name or place.text, type(model).__name__, fingerprint_model(folder, dual_encoder)
    )
    return Classifier(network, preprocess, tuple(classes), origin)

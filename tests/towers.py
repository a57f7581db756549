"""Pico vision transformers of every family that relevance knows."""

from __future__ import annotations

import torch
from torch import nn

from stockpot.models.classifier import Classifier, Origin
from stockpot.models.huggingface import HuggingFaceNetwork
from stockpot.models.preprocess import Preprocess
from stockpot.models.zero_shot import ZeroShotNetwork
from stockpot.types import ImageSize

SIDE = ImageSize(16, 16)
PLAIN = Preprocess(SIDE, SIDE, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
CLASSES = ("ant", "bee", "cat", "dog")
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
VISION = {**SMALL, "image_size": 16, "patch_size": 4}
TEXT = {**SMALL, "vocab_size": 300, "max_position_embeddings": 12, "eos_token_id": 2}


def classifier(network: nn.Module) -> Classifier:
    return Classifier(network, PLAIN, CLASSES, Origin("pico", "Pico", "0" * 64)).eval()


def of_hub(kind: str, **settings: object) -> Classifier:
    from transformers import AutoConfig, AutoModelForImageClassification

    config = AutoConfig.for_model(kind, num_labels=4, **settings)
    model = _lively(lambda: AutoModelForImageClassification.from_config(config))
    return classifier(HuggingFaceNetwork(model, PLAIN))


def tokenizer() -> object:
    from stockpot.models.dual_encoder import new_tokenizer

    return new_tokenizer((f"a photo of a {name}." for name in CLASSES), 300, 12)


def dual(kind: str, layers: int = 3) -> Classifier:
    from transformers import AutoConfig, AutoModel

    few = {"num_hidden_layers": layers}
    towers = {"vision_config": VISION | few, "text_config": TEXT | few}
    config = AutoConfig.for_model(kind, **towers, projection_dim=8)
    model = _lively(lambda: AutoModel.from_config(config))
    prompts = tuple((f"a photo of a {name}.",) for name in CLASSES)
    return classifier(ZeroShotNetwork(model, tokenizer(), PLAIN, prompts, "pico"))


def deit(name: str) -> Classifier:
    import transformers

    config = transformers.DeiTConfig(num_labels=4, **VISION)
    model = _lively(lambda: getattr(transformers, name)(config))
    return classifier(HuggingFaceNetwork(model, PLAIN))


def _lively(build) -> nn.Module:
    """Weights large enough that attention is far from uniform."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build()
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.data = torch.randn_like(parameter) * 0.3
    return model.eval()


def two_towers(layers: int = 3) -> Classifier:
    """A dual encoder of which everything is trained."""
    model = dual("clip", layers)
    assert isinstance(model.network, ZeroShotNetwork)
    model.network.train_both_towers()
    return model


FAMILIES = {
    "vit": lambda: of_hub("vit", **VISION),
    "deit": lambda: deit("DeiTForImageClassification"),
    "deit with teacher": lambda: deit("DeiTForImageClassificationWithTeacher"),
    "clip zero-shot": lambda: dual("clip"),
    "siglip zero-shot": lambda: dual("siglip"),
    "clip classifier": lambda: of_hub("clip", vision_config=VISION, text_config=TEXT),
    "siglip classifier": lambda: of_hub("siglip", vision_config=VISION, text_config=TEXT),
}

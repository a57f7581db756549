"""Lipsum-FT: keep what images and random texts have in common (Nam et al., arXiv:2404.00860)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from stockpot.datasets.dataset import Dataset
from stockpot.errors import UserError
from stockpot.harden import hardeners
from stockpot.harden.counterfactual.distil import frozen
from stockpot.harden.objective import Objective, Step
from stockpot.models.classifier import Classifier
from stockpot.models.fine_tuned import FineTunedNetwork, TextTower
from stockpot.types import Count, NonNegative


@hardeners.register(
    "lipsum_ft",
    paper="arXiv:2404.00860",
    head="trained",
    texts=True,
    whole="it keeps the whole model as it started",
)
def lipsum_ft(*, texts: Count = 80, length: Count = 8, weight: NonNegative = 1.0) -> Objective:
    """Cross-entropy plus how far image-text logits on random texts have moved from the start's.

    Every step draws texts of random tokens. The penalty is the squared change of the logits of the
    images with them, over twice the number of texts, mean over images.

    Args:
        texts: random texts in a step.
        length: tokens of a text, besides its beginning and end.
        weight: of the penalty.
    """
    return RandomTexts(texts, length, weight)


@dataclass
class RandomTexts:
    """The objective, with the model as it started and its text tower."""

    texts: int
    length: int
    weight: float
    start: Classifier | None = None
    tower: TextTower | None = None
    plain: Tensor = field(default_factory=lambda: torch.empty(0))
    """The tokens that stand for something."""

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """Keep a copy of the model, and find the text tower that belongs to it."""
        network = model.network
        self.tower = network.texts if isinstance(network, FineTunedNetwork) else None
        if self.tower is None:
            raise UserError(
                f"{model.origin.source}: Lipsum-FT needs the dual encoder itself, whose text tower "
                "reads the random texts.",
                hint="Start from a CLIP or SigLIP folder, not from a tower that was fine-tuned.",
            )
        tokenizer = self.tower.network.tokenizer
        special = set(tokenizer.all_special_ids)
        self.plain = torch.tensor([i for i in range(len(tokenizer)) if i not in special])
        self.start = frozen(model)

    def __call__(self, step: Step) -> Tensor:
        features = step.model.features(step.pixels)
        head = step.model.network.classifier
        loss = F.cross_entropy(head(features), step.labels)  # type: ignore[operator]
        if not self.weight or self.start is None or self.tower is None:
            return loss
        network = self.tower.network
        with torch.no_grad():
            before = self.start.features(step.pixels)
            said = network.text_features(*self.random_texts(step.generator))
            scale = network.scale()
        return loss + self.weight * energy_gap(features, before, scale * said)

    def random_texts(self, generator: Generator) -> tuple[Tensor, Tensor]:
        """Tokens and mask of texts that mean nothing."""
        assert self.tower is not None
        network = self.tower.network
        tokenizer, config = network.tokenizer, cast(Any, network.model.config)
        most = getattr(config.text_config, "max_position_embeddings", 77) - 2
        shape = (self.texts, min(self.length, most))
        drawn = self.plain[torch.randint(len(self.plain), shape, generator=generator)]
        first, last = tokenizer.bos_token_id, tokenizer.eos_token_id
        ends = [torch.full((self.texts, 1), end) for end in (first, last) if end is not None]
        tokens = torch.cat([*ends[:-1], drawn, *ends[-1:]], dim=1).to(network.head.device)
        return tokens, torch.ones_like(tokens)


def energy_gap(features: Tensor, before: Tensor, texts: Tensor) -> Tensor:
    """The squared change of image-text products over twice the number of texts, mean over images.

    Args:
        features: unit-length image embeddings now.
        before: those of the start.
        texts: text embeddings times the logit scale.
    """
    # In bfloat16 a cosine has two digits, too few for a difference of two of them.
    with torch.autocast(features.device.type, enabled=False):
        change = (features.float() - before.float()) @ texts.float().T
    return change.square().sum(dim=1).mean() / (2 * len(texts))

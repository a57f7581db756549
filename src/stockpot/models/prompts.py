"""What a text tower reads: the prompts of each class, as text and as tokens.

A dataset's words (`datasets/words`) give the prompts, unless it states captions itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

Prompts = tuple[tuple[str, ...], ...]
"""For each class, everything that may be said of its pictures."""


def tokenize(tokenizer: Any, config: Any, texts: list[str]) -> dict[str, Tensor]:
    """Texts as the text tower of a dual encoder wants them."""
    tokens: dict[str, Tensor] = tokenizer(
        texts,
        # SigLIP was trained on prompts padded to the full length.
        padding="max_length" if "siglip" in config.model_type else True,
        truncation=True,
        max_length=getattr(config.text_config, "max_position_embeddings", 77),
        return_tensors="pt",
    )
    return dict(tokens)


class Drawn(NamedTuple):
    """One caption for each picture of a batch."""

    tokens: Tensor
    mask: Tensor
    identity: Tensor
    """Equal numbers are equal captions."""


class Captions(nn.Module):
    """All prompts of all classes as tokens, from which a batch draws one per picture."""

    def __init__(self, prompts: Prompts, tokenizer: Any, config: Any) -> None:
        super().__init__()
        texts = sorted({text for entry in prompts for text in entry})
        number = {text: index for index, text in enumerate(texts)}
        tokens = tokenize(tokenizer, config, texts)
        ids = tokens["input_ids"]
        self.tokens: Tensor
        self.mask: Tensor
        self.choices: Tensor
        self.counts: Tensor
        # Not saved: they follow from the prompts and the tokenizer.
        self.register_buffer("tokens", ids, persistent=False)
        mask = tokens.get("attention_mask", torch.ones_like(ids))
        self.register_buffer("mask", mask, persistent=False)
        widest = max(len(entry) for entry in prompts)
        rows = [[number[text] for text in entry] for entry in prompts]
        padded = torch.tensor([row + [0] * (widest - len(row)) for row in rows])
        self.register_buffer("choices", padded, persistent=False)
        counts = torch.tensor([len(row) for row in rows])
        self.register_buffer("counts", counts, persistent=False)

    def draw(self, labels: Tensor, generator: Generator) -> Drawn:
        """A caption for each label; drawn on the CPU, so that a seed means the same anywhere."""
        chance = torch.rand(len(labels), generator=generator).to(labels.device)
        which = (chance * self.counts[labels]).long().clamp(max=self.choices.shape[1] - 1)
        identity = self.choices[labels, which]
        return Drawn(self.tokens[identity], self.mask[identity], identity)

"""TPT: test-time prompt tuning of a dual encoder (Shu et al., NeurIPS 2022, arXiv:2209.07511).

For each picture the words before the class name, as vectors, take one step down the entropy of the
mean prediction over the surest of many views; the picture is then answered with these words, and
they are forgotten. Image tower and text tower stay as they are.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from stockpot.defend import defences
from stockpot.defend.adapt.adapting import Adapting
from stockpot.defend.adapt.learner import Learner
from stockpot.defend.adapt.losses import entropy, marginal_entropy
from stockpot.defend.episodic.crops import crops
from stockpot.errors import BadParameterError, UserError
from stockpot.models.classifier import Classifier
from stockpot.models.prompts import tokenize
from stockpot.models.text_head import embedding
from stockpot.models.zero_shot import ZeroShotNetwork
from stockpot.types import Count, Fraction01, Positive


@defences.register("tpt", paper="arXiv:2209.07511", adapts=True)
def tpt(
    model: Classifier,
    *,
    context: str = "a photo of a",
    views: Count = 64,
    share: Fraction01 = 0.1,
    steps: Count = 1,
    lr: Positive = 0.005,
) -> Classifier:
    """Tune the words of the prompt for each picture until its surest views agree.

    Args:
        context: the words before a class name; they are where tuning begins.
        views: of each picture, itself among them.
        share: of the views that are learned from, the surest first.
        steps: of AdamW.
        lr: their size.
    """
    if not isinstance(model.network, ZeroShotNetwork):
        raise UserError(
            f"tpt: expected a dual encoder such as CLIP, whose prompts can be tuned, got "
            f"{model.origin.source}.",
            hint="zero votes over views of any model.",
        )
    about = f"context={context!r}, views={views}, share={share:g}, steps={steps}, lr={lr:g}"

    def make(inner: Classifier, chance: Generator) -> Learner:
        return _Tpt(inner, Prompt(inner, context), chance, views, share, steps, lr)

    return Adapting(model, f"tpt({about})", make, None)


class Prompt:
    """One prompt for each class, whose first words are vectors that can be tuned."""

    def __init__(self, model: Classifier, context: str) -> None:
        network = model.network
        if not isinstance(network, ZeroShotNetwork):
            raise TypeError("prompts are those of a dual encoder")
        self.network = network
        named = [f"{context} {name.replace('_', ' ')}." for name in model.classes]
        tower: Any = network.model
        tokens = tokenize(network.tokenizer, tower.config, named)
        self.tokens = {name: value.to(network.head.device) for name, value in tokens.items()}
        self.table: nn.Embedding = tower.text_model.embeddings.token_embedding
        ids = self.tokens["input_ids"]
        # Between the start and the end of the context as it is read alone, behind the same start.
        alone = tokenize(network.tokenizer, tower.config, [context])["input_ids"][0].to(ids)
        length = min(len(alone), ids.shape[1])
        count = int((alone[:length] == ids[:, :length]).all(0).cumprod(0).sum()) - 1
        if count < 1:
            raise BadParameterError(f"context: expected words that can be tuned, got {context!r}.")
        self.given = self.table(ids[0, 1 : 1 + count]).detach().clone()

    def head(self, words: Tensor) -> Tensor:
        """The class vectors under these words."""

        def replaced(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
            shown = words.expand(len(output), -1, -1)
            return torch.cat([output[:, :1], shown, output[:, 1 + len(words) :]], 1)

        handle = self.table.register_forward_hook(replaced)
        try:
            tower: Any = self.network.model
            return F.normalize(embedding(tower.get_text_features(**self.tokens)), dim=-1)
        finally:
            handle.remove()

    def logits(self, features: Tensor, words: Tensor) -> Tensor:
        """Of unit-length image embeddings."""
        logits = self.network.scale() * (features @ self.head(words).T)
        bias = getattr(self.network.model, "logit_bias", None)
        return logits if bias is None else logits + bias


class _Tpt(Learner):
    def __init__(
        self,
        model: Classifier,
        prompt: Prompt,
        chance: Generator,
        views: int,
        share: float,
        steps: int,
        lr: float,
    ) -> None:
        super().__init__(model)
        self.prompt, self.chance = prompt, chance
        self.views, self.share, self.steps, self.lr = views, share, steps, lr

    def __call__(self, pixels: Tensor) -> Tensor:
        pixels = pixels if pixels.is_floating_point() else pixels.float() / 255
        return torch.stack([self._answer(crops(each, self.views, self.chance)) for each in pixels])

    def _answer(self, views: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.model.features(views)
        words = self.prompt.given.clone().requires_grad_(True)
        optimiser = torch.optim.AdamW([words], lr=self.lr)
        sure: Tensor | None = None
        for _ in range(self.steps):
            logits = self.prompt.logits(features, words)
            if sure is None:
                count = max(1, int(len(logits) * self.share))
                sure = entropy(logits.detach()).argsort(stable=True)[:count]
            if not self.descend(marginal_entropy(logits[sure]), optimiser):
                break
        with torch.no_grad():
            return self.prompt.logits(features[:1], words)[0]

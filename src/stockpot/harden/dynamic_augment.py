"""Training on images that a generator makes against the model as it is (arXiv:2308.10632, app. G).

There the images were made once, against the starting weights. Here every batch is searched against
the weights of that moment, so the training meets what it has not learned yet.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stockpot.attack.victim import evaluation_mode
from stockpot.datasets.dataset import Dataset, is_fitted
from stockpot.dynamic.generator import Generator
from stockpot.dynamic.generators import GeneratorRef, generators
from stockpot.dynamic.oracle import Oracle, RuleText, Setting, parse_rule
from stockpot.dynamic.oracles import NO_ORACLE, OracleRef, oracles
from stockpot.dynamic.search import search
from stockpot.dynamic.task import Rules, Task
from stockpot.harden import hardeners
from stockpot.harden.adversarial.worst import image_seeds
from stockpot.harden.objective import Objective, Step
from stockpot.models.classifier import Classifier
from stockpot.types import Count, NonNegative


class DynamicAugment:
    """Cross-entropy on images and on what was made of them, and agreement between the two."""

    def __init__(
        self,
        generator: Generator,
        oracle: tuple[str, dict[str, Any]],
        rules: Rules,
        weight: float,
        every: int,
    ) -> None:
        self.generator = generator
        self.rules = rules
        self.weight = weight
        self.every = every
        self._chosen = oracle
        self._oracle: Oracle | None = None

    def begin(self, model: Classifier, data: Dataset, validation: Dataset | None) -> None:
        """Make the oracle for the data's classes, where one is asked for."""
        name, params = self._chosen
        self.generator.to(model.device)
        if name != NO_ORACLE:
            setting = Setting(
                data.classes, data.templates, model.device, data.name, data.vocabulary,
                cropped=is_fitted(data.images),
            )  # fmt: skip
            self._oracle = oracles.get(name)(setting, **params)

    def __call__(self, step: Step) -> Tensor:
        """The loss of one batch."""
        clean = step.model(step.pixels)
        loss = F.cross_entropy(clean, step.labels)
        if step.number % self.every:
            return loss
        made = self._search(step)
        changed = step.model(made)
        gap = (clean.float() - changed.float()).square().sum(dim=1).mean()
        return torch.as_tensor(loss + F.cross_entropy(changed, step.labels) + self.weight * gap)

    def _search(self, step: Step) -> Tensor:
        task = Task(step.model, self.generator, self._oracle, self.rules)
        seeds = image_seeds(step)
        with evaluation_mode(step.model):
            found = search(task, step.pixels.detach(), step.labels, step.labels, seeds=seeds)
        return found.images.detach()


@hardeners.register(
    "dynamic_augment",
    paper="arXiv:2308.10632",
    whole="its search asks the model a different number of times in every process",
)
def dynamic_augment(
    *,
    generator: GeneratorRef = "vqgan",
    generator_params: dict[str, Any] | None = None,
    oracle: OracleRef = NO_ORACLE,
    oracle_params: dict[str, Any] | None = None,
    rule: RuleText = "argmax",
    budget: Count = 5,
    step: NonNegative | None = None,
    weight: NonNegative = 0.01,
    every: Count = 1,
) -> Objective:
    """Learn from images that a generator makes against the model, and answer alike on both.

    Args:
        generator: a name from `stockpot list generators`.
        generator_params: its parameters.
        oracle: who must still accept the class, from `stockpot list oracles`; `none` trusts the
            label, which a short search seldom breaks.
        oracle_params: its parameters.
        rule: when the oracle accepts.
        budget: candidates per image.
        step: in the generator's latents; its own when left out.
        weight: of the squared distance between the logits on an image and on what was made of it.
        every: make images on every so-many-th batch, and train plainly on the others.
    """
    maker = generators.get(generator)(**(generator_params or {}))
    rules = Rules(budget=budget, step=maker.step if step is None else step, accept=parse_rule(rule))
    return DynamicAugment(maker, (oracle, oracle_params or {}), rules, weight, every)

"""What is done about a model that seems to hide: other searches, of which the worst counts.

Each is a search by the same rules: the same first candidate, steps, budget and oracle. They differ
in how a step is found. An image falls if one of them makes an accepted image of it that the model
gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from stockpot.dynamic.search import Batch
from stockpot.dynamic.task import Rules
from stockpot.dynamic.ways.evolution import Evolution
from stockpot.dynamic.ways.straight_through import StraightThroughGradient
from stockpot.dynamic.ways.transfer import Transfer
from stockpot.dynamic.ways.way import Gradient, Way
from stockpot.measure.dynamic.outcomes import Outcomes
from stockpot.measure.dynamic.signs import Signs
from stockpot.results.schema import Score

Hiding = Literal["answer", "flag"]
SIGNS = ("zero", "faint", "still", "recognised", "answered", "ways", "plainly")
"""What is written down of every image. `plainly`: it withstood the gradient; `answered`: it fell
only afterwards, to the way whose number stands in `ways`."""
_DRAWS = 8
"""Answers that are averaged for every look at a model that throws dice."""
_STEPS = 5
"""So many steps should change a code."""
_OWN = ("rows", "correct", "covered", "known", "before", *SIGNS)
"""What the first search has said, and no later one changes."""
_STAGE = "perturbed_accuracy_after"
_ADDED = ("model_queries", "oracle_queries")


class Hunt(Protocol):
    """Searches a batch in some way and writes down what happened to every image."""

    def __call__(self, batch: Batch, way: Way) -> dict[str, Tensor]:
        """One row for each image."""
        ...


@dataclass(frozen=True)
class Answer:
    """A further way to search."""

    way: Way
    everywhere: bool = False
    """For all images, or only where the search before it gave a sign."""


@dataclass(frozen=True)
class Answers:
    """Further searches, one after the other; each is for images that have not fallen before."""

    ways: Sequence[Answer] = ()

    @property
    def convention(self) -> str:
        """What is searched where a sign is up, at which cost for each candidate."""
        if not self.ways:
            return ""
        told = [
            f"{answer.way.name} ({answer.way.passes + answer.way.probes} queries a step)"
            for answer in self.ways
        ]
        return f"; where a model hides, the worst of gradient, {', '.join(told)}"

    def scores(
        self, seen: Mapping[str, NDArray[Any]], found: Outcomes, condition: Mapping[str, str]
    ) -> list[Score]:
        """The perturbed accuracy after each search, the first of which is the gradient's alone."""
        kept = found.validated
        if not (seen["answered"].any() and kept.any()):
            return []
        where = {**condition, "way": "gradient"}
        stages = [found.share(_STAGE, seen["plainly"], where, kept)]
        for number, answer in enumerate(self.ways, 1):
            later = seen["ways"] > number
            where = {**condition, "way": answer.way.name}
            stages.append(found.share(_STAGE, found.withstood | later, where, kept))
        return stages

    def notes(self, seen: Mapping[str, NDArray[Any]], found: Outcomes) -> list[str]:
        """How far the gradient's score and the one that counts are apart."""
        kept, right = found.validated, float(found.correct.mean())
        if not (seen["answered"].any() and kept.any() and right):
            return []
        alone, worst = float(seen["plainly"][kept].mean()), float(found.withstood[kept].mean())
        by = {
            each.way.name: int((seen["ways"] == at).sum()) for at, each in enumerate(self.ways, 1)
        }
        told = ", ".join(f"{name} {count}" for name, count in by.items() if count)
        return [
            f"the gradient alone would have given a perturbed accuracy of {100 * alone:.1f} % and "
            f"an FMR of {100 * alone / right:.1f} %; with the other searches (images that fell to "
            f"each: {told}) it is {100 * worst:.1f} % and {100 * worst / right:.1f} %"
        ]


NO_ANSWERS = Answers()


def answers_to(
    signs: Signs, hiding: Hiding, pairs: int, twin: Callable[[Tensor], Tensor] | None
) -> Answers:
    """The ways to search besides the gradient's."""
    draws = _DRAWS if signs.randomised else 1
    ways: list[Answer] = []
    if hiding == "answer":
        ways.append(Answer(StraightThroughGradient(draws, signs.softmax), signs.doubtful))
        ways.append(Answer(Evolution(pairs, draws), signs.hopeless))
    if twin is not None:
        ways.append(Answer(Transfer(twin), everywhere=True))
    return Answers(tuple(ways))


def answered(hunt: Hunt, batch: Batch, answers: Answers, rules: Rules) -> dict[str, Tensor]:
    """Search by the gradient, then in other ways where that is called for; the worst counts."""
    facts = hunt(batch, Gradient())
    facts["still"] = _still(facts, rules)
    facts["plainly"] = facts["withstood"].clone()
    facts["answered"] = torch.zeros_like(facts["withstood"])
    facts["ways"] = torch.zeros_like(facts["rows"])
    doubted = facts["zero"] | facts["faint"] | facts["still"]
    for number, answer in enumerate(answers.ways, 1):
        asked = torch.ones_like(doubted) if answer.everywhere else doubted
        places = (asked & ~(facts["validated"] & ~facts["withstood"])).nonzero()[:, 0]
        if not len(places):
            continue
        again = hunt(Batch(*(each[places.to(each.device)] for each in batch)), answer.way)
        fallen = again["validated"] & ~again["withstood"]
        for name in _ADDED:
            facts[name][places] += again[name]
        for name in set(again) - set(_OWN) - set(_ADDED):
            facts[name][places[fallen]] = again[name][fallen]
        facts["ways"][places[fallen]] = number
        facts["answered"][places[fallen]] = True
        # Where this search had a slope to follow all along, the image hides no longer.
        doubted[places] = again["zero"] | again["faint"] | _still(again, rules)
    return facts


def _still(facts: Mapping[str, Tensor], rules: Rules) -> Tensor:
    """Images that no code of which has changed after several steps."""
    went_on = facts["accepted"] - rules.unmoved >= _STEPS
    return went_on & (facts["flips"] == 0) & facts["withstood"]

"""The measure `oracle_audit`: would this model make a good oracle?

The model is looked at as the one who judges: how often it accepts images as they are, images that a
generator only gave back, and images that a search made against the model itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from stockpot.datasets.dataset import Dataset
from stockpot.dynamic.generators import GeneratorRef, generators
from stockpot.dynamic.oracle import Rule, RuleText, Setting, parse_rule
from stockpot.dynamic.oracles.networks import NetworkOracle
from stockpot.dynamic.task import Rules, Task
from stockpot.measure import measures
from stockpot.measure.dynamic.about import about_generator, first_images
from stockpot.measure.dynamic.evaluate import evaluate
from stockpot.measure.measurement import Context, Measurement
from stockpot.models.classifier import Classifier
from stockpot.score.scorer import scorer_for
from stockpot.types import Count, NonNegative


@measures.register("oracle_audit", paper="arXiv:2308.10632")
def oracle_audit(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    generator: GeneratorRef = "vqgan",
    generator_params: dict[str, Any] | None = None,
    rule: RuleText = "argmax",
    budget: Count = 20,
    step: NonNegative | None = None,
    precision: Literal["fp32", "bf16"] = "fp32",
) -> Measurement:
    """How far a model can be trusted as an oracle: on images, reconstructions, and searched ones.

    Args:
        generator: as for `dynamic`.
        generator_params: its parameters.
        rule: when an image counts as accepted.
        budget: candidates of the search against the model.
        step: of that search; the generator's own when left out.
        precision: `bf16` searches in bfloat16.
    """
    # Only the classes of the data are offered to an oracle.
    scorer = scorer_for(model.classes, data, "subset")
    maker = generators.get(generator)(**(generator_params or {})).to(context.device)
    oracle = NetworkOracle(model, Setting(data.classes, data.templates, context.device), "itself")
    rules = Rules(
        budget=1,
        step=maker.step if step is None else step,
        accept=parse_rule(rule),
        precision=precision,
    )
    judged = Task(model, maker, oracle, rules)
    rebuilt = evaluate(model, data, judged, scorer, context, place="given_back")
    alone = Task(model, maker, None, replace(rules, budget=budget, accept=Rule("argmax")))
    hunted = evaluate(model, data, alone, scorer, context, place="searched")
    given_back, searched = rebuilt.outcomes, hunted.outcomes
    condition = {"generator": generator}
    scores = [
        given_back.share("accuracy", given_back.covered, condition),
        given_back.share("reconstruction_accuracy", given_back.validated, condition),
        searched.share("searched_accuracy", searched.withstood, condition),
    ]
    for index, name in enumerate(data.classes):
        own = given_back.of(given_back.labels == index)
        if len(own.labels):
            where = {**condition, "class": name}
            scores.append(own.share("class_accuracy", own.covered, where))
            scores.append(own.share("class_validation_rate", own.validated, where))
    return Measurement(
        scores=scores,
        convention=f"oracle:{rules.accept} among the data's classes; search against itself, "
        f"adam step {rules.step:g}, budget {budget}, no oracle",
        images=sum(each.model_queries + each.oracle_queries for each in (rebuilt, hunted)),
        notes=tuple(about_generator(judged, model, data, first_images(model, data, context))),
        outcomes={
            "correct": given_back.covered,
            "validated": given_back.validated,
            "withstood": searched.withstood,
        },
        class_space=scorer.description,
    )

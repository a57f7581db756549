"""The measure `dynamic`: how much of its accuracy a model keeps on images made against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from stockpot.datasets.dataset import Dataset, is_fitted
from stockpot.dynamic.generator import PixelClamp
from stockpot.dynamic.generators import GeneratorRef, generators
from stockpot.dynamic.kinship import refuse_kin, refuse_twin
from stockpot.dynamic.masks import PUBLISHED_STRENGTH, Mask, Variant, fit_mask, latents_of
from stockpot.dynamic.oracle import Oracle, RuleText, Setting, Vocabulary, parse_rule
from stockpot.dynamic.oracles import NO_ORACLE, OracleRef, oracles
from stockpot.dynamic.oracles.human import HumanOracle
from stockpot.dynamic.steps import StepRule
from stockpot.dynamic.task import First, Keep, Reading, Rules, Task
from stockpot.errors import BadParameterError
from stockpot.measure import measures
from stockpot.measure.dynamic.about import (
    about_generator,
    about_oracle,
    among,
    first_images,
    with_vocabulary,
)
from stockpot.measure.dynamic.answers import Hiding, answers_to
from stockpot.measure.dynamic.evaluate import evaluate
from stockpot.measure.dynamic.gallery import gallery
from stockpot.measure.dynamic.outcomes import by_class, curve, headline
from stockpot.measure.dynamic.publish import publish
from stockpot.measure.dynamic.signs import flags_of, look_for_signs
from stockpot.measure.measurement import Context, Measurement
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_for
from stockpot.models.shipped.answers import want_gradients
from stockpot.results.schema import Score
from stockpot.results.trust import UNAUDITED
from stockpot.score.class_space import ClassSpace, match_classes
from stockpot.score.scorer import Scorer, scorer_for
from stockpot.stages import stage
from stockpot.types import Count, ModelRef, Natural, NonNegative

EMPTY_MASK = (
    "the sparse mask is empty: nothing moves, and the images are plain reconstructions; a smaller "
    "sparse_penalty lets some latents move"
)
_SAVED = (
    "correct",
    "covered",
    "known",
    "validated",
    "reconstructed",
    "perturbed",
    "moved",
    "withstood",
)
"""What a result file holds of every image."""


@measures.register("dynamic", paper="arXiv:2308.10632", splits=True)
def dynamic(
    model: Classifier,
    data: Dataset,
    context: Context,
    *,
    generator: GeneratorRef = "vqgan",
    generator_params: dict[str, Any] | None = None,
    oracle: OracleRef = "zero_shot",
    oracle_params: dict[str, Any] | None = None,
    vocabulary: Vocabulary = "data",
    rule: RuleText = "argmax",
    budget: Count = 50,
    step: NonNegative | None = None,
    optimiser: StepRule = "adam",
    reading: Reading = "trajectory",
    first: First = "reconstruction",
    keep: Keep = "last",
    backtrack: Natural = 0,
    restarts: Count = 1,
    fgsm: NonNegative = 0.0,
    pixel_clamp: PixelClamp = "straight",
    sparse: Literal["no", "settled", "paper"] = "no",
    sparse_images: Count = 256,
    sparse_penalty: NonNegative = PUBLISHED_STRENGTH,
    precision: Literal["fp32", "bf16"] = "fp32",
    force: bool = False,
    hiding: Hiding = "answer",
    pairs: Count = 25,
    twin: ModelRef | None = None,
    class_space: ClassSpace = "all",
    per_class: bool = True,
    pictures: Natural = 8,
    export: str = "",
) -> Measurement:
    """Accuracy on images made against the model that an oracle still accepts: SA, PA, FMR.

    Args:
        generator: what changes the images; a name from `stockpot list generators`.
        generator_params: its parameters.
        oracle: who says whether the class still stands; a name from `stockpot list oracles`, or
            `none`, which takes every label on trust.
        oracle_params: its parameters.
        vocabulary: among which classes it chooses: those of the `data`, those of the `model` under
            test, or `all` that it knows itself (a dual encoder is told those of data and model).
        rule: when it accepts: `argmax`, `top-5`, `margin:0.2`, ...
        budget: candidates per image, the first included.
        step: in the generator's latents; its own when left out.
        optimiser: `adam`, `sign` or `normalised` gradient steps.
        reading: one `trajectory` of latents, or `reencode` every accepted image.
        first: the candidate that must be accepted for an image to be validated: its plain
            `reconstruction`, or the first `perturbation`, of which the paper's appendix speaks.
        keep: the `last` accepted image, as published, or the accepted one of `best_loss`.
        backtrack: how often in a row a refused step is halved; 0 ends at the first refusal.
        restarts: searches per image; of several, the highest loss counts.
        fgsm: start from a one-step attack of this l_inf radius, such as 0.003.
        pixel_clamp: at pixels that were cut to [0, 1] the gradient passes `straight` through, or
            stops (`hard`). The clamp of the latents is a parameter of the generator.
        sparse: move only the latents that tell before from after, found on the first
            `sparse_images` images: comparing `settled` latents, or as in the `paper`.
        sparse_images: how many images a sparse mask is found on.
        sparse_penalty: the l1 penalty by which it is found, as published; a smaller one lets more
            latents move.
        precision: `bf16` searches in bfloat16; what counts is judged in full precision.
        force: allow an oracle that shares weights with the model, or answers as it does.
        hiding: where a model seems to hide from the gradient, `answer` by searching those images
            again in ways that do not rely on it, and count the worst; or only `flag` it.
        pairs: of trials for every step of the search without gradients.
        twin: the model without what may hide its gradient (any source of `load_model`): its
            gradients are tried on every image.
        class_space: as for `clean`.
        per_class: also give every class's scores.
        pictures: how many examples the result carries for the page.
        export: write the validated images to this folder as a benchmark.
    """
    want_gradients(model)
    scorer = scorer_for(model.classes, data, class_space)
    setting = Setting(
        data.classes, data.templates, context.device, data.name, data.vocabulary,
        cropped=is_fitted(data.images),
    )  # fmt: skip
    judge: Oracle | None = None
    notes = [*scorer.notes]
    few = first_images(model, data, context)
    if oracle != NO_ORACLE:
        setting = with_vocabulary(setting, vocabulary, model)
        with stage("load"):
            judge = oracles.get(oracle)(setting, **(oracle_params or {}))
        if kin := refuse_kin(model, judge, force=force):
            notes.append(kin)
        else:
            notes += refuse_twin(among(model, data.classes), judge, few, force=force)
    else:
        notes.append("no oracle: every label is taken on trust")
    with stage("load"):
        maker = generators.get(generator)(**(generator_params or {})).to(context.device)
    rules = Rules(
        budget=budget,
        step=maker.step if step is None else step,
        optimiser=optimiser,
        reading=reading,
        first=first,
        keep=keep,
        backtrack=backtrack,
        pixel_clamp=pixel_clamp,
        accept=parse_rule(rule),
        precision=precision,
    )
    if rules.step < 0 or pictures < 0:
        raise BadParameterError(
            f"dynamic: expected step >= 0 and pictures >= 0, got {rules.step} and {pictures}."
        )
    task = Task(model, maker, judge, rules)
    notes += about_generator(task, model, data, few)
    options: dict[str, Any] = {"restarts": restarts, "fgsm": fgsm}
    condition = {"generator": generator, "oracle": judge.name if judge else NO_ORACLE}
    extra: list[Score] = []
    spent = 0
    if sparse != "no":
        shown = range(min(sparse_images, len(data)))
        before, after, spent = _latents(
            model, data.take(shown), task, scorer.take(shown), context, sparse, options
        )
        mask = fit_mask(before, after, strength=sparse_penalty, seed=context.seed)
        task = replace(task, mask=mask.kept.to(context.device))
        extra = _mask_scores(mask, condition)
        notes.append(f"the sparse mask was found on {mask.n} images in {mask.seconds:.1f} s")
        if not mask.kept.any():
            notes.append(EMPTY_MASK)
    signs = look_for_signs(model, task, few)
    answers = answers_to(signs, hiding, pairs, _twin(twin, data, context))
    found = evaluate(
        model, data, task, scorer, context, keep_images=bool(export), answers=answers, **options
    )
    outcomes = found.outcomes
    context.chose("correct", data, scorer, found.shards.column("before"))
    context.chose("withstood", data, scorer, found.shards.column("after"))
    flags, warnings = flags_of(signs.afterwards(model, few), found.signs, outcomes)
    notes += [*warnings, *answers.notes(found.signs, outcomes)]
    if judge is not None:
        named = oracle != "zero_shot" or (oracle_params or {}).get("model")
        notes += [judge.note] if isinstance(judge, HumanOracle) else []
        notes += about_oracle(judge.name, outcomes, data, named=bool(named))
    if not outcomes.validated.any():
        notes.append(
            f"the oracle {condition['oracle']} accepted no image as its class: the validation rate "
            "is 0, and there is no perturbed accuracy"
        )
    convention = _convention(rules, restarts, fgsm, sparse, sparse_penalty, setting, judge)
    convention += answers.convention
    if export:
        publish(Path(export), task, model, data, found, {**condition, "convention": convention})
    scores = [*headline(outcomes, condition, rules, context.seed), *extra]
    scores += answers.scores(found.signs, outcomes, condition)
    scores += curve(outcomes, condition, budget)
    if per_class:
        scores += by_class(outcomes, data.classes, condition, context.seed)
    return Measurement(
        scores=scores,
        convention=convention,
        images=found.model_queries + spent,
        outcomes={name: getattr(outcomes, name) for name in _SAVED},
        notes=(*notes, *found.notes, UNAUDITED),
        flags=tuple(flags),
        class_space=scorer.description,
        pictures=gallery(model, data, found, pictures, rules.unmoved),
    )


def _latents(
    model: Classifier,
    data: Dataset,
    task: Task,
    scorer: Scorer,
    context: Context,
    variant: Variant,
    options: dict[str, Any],
) -> tuple[Tensor, Tensor, int]:
    """Latents before and after a search, of the images it moved, and what it cost the model."""
    found = evaluate(
        model, data, task, scorer, context, keep_latents=True, place="sparse", **options
    )
    moved = torch.from_numpy(found.outcomes.moved)
    start, final = found.start[moved], found.final[moved]
    on_device = (start.to(context.device), final.to(context.device))
    return *latents_of(variant, task.generator, *on_device), found.model_queries


@stage("load")
def _twin(source: str | None, data: Dataset, context: Context) -> Callable[[Tensor], Tensor] | None:
    """The twin's logits for the data's classes."""
    if not source:
        return None
    model = load_for(source, data, device=context.device).eval()
    mapping = match_classes(model.classes, data.classes, "subset")
    return lambda pixels: mapping.logits(model(pixels).float())


def _mask_scores(mask: Mask, condition: dict[str, str]) -> list[Score]:
    common: dict[str, Any] = {"n": mask.n, "higher_is_better": None, "condition": condition}
    return [
        Score(metric="mask_sparsity", value=mask.sparsity, **common),
        Score(metric="mask_score", value=mask.score, **common),
    ]


def _convention(
    rules: Rules,
    restarts: int,
    fgsm: float,
    sparse: str,
    penalty: float,
    setting: Setting,
    judge: Oracle | None,
) -> str:
    parts = [
        f"fmr:PA over validated / SA over all; first candidate the {rules.first}; accept "
        f"{rules.accept}; {rules.optimiser} step {rules.step:g}, budget {rules.budget}, "
        f"{rules.reading}, keep {rules.keep}"
    ]
    parts += [f"backtrack {rules.backtrack}"] if rules.backtrack else []
    parts += [f"{restarts} restarts"] if restarts > 1 else []
    parts += [f"fgsm {fgsm:g}"] if fgsm else []
    parts += [f"sparse {sparse}, penalty {penalty:g}"] if sparse != "no" else []
    text = ", ".join(parts) + "; judged and answered at 8 bits"
    if judge is None:
        return text
    count = getattr(judge, "vocabulary", len(setting.classes))
    return f"{text}; oracle vocabulary {setting.offered} ({count} classes)"

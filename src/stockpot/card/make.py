"""`stockpot.card`: time, plan, measure, judge, write."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stockpot.card.preset import Asked, preset
from stockpot.card.timing import Pace, deal, pace
from stockpot.card.verdict import Verdict, verdict
from stockpot.engine import pick_device
from stockpot.errors import BadParameterError, UserError
from stockpot.files import write_atomic
from stockpot.measure.cells import DataSpec, ModelSpec, model_for
from stockpot.measure.measurement import Progress, no_progress
from stockpot.measure.run import measure
from stockpot.measure.specs import data_specs, model_specs
from stockpot.models.classifier import Classifier
from stockpot.models.load import identify
from stockpot.remote.working_copy import working_copy
from stockpot.report.page import write_page
from stockpot.results.schema import CellResult

PLAN = "card.json"
TIMING = 0.25
"""Of the minutes, the part after which nothing more is timed."""
Told = Callable[[str], None]


class Planned(BaseModel):
    """One measure of a card."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    images: int
    params: dict[str, Any] = Field(default_factory=dict)
    seconds: float = Field(description="That it should take, as timed.")
    seconds_per_image: float = 0.0


class Plan(BaseModel):
    """What a card measures, fixed once so that a second start goes on with the same."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    card_version: Literal[1] = 1
    question: str = Field(description="Digest of model, data, minutes and seed.")
    minutes: float
    measures: dict[str, Planned]
    left_out: dict[str, str] = Field(default_factory=dict, description="Measure -> why.")
    timing_seconds: float = Field(0.0, description="That the timing pass took.")


class Card(NamedTuple):
    """A card as it was written."""

    results: list[CellResult]
    verdict: Verdict
    plan: Plan
    folder: Path
    page: Path


def card(
    model: str | Path | Classifier,
    data: str | Path,
    *,
    out: str | Path,
    minutes: float = 10,
    split: str | None = None,
    limit: int | None = None,
    name: str = "",
    seed: int = 0,
    device: str = "auto",
    model_options: Mapping[str, Any] | None = None,
    data_options: Mapping[str, Any] | None = None,
    progress: Progress = no_progress,
    told: Told | None = None,
) -> Card:
    """Measure a model all round within a time budget and say in words what came out.

    Clean accuracy, calibration, cost, the fifteen corruptions, attacks and dynamic evaluation. A
    short timing pass decides how many images each of them gets; what does not fit is left out and
    named. A second call with the same question goes on where the first ended.

    Args:
        model: a source as for `load_model`, or a classifier.
        data: a dataset's name, folder or file.
        out: the run folder, or its address in storage, for results, `card.json`, `card.md` and
            `report.html`.
        minutes: how long all of it may take, the timing pass included.
        split: of the data.
        limit: at most this many images for any measure.
        name: of the model; from its source by default.
        seed: of everything random.
        device: `auto`, `cpu`, `cuda`, ...
        model_options: those of `load_model`.
        data_options: those of `load_dataset`.
        progress: called as images are done.
        told: called with a line whenever there is something to tell.
    """
    if not minutes > 0:
        raise BadParameterError(f"minutes: expected more than 0, got {minutes:g}.")
    say = told or (lambda line: None)
    with working_copy(out, weights=False) as place:
        folder = place.folder
        (spec,) = model_specs({name: model} if name else [model], model_options)
        given = {key: value for key, value in {"split": split, "limit": limit}.items() if value}
        (source,) = data_specs(str(data), {**given, **(data_options or {})})
        run = _Run(spec, source, seed, device, progress)
        plan = _known(folder, question := run.question(minutes))
        if plan is None:
            plan = run.planned(minutes, question, say)
            write_atomic(folder / PLAN, plan.model_dump_json(indent=1) + "\n")
        results: list[CellResult] = []
        failed: dict[str, str] = {}
        for name, one in plan.measures.items():
            say(f"{name}: {one.images:,} images, about {one.seconds:.0f} s")
            try:
                results += run.measured(name, one.params, one.images, folder)
            except UserError as problem:
                failed[name] = " ".join(str(problem).split())
        if not results:
            raise UserError(f"nothing could be measured: {next(iter(failed.values()), 'no time')}")
        found = verdict(results, {**plan.left_out, **failed})
        write_atomic(folder / "card.md", _markdown(spec.name, source.name, found, plan))
        page = write_page(
            results,
            folder / "report.html",
            title=f"{spec.name} on {source.name}",
            subtitle=found.line,
        )
    return Card(results, found, plan, folder, page)


class _Run(NamedTuple):
    """One model on one dataset."""

    model: ModelSpec
    data: DataSpec
    seed: int
    device: str
    progress: Progress

    def question(self, minutes: float) -> str:
        """What tells this card from another."""
        own = {key: value for key, value in self.model.options.items() if key != "defend"}
        asked = [
            identify(self.model.source, own), self.model.options, self.data.load().fingerprint,
            minutes, self.seed,
        ]  # fmt: skip
        text = json.dumps(asked, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def planned(self, minutes: float, question: str, say: Told) -> Plan:
        """Time every measure on a few images and share out the minutes."""
        start = time.perf_counter()
        data = self.data.load()
        asked = preset(model_for(self.model, data, pick_device(self.device)))
        paces: dict[str, Pace] = {}
        left_out: dict[str, str] = {}
        for one in asked:
            if one.like:
                paces |= {one.measure: paces[one.like]} if one.like in paces else {}
                continue
            if time.perf_counter() - start > TIMING * minutes * 60:
                left_out[one.measure] = "no time was left to time it; give more --minutes"
                continue

            def timed(images: int, one: Asked = one) -> float:
                begun = time.perf_counter()
                self.measured(one.measure, one.params, images, None)
                return time.perf_counter() - begun

            try:
                paces[one.measure] = pace(timed, one.timed, len(data))
            except UserError as problem:
                left_out[one.measure] = " ".join(str(problem).split())
        spent = time.perf_counter() - start
        dealt = deal(asked, paces, len(data), max(minutes * 60 - spent, 0.1 * minutes * 60))
        left_out |= dealt.left_out
        say(f"timed on a few images in {spent:.0f} s; {minutes:g} minutes have room for:")
        return Plan(
            question=question,
            minutes=minutes,
            measures={
                one.measure: Planned(
                    images=dealt.images[one.measure],
                    params=one.params,
                    seconds=round(paces[one.measure].seconds(dealt.images[one.measure]), 2),
                    seconds_per_image=round(paces[one.measure].each, 6),
                )
                for one in asked
                if one.measure in dealt.images
            },
            left_out=left_out,
            timing_seconds=round(spent, 2),
        )

    def measured(
        self, name: str, params: Mapping[str, Any], images: int, out: Path | None
    ) -> list[CellResult]:
        """One measure on so many images."""
        return measure(
            {self.model.name: self.model.source},
            {name: params},
            data={self.data.name: self.data.source},
            data_options={**self.data.options, "limit": images},
            model_options=self.model.options,
            out=out,
            seed=self.seed,
            device=self.device,
            progress=self.progress if out else no_progress,
        )


def _known(folder: Path, question: str) -> Plan | None:
    """The plan of an earlier start with the same question."""
    path = folder / PLAN
    if not path.is_file():
        return None
    try:
        found = Plan.model_validate_json(path.read_bytes())
    except ValidationError:
        return None
    return found if found.question == question else None


def _markdown(model: str, data: str, found: Verdict, plan: Plan) -> str:
    sizes = ", ".join(f"{name} {one.images:,}" for name, one in plan.measures.items())
    lines = [
        f"# {model} on {data}",
        "",
        found.line,
        "",
        *(f"- {sentence}" for sentence in found.sentences),
        "",
        *(["## Bear in mind", "", *(f"- {each}" for each in found.warnings), ""]),
        f"Images by measure, chosen for {plan.minutes:g} minutes by timing: {sizes}.",
    ]
    return "\n".join(lines) + "\n"

"""The tables of the studies' pages follow from the data that is committed beside them.

Data files hold four decimals and pages one of a percent, so a number that ends in 5 may have been
rounded either way: a page must lie between the tables of all numbers half a last digit lower and
half a last digit higher. Everything but numbers must be the same.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stockpot.results.tables import filled, read_csv

STUDIES = Path(__file__).parents[2] / "studies"
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
LABELS = (
    *("of", "point", "threshold", "runs", "n", "n outside", "labels", "seeds", "round", "severity"),
    *("picture", "group", "claim", "training"),
)
OUTCOMES = (
    *("fmr", "fmr/photographs", "merging_under_attack", "robust_finetuning", "trained_apart"),
    "xrays",
)
"""Studies whose data is outcomes.json: who was right on which image."""
EARLIER = {"robust_finetuning/first": "robust_finetuning"}
"""Runs with outcomes.json, whose tables the scripts of a later one make."""
Tables = Callable[[float], dict[str, str]]


def rows(study: str, name: str, nudge: float) -> list[dict[str, Any]]:
    return [
        {k: v + nudge if isinstance(v, float) and k not in LABELS else v for k, v in row.items()}
        for row in read_csv(STUDIES / study / f"{name}.csv")
    ]


def tables_of(study: str, part: Callable[[str, str], Any]) -> Tables:
    make = part(EARLIER.get(study, study), "tables").from_data
    if study == "robust_soups":
        made = make()
        return lambda nudge: made
    if study == "clip_headroom":
        made = make(STUDIES / study / "answers")
        return lambda nudge: made
    if study in OUTCOMES or study in EARLIER:
        made = make(json.loads((STUDIES / study / "outcomes.json").read_text(encoding="utf-8")))
        return lambda nudge: made
    if study == "real_networks":
        files = part(study, "tables").FILES
        return lambda nudge: make({name: rows(study, name, nudge) for name in files})
    if study == "adaptation":
        return lambda nudge: make(
            *(rows(study, name, nudge) for name in ("scores", "first", "cotta"))
        )
    if study == "surface":
        return lambda nudge: make(rows(study, "scores", nudge))
    if study == "unknowns":
        files = part(study, "tables").FILES
        return lambda nudge: make(*(rows(study, name, nudge) for name in files))
    if study == "fmr/former":
        return lambda nudge: make(rows(study, "rows", nudge))
    if study == "robust_finetuning/former":
        return lambda nudge: make(*(rows(study, name, nudge) for name in ("scores", "masks")))
    if study == "label_free":
        files = part(study, "tables").FILES
        return lambda nudge: make(*(rows(study, name, nudge) for name in files))
    names = ("pools", "fusion", "generalisation", "robustness", "tuned", "leaders")
    return lambda nudge: make({name: rows(study, name, nudge) for name in names})


PLACES = {
    "adaptation": {"verdicts", "trainings", "accuracy-cotta", "gains-cotta",
                   *(f"{table}-first" for table in ("accuracy", "gains", "verdicts")),
                   *(f"{table}-{data}" for data in ("cifar10", "icons")
                     for table in ("accuracy", "gains", "calibration", "attacks"))},
    "clip_fusion": {"tested", "pool", "pools", "sweep", "generalisation", "severities", "tuned",
                    "margin", "looks"},
    "clip_headroom": {"gates", "pool", "claims", "merges", "chosen"},
    "fmr": {"claims", "parts", "orders", "chosen",
            *(f"{table}-mnist" for table in ("main", "transfer", "readings", "oracles", "agreed"))},
    "fmr/photographs": {"claims", "parts", "main", "transfer", "oracles", "stronger", "agreed",
                        "orders", "chosen", "readings", "people"},
    "fmr/former": {"main-mnist", "main-cifar10", "main-icons", "ladders", "oracles", "draws",
                   "seeds", "augment"},
    "label_free": {"errors", "order", "regret", "stated", "trainings"},
    "merging_under_attack": {"chosen", "claims", "tasks", "norms", "trainings"},
    "real_networks": {"main", "claims", "shapes", "published", "drawn", "attacked", "kept",
                      "order", "defended", "kinds", "dynamic"},
    "robust_finetuning": {"verdicts", "parts", "drawings", "masks", "chosen"},
    "robust_finetuning/first": {"verdicts", "parts", "drawings", "masks", "chosen"},
    "robust_finetuning/former": {"contexts", "photographs", "drawings", "masks"},
    "surface": {"accuracy", "compute", "families", "findings"},
    "trained_apart": {"told", "accuracy", "claims", "spread", "chosen", "first-accuracy",
                      "first-claims", "again"},
    "unknowns": {"detectors-nominal", "detectors-l2", "detectors-linf", "models", "claims",
                 "trainings"},
    "xrays": {"verdicts", "parts", "scores", "overlap", "cues", "chosen"},
    "robust_soups": {"claims", "accuracies", "choosing full", "choosing quarter",
                     "choosing quarter-affine"},
}  # fmt: skip


@pytest.mark.parametrize("study", PLACES)
def test_a_page_shows_what_its_data_says(study: str, part: Callable[[str, str], Any]) -> None:
    page = (STUDIES / study / "README.md").read_text(encoding="utf-8")
    tables = cache(tables_of(study, part))
    assert set(tables(0)) == PLACES[study]
    versions = [filled(page, tables(nudge)) for nudge in (-0.5e-4, 0, 0.5e-4)]
    if study in ("robust_soups", "clip_headroom", *OUTCOMES, *EARLIER):  # nothing was rounded
        assert versions[1] == page
    for text in versions:
        assert NUMBER.sub("#", text) == NUMBER.sub("#", page)
    numbers = [list(map(float, NUMBER.findall(text))) for text in (page, *versions)]
    for shown, *possible in zip(*numbers, strict=True):
        assert min(possible) <= shown <= max(possible)


@pytest.mark.parametrize("study", PLACES)
def test_what_a_page_links_to_is_there(study: str) -> None:
    page = (STUDIES / study / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", page) if "://" not in link]
    assert links
    assert not [link for link in links if not (STUDIES / study / link).exists()]


def test_studies_are_alike_and_stand_on_the_package() -> None:
    known = {"study.py", "tables.py", "figures.py", "tuned.py"}
    # A run in stretches has more parts: what is trained, measured, chosen, kept and claimed.
    parts = ("answers", "chosen", "claims", "families", "measured", "rules", "stretch", "travel")
    more = {
        "robust_soups": {f"{name}.py" for name in parts},
        "robust_finetuning": {"claims.py", "experiments.py"},
        "clip_headroom": {f"{name}.py" for name in ("answers", "experts", "foundation", "merges",
                                                    "tasks")},
        "clip_fusion": {"searched.py"},
        "fmr": {f"{name}.py" for name in ("claims", "searches", "shown", "verdicts")},
        "fmr/photographs": {"judges.py", "people.py"},
        "unknowns": {"again.py", "claims.py", "measured.py"},
        "adaptation": {"again.py"},
        "real_networks": {f"{name}.py" for name in ("attacks", "defences", "dynamic", "helped",
                                                    "kept", "moved", "rules")},
        "xrays": {"claims.py", "lungs.py", "pairs.py"},
    }  # fmt: skip
    for study in PLACES.keys() - EARLIER.keys():
        files = {file.name for file in (STUDIES / study).glob("*.py")}
        assert {"study.py", "tables.py"} <= files <= known | more.get(study, set())
        text = "".join((STUDIES / study / name).read_text(encoding="utf-8") for name in files)
        assert "stockpot.cli" not in text
        assert "matplotlib" not in text


def test_the_page_of_all_claims_says_what_the_studies_say() -> None:
    page = STUDIES / "README.md"
    spec = importlib.util.spec_from_file_location("gather", STUDIES / "gather.py")
    assert spec is not None
    assert spec.loader is not None
    gather = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gather)
    made = gather.gathered()
    text = page.read_text(encoding="utf-8")
    assert filled(text, made) == text
    verdicts = {row[2] for sources in gather.PAPERS.values() for s in sources
                for row in gather.claims(s)}  # fmt: skip
    assert verdicts <= set(gather.VERDICTS)
    for finding in ("F1:", "F10:", "M1:", "M7:", "G1 ", "G6 ", "regmean < adamerging"):
        assert f"| {finding}" in text


def test_sizes_that_were_computed_afterwards_follow_from_the_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(STUDIES))
    module = importlib.import_module("sizes")
    # n = (1.96 + 0.84)^2 d / e^2 images find e: with d = 0.1 and n = 1,000 it is 2.8 points.
    error = 100 * (0.1 / 1000) ** 0.5
    assert module.least((1 - 1.96 * error, 1 + 1.96 * error)) == pytest.approx(2.8, abs=0.01)
    for study, lines in module.PLANS.items():
        page = (STUDIES / study / "plan.md").read_text(encoding="utf-8")
        assert filled(page, {"size": module.sizes(lines())}) == page
        assert "## Size, computed afterwards" in page

"""The study of counterfactual fine-tuning: its choices and its verdicts, on hand-made outcomes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from stockpot.results.contrast import Contrast, minus
from stockpot.results.few_seeds import widened
from stockpot.results.packed import pack_bits

Part = Callable[[str, str], ModuleType]
STUDY = Path(__file__).parents[2] / "studies" / "robust_finetuning"
N = 100


def outcomes(right: dict[str, tuple[float, float]], seeds: int = 8) -> dict[str, Any]:
    """Models that are right on these shares of the pictures inside and outside; three pictures more
    or less from seed to seed."""
    names = ("drawing", "photo", "icon")
    masks = {str(t): {kind: [(1 - t) * share] * 5 for kind, share in
                      (("picture", 0.2), ("object", 0.6), ("iou", 0.3))}
             for t in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)}  # fmt: skip

    def run(model: str, seed: int) -> dict[str, Any]:
        shares = right.get(model, (0.6, 0.5))
        flags = {name: np.arange(N) < N * shares[name != "drawing"] + 3 * (seed % 3 - 1)
                 for name in names}  # fmt: skip
        return {"right": {name: pack_bits(found) for name, found in flags.items()}, "masks": masks}

    models = {"vanilla", "object-single", *right} - {"zero-shot"}
    runs = {model: {str(seed): run(model, seed) for seed in range(seeds)} for model in models}
    return {
        "seeds": list(range(seeds)),
        "drawings": {
            "sets": {name: {"n": N, "groups": ""} for name in names},
            "zero-shot": run("zero-shot", 1),
            **runs,
        },
        "contexts": {"object-single": runs["object-single"]},
    }


def claim(rules: ModuleType, name: str) -> Any:
    return next(each for each in (*rules.CLAIMS, *rules.BESIDE) if each.name == name)


def test_a_claim_holds_fails_or_stays_open_by_all_of_its_parts(part: Part) -> None:
    rules = part("robust_finetuning", "claims")
    m1 = claim(rules, "M1")
    loses = {"zero-shot": (0.3, 0.7), "vanilla": (0.6, 0.4)}
    assert rules.Judge(outcomes(loses)).verdict(m1) == "held"
    # Inside is gained, but outside too: one part on the other side is enough.
    gains = {"zero-shot": (0.3, 0.2), "vanilla": (0.6, 0.4)}
    assert rules.Judge(outcomes(gains)).verdict(m1) == "did not hold"
    level = {"zero-shot": (0.3, 0.4), "vanilla": (0.6, 0.4)}
    assert rules.Judge(outcomes(level)).verdict(m1) == "not told apart"
    assert rules.Judge(outcomes(loses, seeds=5)).verdict(m1) == "not told apart"
    assert rules.Judge(outcomes(loses)).verdict(claim(rules, "M5")) == "held"


def test_of_the_last_two_parts_of_m6_one_is_enough(part: Part) -> None:
    rules = part("robust_finetuning", "claims")
    wise = {"vanilla": (0.5, 0.3), "wise-ft": (0.7, 0.6), "zero-shot": (0.3, 0.6)}
    m6 = claim(rules, "M6")
    trades = wise | {"object-single": (0.7, 0.5), "object-wise": (0.4, 0.8)}
    assert rules.Judge(outcomes(trades)).verdict(m6) == "held"
    gains = wise | {"object-single": (0.4, 0.5), "object-wise": (0.7, 0.8)}
    assert rules.Judge(outcomes(gains)).verdict(m6) == "did not hold"
    # Beside it stands the same with another alpha, for a run that has it.
    named = "M6, alpha chosen"
    assert named not in [each.name for each in rules.Judge(outcomes(gains)).claims]
    level = {f"{model}-level": trades[model] for model in ("wise-ft", "object-wise")}
    judge = rules.Judge(outcomes(gains | level | {"object-single": (0.7, 0.5)}))
    assert named in [each.name for each in judge.claims]
    assert judge.verdict(claim(rules, named)) == "held"


def test_few_seeds_widen_an_interval_by_students_t(part: Part) -> None:
    rules = part("robust_finetuning", "claims")
    judge = rules.Judge(outcomes({"zero-shot": (0.3, 0.7)}, seeds=10))
    found = widened(Contrast(0.0, -0.1, 0.2), 10, 0.95)
    # The quantiles of Student's t with nine degrees of freedom, and of the normal distribution.
    factor = 2.262157 / 1.959964 * math.sqrt(10 / 9)
    assert found == pytest.approx((0.0, -0.1 * factor, 0.2 * factor), abs=1e-6)
    # Masks may have been asked of fewer seeds, which widens more, and of too few for a verdict.
    given = outcomes({"zero-shot": (0.3, 0.7), "vanilla": (0.6, 0.4)})
    runs = given["contexts"]["object-single"]
    given["contexts"]["object-single"] = {seed: runs[seed] for seed in "01234"}
    fewer = rules.Judge(given)
    assert (fewer.of("masks"), fewer.of("inside")) == (5, 8)
    assert fewer.verdict(claim(rules, "M5")) == "not told apart"
    assert fewer.verdict(claim(rules, "M1")) == "held"
    # Photographs and icons count alike.
    part_of = rules.Part("", minus("zero-shot", "vanilla"), "outside")
    assert judge.judged(part_of).value == pytest.approx(0.7 - 0.497)


@pytest.mark.parametrize("folder", [STUDY, STUDY / "first"], ids=["present", "first"])
def test_what_is_judged_is_what_the_plan_says(folder: Path, part: Part) -> None:
    rules = part("robust_finetuning", "claims")
    plan = (folder / "plan.md").read_text(encoding="utf-8")
    table = plan[plan.index("| claim | as the paper") : plan.index('"At least as good"')]
    rows = [line.split("|")[1:-1] for line in table.splitlines()[2:] if line.startswith("|")]
    said: dict[str, set[float]] = {}
    name = ""
    for first, _, _, margin in rows:
        name = first.strip() or name
        said.setdefault(name, set()).add(float(margin))
    judged = {each.name: {round(100 * p.margin, 3) for p in each.parts} for each in rules.CLAIMS}
    assert judged == said


def test_nothing_that_the_first_run_judged_is_judged_again() -> None:
    first, present = (
        json.loads((folder / "outcomes.json").read_text(encoding="utf-8"))
        for folder in (STUDY / "first", STUDY)
    )
    assert not set(first["seeds"]) & set(present["seeds"])
    assert not set(first["contexts"]["object-single"]) & set(present["contexts"]["object-single"])
    for experiment in ("drawings", "contexts"):
        seen, asked = (
            {about["fingerprint"] for about in run[experiment]["sets"].values()}
            for run in (first, present)
        )
        assert not seen & asked


def test_a_model_that_was_asked_too_late_does_not_count(part: Part, tmp_path: Path) -> None:
    in_time = part("robust_finetuning", "study").in_time
    path = tmp_path / "answers.json"
    assert not in_time(path, 1000)
    path.write_text("{}", encoding="utf-8")
    os.utime(path, (1000.7, 1000.7))
    assert in_time(path, 1001)
    assert not in_time(path, 1000)

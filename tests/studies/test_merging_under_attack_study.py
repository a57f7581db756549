"""Merging under attack: statistics and verdicts on answers of which it is known what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stockpot.results.packed import pack_bits

N = 60
Part = Callable[[str, str], Any]


def answers(wrong: float) -> str:
    """Right on all images but this share of them, the last ones."""
    return pack_bits(np.arange(N) < round(N * (1 - wrong)))


def known(tables: Any, *, expert: float, ensemble: float, own: float = 0.8) -> dict[str, Any]:
    """All are right on images as they are; what is made on a model takes `own` of its answers."""
    tasks, norms = tables.SCALES["tasks"], tables.SCALES["norms"]
    viewers = ["base", "expert", *tasks, "ensemble"]
    makers = ["expert", *tasks]
    right = {maker: {viewer: answers(own if viewer == maker else expert) for viewer in viewers}
             for maker in makers}  # fmt: skip
    right["expert"]["ensemble"] = answers(ensemble)
    right["correct"] = dict.fromkeys(viewers, answers(0))
    first = {task: {"n": N, "right": right} for task in tables.EXPERT_OF}
    models = [*tables.MEMBERS, *norms]
    hit = {maker: {viewer: answers(own if viewer == maker else 0.3 if viewer == "average" else 0.1)
                   for viewer in [*models, "ensemble"]} for maker in models}  # fmt: skip
    hit["ties"]["ties"] = answers(0.2)
    hit["correct"] = dict.fromkeys([*models, "ensemble"], answers(0))
    scores = dict.fromkeys(models, 0.5) | {"l2": 0.6, "ties": 0.7}
    second = {norm: {"n": N, "right": hit} for norm in tables.NORMS}
    return {
        "tasks": {"chosen": {"scales": {"ties": 1.0}, "radius": "2/255"}, **first},
        "norms": {"chosen": {"scales": {"ties": 0.3}, "scores": scores}, **second},
    }


def test_verdicts_follow_the_plan(part: Part) -> None:
    tables = part("merging_under_attack", "tables")
    found = {claim[0]: claim for claim in
             ((c.split()[0], text, said) for c, text, said in
              tables.claims(known(tables, expert=0.4, ensemble=0.2)))}  # fmt: skip
    assert found["1"][1].startswith("0.50 [")  # 0.4 of the answers over 0.8
    assert found["1"][2] == "did not hold"
    assert found["2"][2] == "not told apart"  # all merges are alike
    assert found["3"][2] == "not told apart"
    assert (found["4"][1][:5], found["4"][2]) == ("+20.0", "held")
    assert (found["5"][1][:5], found["5"][2]) == ("+20.0", "held")  # 0.3 less 0.1
    assert (found["6"][1][:5], found["6"][2]) == ("+60.0", "held")  # ties less l2: 0.8 less 0.2
    assert found["7"][2] == "held"
    assert "`ties` +60.0" in found["7"][1]
    assert (found["8"][1][:5], found["8"][2]) == ("+50.0", "held")  # 0.7 less 0.2
    same = tables.claims(known(tables, expert=0.8, ensemble=0.9))
    assert [said for _, _, said in same][:4] == [
        "held", "not told apart", "not told apart", "did not hold",
    ]  # fmt: skip


def test_the_page_has_a_place_for_every_table(part: Part) -> None:
    tables = part("merging_under_attack", "tables")
    made = tables.from_data(known(tables, expert=0.4, ensemble=0.2))
    page = (tables.HERE / "README.md").read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in page for name in made)
    assert "| `expert` | 100.0" in made["tasks"]


def test_ranks_that_are_equal_share_their_place(part: Part) -> None:
    tables = part("merging_under_attack", "tables")
    assert tables._ranks(np.array([3.0, 1.0, 3.0, 7.0])).tolist() == [1.5, 0.0, 1.5, 3.0]
    order, up = np.arange(3.0), np.array([0.1, 0.3, 0.4])
    assert tables._spearman(order, up) == pytest.approx(1)
    assert tables._spearman(order, -up) == pytest.approx(-1)

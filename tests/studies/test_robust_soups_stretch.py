"""The next run of the study of robust soups at toy scale: what is stopped goes on, and is the same;
verdicts follow the plan on answers of which it is known what they say."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.engine.interrupt import Interrupted, ask_to_stop

Part = Callable[[str, str], ModuleType]
CPU = torch.device("cpu")
N = 200


def modules(part: Part, *names: str) -> list[ModuleType]:
    """Parts of the study that know one another."""
    first, *others = names
    return [part("robust_soups", first), *map(importlib.import_module, others)]


def photographs(count: int, seed: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 16, 16), generator=generator, dtype=torch.uint8)
    labels = torch.arange(count) % 4
    return Dataset("noise", "test", TensorImages(pixels), labels, tuple("abcd"), f"noise {seed}")


def small(families: ModuleType) -> Any:
    """A scale whose grid is the four members."""
    return replace(
        families.TOY, learned=32, seeds=2, validation=6, source=16, judged=6, strong=4,
        corruptions=("pixelate",), step=1.0, low=0.0, first=3, second=3, kept=2, overall=1,
        shifted=4,
    )  # fmt: skip


def test_a_member_that_was_stopped_and_has_travelled_is_the_same(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    travel, families = modules(part, "travel", "families")
    scale, data = small(families), photographs(32, 0)
    base = families.Member(0, "linf", "linf")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    families.train_member(whole, base, scale, data, CPU)
    with pytest.raises(Interrupted):
        families.train_member(parts, base, scale, data, CPU, report=lambda *_: ask_to_stop())
    assert not families.place_of(parts, base).exists()
    assert list((parts / "state").iterdir())
    steps: list[int] = []
    families.train_member(parts, base, scale, data, CPU, report=lambda step, *_: steps.append(step))
    assert steps == [4]  # of 4: the first epoch was not trained again
    assert not list((parts / "state").iterdir())
    kept = families.place_of(whole, base).read_bytes()
    assert families.place_of(parts, base).read_bytes() == kept
    # What comes back in pieces is put together on another machine.
    monkeypatch.setattr(travel, "PIECE", 200)
    travel.hand_out(whole, tmp_path, [base.name])
    assert not list(tmp_path.glob("*.weights.*"))  # too many files: they would not all come back
    monkeypatch.setattr(travel, "PIECES", 99)
    travel.hand_out(whole, tmp_path, [base.name])
    assert len(list(tmp_path.glob("0-linf-linf.weights.*"))) > 10
    travel.take_in(tmp_path, tmp_path / "fresh")
    assert families.place_of(tmp_path / "fresh", base).read_bytes() == kept


def test_soups_that_were_stopped_give_the_same_answers(part: Part, tmp_path: Path) -> None:
    measured, families, chosen = modules(part, "measured", "families", "chosen")
    scale, data = small(families), photographs(16, 1)
    photos = measured.Photographs(data, data, data)
    base = families.Member(0, "linf", "linf")
    for number, role in enumerate(families.SOUPED):
        member = families.Member(0, "linf", role)
        state = families.fresh(scale, data.classes, number, 16).state_dict()
        for folder in (tmp_path / "whole", tmp_path / "parts"):
            families.write_atomic(
                families.place_of(folder, member), families.save(families.halved(state))
            )
    asks = {chosen.ask("linf", chosen.one("l1")): 6, chosen.ask("l1", (0.5, 0, 0.5, 0)): 4}

    def measure(folder: Path, until: float) -> tuple[bool, bool]:
        work = measured.Measuring(folder, scale, photos, CPU, until)
        attacked = work.attacked("some", work.family(base), asks, data)
        return attacked, work.shift(base)

    assert measure(tmp_path / "whole", time.monotonic() + 1e6) == (True, True)
    # Six more answers at every call, then the time is over.
    late = iter(([False] * 6 + [True]) * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured.Measuring, "late", property(lambda _: next(late)))
        calls = 0
        while measure(tmp_path / "parts", 0) != (True, True):
            calls += 1
            assert calls < 10
    assert calls
    for name in ("some", "0-linf-shift"):
        whole, parts = (
            measured.Answers(tmp_path / folder / "answers" / f"{name}.npz").found
            for folder in ("whole", "parts")
        )
        assert whole.keys() == parts.keys()
        assert all((whole[key] == parts[key]).all() for key in whole)


def test_each_seed_is_whole_before_the_next_and_no_training_begins_that_cannot_end(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stretch, families = modules(part, "stretch", "families")
    scale = families.Scale()
    order = [f"{step} {about.name}" for step, about in stretch.order(scale)]
    assert order[:7] == [
        *(f"train 0-linf-{role}" for role in ("linf", "l1", "l2", "nominal")),
        *(f"{step} 0-linf-linf" for step in ("choose", "decide", "shift")),
    ]
    assert order[7] == "train 1-linf-linf"
    data = photographs(8, 0)
    work = stretch.Stretch(tmp_path, scale, stretch.Photographs(data, data, data), CPU, left=280)
    begun: list[str] = []

    def trained(folder: Path, member: Any, *_: Any, **__: Any) -> None:
        begun.append(member.name)
        families.write_atomic(families.place_of(folder, member), b"")
        work.end -= 232 if member.parent is None else 60

    monkeypatch.setattr(stretch, "train_member", trained)
    for name in ("choose", "decide", "shift", "judge", "control", "joint", "labels", "strong"):
        monkeypatch.setattr(stretch.Measuring, name, lambda *_: True)
    # 280 s: a base of 232 s; l_1 does not fit, nominal (17 s) does, a second base does not.
    assert not work.run()
    assert begun == ["0-linf-linf", "0-linf-nominal"]
    # Of a fresh machine that was given some of what there was: answers that rest on other weights
    # go, members under finished answers are not trained again, and all others are.
    again = stretch.Stretch(tmp_path, scale, work.data, CPU)
    work, begun[:] = again, []
    assert again.run()
    assert len(begun) == 31 - 2
    (tmp_path / "done.json").write_text(json.dumps(["choose 0-linf-linf"]))
    for name in ("choose", "shift"):
        families.write_atomic(tmp_path / "answers" / f"0-linf-{name}.npz", b"")
    for role in ("l1", "nominal"):
        families.place_of(tmp_path, families.Member(0, "linf", role)).unlink()
    begun.clear()
    assert not again.run()
    assert begun == ["0-linf-nominal"]
    assert [file.name for file in (tmp_path / "answers").iterdir()] == ["0-linf-choose.npz"]


def judged(part: Part, folder: Path, shares: dict[str, list[float]]) -> dict[str, str]:
    """Verdicts on soups of which each seed's share of right answers is known.

    A fourth share, where there is one, is of a seed that came after the verdict.
    """
    chosen, claims, families, answers = modules(part, "chosen", "claims", "families", "answers")
    seeds = max([3, *map(len, shares.values())])
    scale = replace(families.TOY, seeds=seeds, judged=N, lines=N)
    done = [f"{step} {seed}-linf-linf" for step in ("decide", "judge") for seed in range(seeds)]
    folder.mkdir()
    (folder / "done.json").write_text(json.dumps(done))
    for seed in range(seeds):
        choosing = answers.Answers(folder / "answers" / f"{seed}-linf-choose.npz")
        judging = answers.Answers(folder / "answers" / f"{seed}-linf-judge.npz")
        for text in chosen.to_choose():
            choosing.add(text, np.arange(40) < 20)
        taken = chosen.choices(choosing)
        kinds = {"without": taken.without, "with": taken.with_l2, "outside": taken.outside}
        for place, text in enumerate(chosen.to_judge(taken, scale)):
            soup = chosen.asked(text)[1]
            kind = next((kind for kind, known in kinds.items() if known == soup), "other")
            coins = np.random.default_rng([seed, place]).random(N)
            judging.add(text, coins < shares.get(kind, [0.5] * seeds)[seed])
        choosing.save(), judging.save()
    return {finding.claim: finding.verdict for finding in claims.Claims(folder, scale).found()}


def test_verdicts_follow_the_plan(part: Part, tmp_path: Path) -> None:
    same = judged(part, tmp_path / "same", {})
    assert set(same) == {"F1", "F2", "F4", "F4, strictly", "F5", "F5, strictly"}
    assert {same["F2"], same["F4, strictly"], same["F5, strictly"]} == {"not told apart"}
    told = judged(
        part, tmp_path / "told", {"without": [0.9] * 3, "with": [0.6] * 3, "outside": [0.2] * 3}
    )
    assert (told["F4"], told["F4, strictly"]) == ("held", "held")
    assert (told["F5"], told["F5, strictly"]) == ("did not hold", "did not hold")
    # One seed of three on the other side: no verdict, however far away the others are.
    torn = judged(part, tmp_path / "torn", {"without": [1.0, 1.0, 0.6], "with": [0.2, 0.2, 0.95]})
    assert torn["F4"] == "not told apart"
    # A seed that came after the verdict has a row of its own, and changes nothing before it.
    after = judged(
        part, tmp_path / "after", {"without": [0.9] * 3 + [0.2], "with": [0.6] * 3 + [0.8]}
    )
    assert (after["F4"], after["F4, strictly"], after["F4, again"]) == (
        "held",
        "held",
        "did not hold",
    )


def test_the_second_images_and_the_judging_ones_are_read_from_the_right_rows(
    part: Part, tmp_path: Path
) -> None:
    chosen, claims, families, answers = modules(part, "chosen", "claims", "families", "answers")
    scale = replace(families.TOY, kept=2, overall=1, first=20, second=60, shifted=30)
    soups, places = chosen.grid(scale), len(chosen.cells(scale))
    harsh = chosen.cells(scale).index("pixelate:5")
    mild = chosen.cells(scale).index("pixelate:1")
    nominal, l1 = (chosen.members_in(scale)[families.SOUPED.index(m)] for m in ("nominal", "l1"))
    kept = answers.Answers(tmp_path / "answers" / "0-linf-shift.npz")
    first = np.zeros((len(soups), places, scale.first), bool)
    first[nominal, :, :10] = True
    first[l1, harsh, :15] = True
    for soup in range(len(soups)):
        kept.add(f"first {soup}", first[soup])
    tried = chosen.tried_further(first, scale)
    for soup in np.flatnonzero(tried.any(axis=1)):
        kept.add(f"second {soup}", np.repeat(first[soup, tried[soup]], 3, axis=1))
    taken = chosen.shifts(first, kept, scale)
    assert taken.own[harsh] == l1
    assert taken.own[mild] == nominal == taken.single
    assert taken.right[l1, harsh] == 60
    top = claims.top_weights(first, kept, taken.tried, scale, count=1)
    assert (top[:, harsh] == np.array(chosen.one("l1"))).all()
    assert (top[0, mild] == np.array(chosen.one("nominal"))).all()
    for soup, where in chosen.judged_cells(taken, scale).items():
        kept.add(f"judged {soup}", np.array([[cell == 1] * scale.shifted for cell in where]))
    rows = claims.judged_rows(kept, taken.own, places)
    assert rows[:, 0].tolist() == [cell == 1 for cell in range(places)]


def test_a_hundred_labels_are_worth_what_they_choose(part: Part) -> None:
    claims = part("robust_soups", "claims")
    table = np.zeros((2, 3, 40), bool)
    table[1] = True  # one soup is always right, so that any number of labels finds it
    assert claims.few_labels(table, 0.1).tolist() == [1.0] * 40

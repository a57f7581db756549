"""The pools with headroom: what is kept, mixed, named and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import stockpot
from stockpot.datasets.dataset import Dataset, TensorImages

Part = Callable[[str, str], Any]


def test_answers_come_back_as_they_were(part: Part, tmp_path: Path) -> None:
    answers = part("clip_headroom", "answers")
    draw = np.random.default_rng(0)
    found = {"a|tuned": {"x": draw.random(13) < 0.5, "y|noise": draw.random(8) < 0.5},
             "b": {"x": draw.random(1) < 0.5}}  # fmt: skip
    answers.write(tmp_path / "0-pool.npz", found)
    back = answers.read(tmp_path / "0-pool.npz")
    assert {model: list(of) for model, of in back.items()} == {
        "a|tuned": ["x", "y|noise"],
        "b": ["x"],
    }
    for model, of in found.items():
        for task, flags in of.items():
            assert np.array_equal(back[model][task], flags)


def test_a_mix_goes_from_the_base_to_the_expert(part: Part) -> None:
    experts = part("clip_headroom", "experts")
    base = {"w": torch.zeros(3), "position_ids": torch.arange(3)}
    other = {"w": torch.tensor([1.0, 2.0, 4.0]), "position_ids": torch.arange(3)}
    assert torch.equal(experts.mixed(base, (0.0, other))["w"], base["w"])
    assert torch.equal(experts.mixed(base, (1.0, other))["w"], other["w"])
    assert torch.equal(experts.mixed(base, (0.25, other), (0.5, other))["w"], 0.75 * other["w"])


def test_only_the_vision_tower_is_merged(part: Part) -> None:
    experts = part("clip_headroom", "experts")
    names = ("vision_model.encoder.w", "text_model.w", "visual_projection.weight", "logit_scale",
             "text_projection.weight", "post_layernorm.weight")  # fmt: skip
    found = experts.in_tower({name: torch.zeros(1) for name in names})
    assert set(found) == {"encoder.w", "post_layernorm.weight"}


def test_gates_follow_from_validation_images(part: Part) -> None:
    experts = part("clip_headroom", "experts")

    def of(share: float) -> dict[str, Any]:
        return {"x": np.arange(100) < 100 * share, "y": np.arange(50) < 50 * share}

    found = {"base|val": of(0.5), "probe|val": of(0.74), "single|val": of(0.72),
             "joint|val": of(0.78), "experts|val": of(0.8), "base": of(0.9)}  # fmt: skip
    told = experts.gates(found)
    assert {name: each["met"] for name, each in told.items()} == {
        "probe": True, "headroom": True, "single": True, "joint": True,
    }  # fmt: skip
    assert told["single"]["value"] == pytest.approx(0.22 / 0.3)
    assert not experts.gates(found | {"single|val": of(0.7)})["single"]["met"]
    del found["joint|val"]
    assert set(experts.gates(found)) == {"probe", "headroom", "single"}


def task(name: str, part: Part, side: int = 8) -> Any:
    tasks = part("clip_headroom", "tasks")
    labels = torch.arange(20) % 2
    shades = (labels * 200).to(torch.uint8)[:, None, None, None]
    pixels = shades.expand(20, 3, side, side).contiguous()
    data = tasks.spoken(name, "fit", (pixels, labels), ("a", "b"))
    return tasks.Task(data, data, data)


def test_only_a_few_pictures_of_a_task_are_named(part: Part, tmp_path: Path) -> None:
    given = task("mnist", part)
    foundation = part("clip_headroom", "foundation")
    tasks = part("clip_headroom", "tasks")
    other = (torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.arange(6) % 3)
    tasks.save(tmp_path / "others.npz", {"fit": other}, ("x", "y", "z"))
    (tmp_path / "concepts.json").write_text('{"shown": [], "captions": {}}')
    foundation = part("clip_headroom", "foundation")
    settings = foundation.Settings(few=3)
    found = foundation.gather(tmp_path, {"mnist": given}, settings, 0, torch.device("cpu"))
    named = found.subject[: len(given.fit)]
    assert int((named >= 0).sum()) == 3 * 2
    assert len(found.groups[2]) == 6
    assert len(found.groups[1]) == 6
    assert set(found.captions.classes) == {
        "mnist: a",
        "mnist: b",
        "sketch: x",
        "sketch: y",
        "sketch: z",
    }
    assert found.pixels.shape == (26, 3, 64, 64)
    again = foundation.gather(tmp_path, {"mnist": given}, settings, 1, torch.device("cpu"))
    assert not torch.equal(again.subject, found.subject)


def test_more_are_held_out_and_none_is_on_both_sides(part: Part) -> None:
    tasks = part("clip_headroom", "tasks")
    pixels = (
        torch.arange(20, dtype=torch.uint8)[:, None, None, None].expand(20, 3, 2, 2).contiguous()
    )
    whole = Dataset(
        name="x", split="fit", images=TensorImages(pixels), labels=torch.arange(20) % 2,
        classes=("a", "b"), fingerprint="",
    )  # fmt: skip
    fit, val = tasks.more_held_out(whole.take(range(16)), whole.take(range(16, 20)), 3)
    seen = [set(tasks.pixels_of(each)[:, 0, 0, 0].tolist()) for each in (fit, val)]
    assert not seen[0] & seen[1]
    assert (len(fit), len(val)) == (10, 10)
    assert val.labels.bincount().tolist() == [5, 5]


def test_a_claim_of_several_needs_all_and_names_its_seeds(part: Part) -> None:
    claims = part("clip_headroom", "claims")
    low, high = np.arange(200) < 80, np.arange(200) < 120
    runs = [
        {"joint": {"x": high}, "a": {"x": low}, "b": {"x": low}},
        {"joint": {"x": high}, "a": {"x": low}},
    ]
    claim = claims.Claim("joint", [("joint", "a"), ("joint", "b")])
    parts, count = claims.judged(claim, runs)
    assert (len(parts), count) == (2, 1)
    assert claims.judged(claims.Claim("joint", [("joint", "a")]), runs)[1] == 2
    assert claims.judged(claims.Claim("none", [("joint", "c")]), runs) == ([], 0)


def test_one_training_is_lent_a_spread_and_several_are_not(part: Part) -> None:
    claims = part("clip_headroom", "claims")
    run = {"a": {"x": np.arange(2000) < 1100}, "b": {"x": np.arange(2000) < 1000}}
    plain, lent = (claims.Claim("a", [("a", "b")], spread=spread) for spread in (0.0, 0.03))
    (alone,), _ = claims.judged(plain, [run])
    (wider,), _ = claims.judged(lent, [run])
    assert alone.said() == "held"
    assert wider.said() == "not told apart"  # 5 points, and trainings may differ by 6
    below = alone.alone.value - alone.alone.low
    assert wider.alone.value - wider.alone.low == pytest.approx(
        np.hypot(below, 1.959964 * 0.03), rel=1e-5
    )
    assert wider.alone.value == alone.alone.value
    assert (
        claims.judged(lent, [run, run])[0][0].alone == claims.judged(plain, [run, run])[0][0].alone
    )


def test_adaptation_is_judged_on_the_corruptions_it_saw(part: Part, tmp_path: Path) -> None:
    answers, merges = part("clip_headroom", "answers"), part("clip_headroom", "merges")
    tables = part("clip_headroom", "tables")
    yes, no = np.ones(8, bool), np.zeros(8, bool)
    whole = {f"x|{kind}": no for kind in merges.CORRUPTIONS}
    kept = {f"{merges.LAYER}|corrupted": whole, "base": {"x": yes}}
    kept |= {merges.adapted_to(kind): {f"x|{kind}": yes} for kind in merges.ADAPTED}
    answers.write(tmp_path / "3-adapted.npz", kept)
    (of,) = tables.seeds(tmp_path)
    assert list(of[tables.THERE]) == list(of[tables.ELSEWHERE])
    assert list(of[tables.THERE]) == [f"x|{kind}" for kind in merges.ADAPTED]
    assert "| mean |  |  | 0.0 | 100.0 |" in tables.adapted([of])
    del kept[merges.adapted_to(merges.ADAPTED[0])]
    answers.write(tmp_path / "3-adapted.npz", kept)
    assert tables.THERE not in tables.seeds(tmp_path)[0]


class Asked:
    """Answers with whether an image is bright; remembers what it was given."""

    device = "cpu"

    def __init__(self, tasks: dict[str, Any]) -> None:
        self.tasks, self.base = tasks, {}
        self.kept: dict[tuple[str, str], torch.Tensor] = {}
        self.shown: list[torch.Tensor] = []

    def images(self, task: str, split: str) -> torch.Tensor:
        pixels: torch.Tensor = getattr(self.tasks[task], split).images.pixels
        return pixels

    def put(self, weights: Any) -> None:
        pass

    def right(self, task: str, split: str, pixels: torch.Tensor) -> Any:
        self.shown.append(pixels)
        return (pixels.float().mean(dim=(1, 2, 3)) > 100).numpy()


def test_what_adapts_sees_the_corrupted_images_that_judge_it(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    merges = part("clip_headroom", "merges")
    names = merges.CORRUPTED_TASKS
    asked = Asked({name: task(name, part, 16) for name in names})
    merging = merges.Merging(Path("base"), {name: Path(name) for name in names}, asked, 7)
    monkeypatch.setattr(merges, "CORRUPTED", 5)
    seen: dict[str, Any] = {}
    monkeypatch.setattr(merging, "fused", lambda method, **options: seen.update(options) or {})
    asks = dict(merging.part("adapted"))
    assert list(asks) == [merges.adapted_to(kind) for kind in merges.ADAPTED]
    found = asks[merges.adapted_to("gaussian_noise")]()
    assert list(found[merges.adapted_to("gaussian_noise")]) == [
        f"{name}|gaussian_noise" for name in names
    ]
    assert (seen["steps"], seen["layers"], len(seen["tasks"])) == (7, "layer", len(names))
    for name, data, judging in zip(names, seen["tasks"], asked.shown, strict=True):
        whole = stockpot.corrupt(asked.images(name, "test"), "gaussian_noise", 3, seed=0)
        assert torch.equal(data.images.pixels, whole)
        assert torch.equal(judging, whole[:5])
        assert data.fingerprint != asked.tasks[name].test.fingerprint


def test_every_part_has_its_merges_and_each_is_in_one(part: Part) -> None:
    merges, study = part("clip_headroom", "merges"), part("clip_headroom", "study")
    merging = merges.Merging(Path("base"), {}, Asked({}), 1)
    names = [name for part in study.SIZES[""].parts for name, _ in merging.part(part)]
    assert len(set(names)) == len(names)
    assert {*merges.PLAIN, *merges.STATISTICS, *merges.LEARNING, merges.BASE} <= set(names)
    (second,) = study.SIZES["second"].parts
    assert [name for name, _ in merging.part(second)] == list(merges.SECOND)


def test_a_part_goes_on_where_time_ended(part: Part, tmp_path: Path) -> None:
    study = part("clip_headroom", "study")
    given = SimpleNamespace(folder=tmp_path, size="second", device="cpu", toy=True, expert="{}",
                            out=tmp_path / "out", began=0.0, seconds=float("inf"))  # fmt: skip
    run = study.Run(given, 3, {}, None)
    made: list[str] = []
    ends = [-1.0]

    def asks(part: str) -> Iterator[tuple[str, Callable[[], Any]]]:
        for name in "abc":
            yield name, lambda name=name: made.append(name) or {name: {"x": np.ones(3, bool)}}
            if name == "b" and ends:
                given.seconds = ends.pop()

    merging = SimpleNamespace(part=asks, seconds={})
    run.folder.mkdir()
    with pytest.raises(study.TooLateError):
        run.merged("second", merging)
    assert "second" not in run.log
    kept = study.read_answers(tmp_path / "out" / "second" / "3-second.npz")
    assert (list(kept), made) == (["a", "b"], ["a", "b"])
    given.seconds = float("inf")
    run.merged("second", merging)
    assert made == ["a", "b", "c"]
    assert "second" in run.log
    assert (tmp_path / "answers" / "second" / "3-log.json").exists()


def test_trainings_at_once_begin_with_the_longest_and_stop_when_late(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = part("clip_headroom", "at_once")
    begun: list[str] = []
    monkeypatch.setattr(at_once, "_follow", lambda order: begun.append(order.data) or 1.0)
    orders = [
        at_once.Order(name, Path("base"), None, 0, "cpu", Path(name), steps)
        for name, steps in (("a", 4), ("b", 4), ("joint", 6))
    ]
    with ThreadPoolExecutor(1) as pool:
        found = [order.data for order, _ in at_once.Hands(pool).all(orders, lambda: False)]
    assert begun == ["joint", "a", "b"]
    assert sorted(found) == ["a", "b", "joint"]
    with at_once.hands(1, Path("tasks"), None, "cpu") as none:
        assert none is None

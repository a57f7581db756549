"""The pools with headroom: what is kept, mixed, named and judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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


def task(name: str, part: Part) -> Any:
    tasks = part("clip_headroom", "tasks")
    labels = torch.arange(20) % 2
    pixels = (labels * 200).to(torch.uint8)[:, None, None, None].expand(20, 3, 8, 8).contiguous()
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
    tables = part("clip_headroom", "tables")
    low, high = np.arange(200) < 80, np.arange(200) < 120
    runs = [
        {"joint": {"x": high}, "a": {"x": low}, "b": {"x": low}},
        {"joint": {"x": high}, "a": {"x": low}},
    ]
    claim = tables.Claim("joint", [("joint", "a"), ("joint", "b")])
    parts, count = tables.judged(claim, runs)
    assert (len(parts), count) == (2, 1)
    assert tables.judged(tables.Claim("joint", [("joint", "a")]), runs)[1] == 2
    assert tables.judged(tables.Claim("none", [("joint", "c")]), runs) == ([], 0)

"""Fusing as users do it: from files into folders, with options, and with mistakes."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoModelForImageClassification,
    CLIPConfig,
    CLIPModel,
    CLIPVisionConfig,
    CLIPVisionModel,
    ViTConfig,
    ViTForImageClassification,
)

import stockpot
from stockpot.errors import BadCheckpointError, BadParameterError, UnknownNameError, UserError
from stockpot.fuse import fusers
from stockpot.fuse.parameters import check_parameters
from stockpot.fuse.record import fusion_record
from stockpot.fuse.run import fuse, plan, sweep
from stockpot.fuse.stream import Stream

SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "image_size": 8, "patch_size": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A base and three fine-tuned ViT classifiers as folders."""
    root = tmp_path_factory.mktemp("pool")
    model = ViTForImageClassification(ViTConfig(**SIZES, num_labels=4))
    paths = {}
    for number, name in enumerate(["base", "m0", "m1", "m2"]):
        generator = torch.Generator().manual_seed(number)
        for value in model.parameters():
            value.data += 0.02 * torch.randn(value.shape, generator=generator)
        model.save_pretrained(root / name)
        (root / name / "preprocessor_config.json").write_text('{"size": 8}')
        paths[name] = root / name
    return paths


def members(pool: dict[str, Path]) -> list[Path]:
    return [pool["m0"], pool["m1"], pool["m2"]]


def weights(folder: Path) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        state.update(load_file(path))
    return state


def test_a_folder_loads_with_transformers(pool: dict[str, Path], tmp_path: Path) -> None:
    out = fuse("ties", members(pool), base=pool["base"], out=tmp_path / "out", density=0.2)
    assert out == tmp_path / "out"
    model, info = AutoModelForImageClassification.from_pretrained(out, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert model(torch.zeros(1, 3, 8, 8)).logits.shape == (1, 4)
    assert json.loads((out / "preprocessor_config.json").read_text()) == {"size": 8}


def test_the_card_says_how_it_was_made(pool: dict[str, Path], tmp_path: Path) -> None:
    out = fuse(
        "task_arithmetic", members(pool), base=pool["base"], out=tmp_path / "out", scale=0.4,
        command="stockpot fuse task_arithmetic ...",
    )  # fmt: skip
    card = (out / "README.md").read_text()
    assert "stockpot fuse task_arithmetic ..." in card
    assert "scale=0.4" in card
    record = json.loads((out / "stockpot.json").read_text())
    assert (record["verb"], record["method"]) == ("fuse", "task_arithmetic")
    assert record["parameters"]["scale"] == 0.4
    assert [parent["role"] for parent in record["inputs"]] == ["base", *["member"] * 3]
    import hashlib

    want = hashlib.sha256((pool["m1"] / "model.safetensors").read_bytes()).hexdigest()
    assert record["inputs"][2]["files"] == {"model.safetensors": want}
    assert want in card


@pytest.mark.parametrize(
    ("method", "stages"), [("average", ["merge"]), ("ties", ["look", "merge"])]
)
def test_the_record_tells_where_the_time_went(
    method: str,
    stages: list[str],
    pool: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(*given: Any) -> None:
        time.sleep(0.03)
        walk(*given)

    walk = Stream.walk
    monkeypatch.setattr(Stream, "walk", slow)
    out = fuse(method, members(pool), base=pool["base"], out=tmp_path / "out")
    told = json.loads((out / "stockpot.json").read_text())["details"]
    assert all(told["stages"][name] >= 0.03 for name in stages)
    assert sum(told["stages"].values()) == pytest.approx(told["seconds"], abs=0.04)
    (line,) = re.findall(r"- seconds: (.*)", (out / "README.md").read_text())
    assert line.startswith(f"{told['seconds']} (")
    assert f"merge {told['stages']['merge']}" in line


def test_the_public_name_works(pool: dict[str, Path]) -> None:
    got = stockpot.fuse("average", members(pool))
    assert set(got) == set(weights(pool["m0"]))


def test_shards_and_dtype(pool: dict[str, Path], tmp_path: Path) -> None:
    out = fuse("average", members(pool), out=tmp_path / "out", max_shard="3KB", dtype="bf16")
    assert len(list(out.glob("*.safetensors"))) > 2
    assert {value.dtype for value in weights(out).values()} == {torch.bfloat16}
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"
    model = AutoModelForImageClassification.from_pretrained(out)
    assert model.dtype == torch.bfloat16


def test_names_can_be_given(pool: dict[str, Path], tmp_path: Path) -> None:
    named = {"cars": pool["m0"], "birds": pool["m1"]}
    models = fuse("tall_mask", named, base=pool["base"])
    assert list(models) == ["cars", "birds"]
    out = fuse("emr", named, base=pool["base"], out=tmp_path / "out")
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == ["birds", "cars"]
    AutoModelForImageClassification.from_pretrained(out / "cars")


def test_clip_layouts_and_a_whole_model_fuse(tmp_path: Path) -> None:
    torch.manual_seed(0)
    text = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 8, "vocab_size": 20, "max_position_embeddings": 6}  # fmt: skip
    whole = CLIPModel(CLIPConfig(vision_config=SIZES, text_config=text, projection_dim=8))
    whole.save_pretrained(tmp_path / "whole")
    vision = CLIPVisionModel(CLIPVisionConfig(**SIZES))
    vision.save_pretrained(tmp_path / "vision")
    state = {f"vision_model.{k.removeprefix('vision_model.')}": v + 0.1
             for k, v in vision.state_dict().items()}  # fmt: skip
    (tmp_path / "old").mkdir()
    save_file(state, tmp_path / "old" / "model.safetensors")
    paths = [tmp_path / name for name in ("vision", "old")]
    out = fuse("task_arithmetic", paths, base=tmp_path / "whole", out=tmp_path / "out", scale=0.5)
    fused, info = CLIPModel.from_pretrained(out, output_loading_info=True)
    assert not info["missing_keys"]
    assert torch.equal(fused.text_projection.weight, whole.text_projection.weight)
    assert not torch.equal(
        fused.vision_model.post_layernorm.weight, whole.vision_model.post_layernorm.weight
    )
    # A method that has no use for a base still writes into it what it made of vision towers.
    mean = fuse("average", paths, base=tmp_path / "whole", out=tmp_path / "mean")
    fused, info = CLIPModel.from_pretrained(mean, output_loading_info=True)
    assert not info["missing_keys"]
    assert torch.equal(fused.text_projection.weight, whole.text_projection.weight)
    assert torch.equal(fused.visual_projection.weight, whole.visual_projection.weight)
    for (name, got), one in zip(
        fused.vision_model.named_parameters(), vision.parameters(), strict=True
    ):
        torch.testing.assert_close(got, one + 0.05, msg=name)
    back = fuse("average", [tmp_path / "vision", tmp_path / "whole", tmp_path / "old"])
    assert set(back) == set(weights(tmp_path / "vision"))


def test_parameters_by_glob_and_by_depth(pool: dict[str, Path]) -> None:
    base, first = weights(pool["base"]), weights(pool["m0"])
    call = {"members": [pool["m0"]], "base": pool["base"]}
    got = fuse("task_arithmetic", **call, scale={"*classifier*": 0.0, "*": 1.0})
    assert torch.equal(got["classifier.weight"], base["classifier.weight"])
    inside = next(name for name in got if ".0." in name and name.endswith("weight"))
    torch.testing.assert_close(got[inside], first[inside])
    # Text, as a command line gives it; two layers: the first has 0, the last and the head have 1.
    got = fuse("task_arithmetic", **call, scale="{depth: [0, 1]}")
    assert torch.equal(got[inside], base[inside])
    deep = inside.replace(".0.", ".1.")
    torch.testing.assert_close(got[deep], first[deep])
    torch.testing.assert_close(got["classifier.weight"], first["classifier.weight"])
    # Per-member weights may themselves vary.
    got = fuse("weighted", [pool["m0"], pool["m1"]], weights=[[1, 0], [0, 1]])
    assert torch.equal(got[inside], first[inside])
    assert torch.equal(got[deep], weights(pool["m1"])[deep])


def test_a_sweep_equals_separate_runs_and_shares_passes(
    pool: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = []
    original = Stream.walk
    monkeypatch.setattr(
        Stream, "walk", lambda self, *rest: (walks.append(1), original(self, *rest))[1]
    )
    scales = [0.1, 0.5, 1.0]
    points = sweep("ties", members(pool), base=pool["base"], key="scale", values=scales)
    assert len(walks) == 4  # three looks and one merge, whatever the number of points
    for scale, got in zip(scales, points.values(), strict=True):
        want = fuse("ties", members(pool), base=pool["base"], scale=scale)
        assert all(torch.equal(got[name], want[name]) for name in want)
    folders = sweep(
        "wise_ft", [pool["m0"], pool["m1"]], key="alpha", values=[0, 1], out=tmp_path / "curve"
    )
    assert list(folders) == ["alpha=0", "alpha=1"]
    end = weights(folders["alpha=1"])
    assert all(torch.equal(end[name], want) for name, want in weights(pool["m1"]).items())


def test_a_plan_costs_nothing_and_tells_the_cost(pool: dict[str, Path]) -> None:
    told = plan("ties", members(pool), base=pool["base"])
    size = sum(value.numel() for value in weights(pool["m0"]).values())
    assert (told.passes, told.members, told.weights) == (4, 3, size)
    assert told.read_bytes == 4 * 4 * size * 4
    assert told.write_bytes == size * 4
    assert "4 passes" in str(told)


def test_accumulation_in_fp32_and_fp64() -> None:
    pool = [{"w": torch.tensor([x], dtype=torch.bfloat16)} for x in (256.0, 1.0, 1.0, 1.0)]
    # In bf16, 256 + 1 is 256: the sum would lose every one.
    assert fuse("average", pool, dtype="fp32")["w"].item() == 259 / 4
    pool = [{"w": torch.tensor([x])} for x in (1e8, 1.0, 1.0, 1.0)]
    assert fuse("average", pool, accumulate="fp64", dtype="fp64")["w"].item() == (1e8 + 3) / 4
    assert fuse("average", pool, dtype="fp64")["w"].item() == 1e8 / 4


def test_modules_are_members_too() -> None:
    layers = [torch.nn.Linear(3, 2) for _ in range(2)]
    got = fuse("average", layers)
    torch.testing.assert_close(got["weight"], (layers[0].weight + layers[1].weight).detach() / 2)


def test_the_base_may_be_the_first_of_a_pair(pool: dict[str, Path]) -> None:
    one = fuse("wise_ft", [pool["m0"]], base=pool["base"], alpha=0.3)
    two = fuse("wise_ft", [pool["base"], pool["m0"]], alpha=0.3)
    assert all(torch.equal(one[name], two[name]) for name in two)


MISTAKES: list[tuple[str, dict[str, Any], type[UserError], str]] = [
    ("tiez", {}, UnknownNameError, "Did you mean ties"),
    ("ties", {"base": None}, BadParameterError, "needs a base"),
    ("ties", {"density": 1.5}, BadParameterError, "share from 0 to 1"),
    ("ties", {"dense": 0.2}, BadParameterError, "unknown parameter 'dense'"),
    ("ties", {"reduce": "median"}, BadParameterError, "reduce"),
    ("weighted", {}, BadParameterError, "'weights' is required"),
    ("weighted", {"weights": [1.0]}, BadParameterError, r"one per member \(3\), got 1"),
    ("weighted", {"weights": [1.0, -1.0, 0.0]}, BadParameterError, "add up to 0"),
    ("slerp", {"base": None}, BadParameterError, "exactly 2 models.*got 3"),
    ("average", {"head": "off"}, BadParameterError, "head: expected one of"),
    ("average", {"dtype": "int4"}, BadParameterError, "dtype: expected one of"),
    ("average", {"max_shard": "big"}, BadParameterError, "such as 5GB"),
    ("average", {"save": "learned"}, BadParameterError, "learns nothing"),
    ("ties", {"load": "learned"}, BadParameterError, "learns nothing"),
    ("average", {"device": "cuda"}, BadParameterError, "expected one that torch can use here"),
]


@pytest.mark.parametrize(("method", "settings", "kind", "message"), MISTAKES)
def test_mistakes_are_one_line_and_leave_nothing(
    method: str,
    settings: dict[str, Any],
    kind: type[UserError],
    message: str,
    pool: dict[str, Path],
    tmp_path: Path,
) -> None:
    if settings.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    call = {"base": pool["base"], **settings}
    with pytest.raises(kind, match=message) as caught:
        fuse(method, members(pool), out=tmp_path / "out", **call)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_the_same_file_twice_is_refused(pool: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pool["m0"])
    with pytest.raises(BadCheckpointError, match="are the same file"):
        fuse("average", [pool["m0"], tmp_path / "link"])


def test_another_architecture_is_refused(pool: dict[str, Path], tmp_path: Path) -> None:
    other = ViTForImageClassification(ViTConfig(**{**SIZES, "hidden_size": 32}, num_labels=4))
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(BadCheckpointError, match="another architecture cannot be fused"):
        fuse("average", [pool["m0"], tmp_path / "other"], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_heads_of_other_sizes(pool: dict[str, Path], tmp_path: Path) -> None:
    state = weights(pool["m1"])
    state["classifier.weight"], state["classifier.bias"] = torch.zeros(9, 16), torch.zeros(9)
    pair = [pool["m0"], state]
    with pytest.raises(BadCheckpointError, match="another number of classes"):
        fuse("average", pair)
    dropped = fuse("average", pair, head="drop")
    assert not any("classifier" in name for name in dropped)
    first = fuse("average", pair, head="first")
    assert torch.equal(first["classifier.weight"], weights(pool["m0"])["classifier.weight"])


def test_a_nan_is_named_and_nothing_written(pool: dict[str, Path], tmp_path: Path) -> None:
    state = weights(pool["m1"])
    state["classifier.weight"][1, 2] = float("inf")
    save_file(state, tmp_path / "bad.safetensors")
    with pytest.raises(BadCheckpointError, match=r"bad.*classifier\.weight.*infinite"):
        fuse("average", [pool["m0"], tmp_path / "bad.safetensors"], out=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.safetensors"]


def test_a_corrupt_shard_is_found_before_the_work(pool: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    raw = (pool["m1"] / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(BadCheckpointError, match="cut short or corrupt"):
        fuse("average", [pool["m0"], broken], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_existing_output_is_refused(pool: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "keep").write_text("me")
    with pytest.raises(BadCheckpointError, match="exists already"):
        fuse("average", members(pool), out=tmp_path)
    assert (tmp_path / "keep").read_text() == "me"


def test_a_disk_full_half_way_leaves_nothing(
    pool: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = os.pwrite

    def fill_up(*args: Any) -> int:
        calls.append(1)
        if len(calls) > 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*args)

    monkeypatch.setattr(os, "pwrite", fill_up)
    with pytest.raises(BadCheckpointError, match="disk is full"):
        fuse("average", members(pool), out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_lora_adapter_is_a_member(pool: dict[str, Path], tmp_path: Path) -> None:
    name, _ = lora(pool["base"], tmp_path)
    got = fuse("task_arithmetic", [tmp_path], base=pool["base"], scale=1.0)
    base = weights(pool["base"])
    torch.testing.assert_close(got[name], base[name] + 1.0)
    assert torch.equal(got["classifier.weight"], base["classifier.weight"])


def lora(base: Path, folder: Path, over: Path | None = None, size: float = 0.5) -> tuple[str, Path]:
    """An adapter that adds `2 * size` to every weight of a matrix; its name, and the folder."""
    name = next(n for n in weights(base) if n.endswith("query.weight") or "q_proj.w" in n)
    module = name.removesuffix(".weight")
    factors = {
        f"base_model.model.{module}.lora_A.weight": torch.ones(1, 16),
        f"base_model.model.{module}.lora_B.weight": torch.full((16, 1), size),
    }
    folder.mkdir(exist_ok=True)
    save_file(factors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 2}
    named = {} if over is None else {"base_model_name_or_path": str(over)}
    (folder / "adapter_config.json").write_text(json.dumps(config | named))
    return name, folder


@pytest.mark.parametrize("own", ["m1", None])
def test_an_adapter_beside_the_first_of_a_pair_lies_on_it(
    pool: dict[str, Path], tmp_path: Path, own: str | None
) -> None:
    name, adapter = lora(pool["base"], tmp_path / "lora", pool[own] if own else None)
    got = fuse("wise_ft", [adapter], base=pool["base"], alpha=1.0)
    torch.testing.assert_close(got[name], weights(pool["base"])[name] + 1.0)


def test_what_lies_under_an_adapter_that_is_adapted_counts(
    pool: dict[str, Path], tmp_path: Path
) -> None:
    bottom = Path(shutil.copytree(pool["m1"], tmp_path / "bottom"))
    _, inner = lora(bottom, tmp_path / "inner", bottom)
    _, outer = lora(bottom, tmp_path / "outer", inner, size=0.25)
    ask: list[Callable[[], str]] = [
        lambda: fusion_record("average", [outer, pool["m0"]]).digest,
        lambda: fusion_record("task_arithmetic", [pool["m0"]], base=inner).digest,
    ]
    before = [one() for one in ask]
    changed = {key: value + 1 for key, value in weights(bottom).items()}
    save_file(changed, bottom / "model.safetensors", metadata={"format": "pt"})
    assert all(one() != known for one, known in zip(ask, before, strict=True))


def test_without_hashes_nothing_is_taken_for_what_was_made(
    pool: dict[str, Path], tmp_path: Path
) -> None:
    member = weights(pool["m0"])
    fuse("average", [member, pool["m1"]], out=tmp_path / "out", hashes=False)
    member["classifier.weight"] += 1.0
    with pytest.raises(BadCheckpointError, match="exists already"):
        fuse("average", [member, pool["m1"]], out=tmp_path / "out", hashes=False)


def test_a_folder_without_its_weights_is_not_taken_for_made(
    pool: dict[str, Path], tmp_path: Path
) -> None:
    fuse("average", members(pool), out=tmp_path / "out")
    (tmp_path / "out" / "model.safetensors").unlink()
    with pytest.raises(BadCheckpointError, match="its weights are gone"):
        fuse("average", members(pool), out=tmp_path / "out")


def test_parameters_can_be_checked_alone() -> None:
    entry = fusers.get("ties")
    check_parameters(
        entry, {"density": {"*mlp*": 0.1, "*": {"depth": [0.2, 0.4]}}, "scale": {"depth": [0, 1]}}
    )
    check_parameters(fusers.get("weighted"), {"weights": [[1, 0], [0, 1]]})
    for wrong in ({"density": {"*": 2.0}}, {"densty": 1}, {"scale": {"depth": ["x", "y"]}}):
        with pytest.raises(BadParameterError):
            check_parameters(entry, wrong)

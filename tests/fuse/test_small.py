"""Models kept small: what FusionBench makes, in few bytes, read back as ordinary checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import hundred
import stockpot
from pico import make_dataset
from run_recipes import pico_model
from stockpot.checkpoints.open import read_tensors
from stockpot.checkpoints.record import read_record
from stockpot.errors import BadCheckpointError, BadParameterError, UserError
from stockpot.fuse.run import fuse

DATA = Path(__file__).parents[1] / "oracles" / "data" / "fuse"
RECORDED = load_file(DATA / "fusionbench_small.safetensors")
BASE, POOL = DATA / "base.safetensors", {f"m{i}": DATA / f"m{i}.safetensors" for i in range(3)}


@pytest.mark.parametrize(("case", "shuffle"), [("randes", False), ("randes_shuffled", True)])
def test_randes_is_fusionbenchs(case: str, shuffle: bool, tmp_path: Path) -> None:
    """Bit for bit, in memory and through the folders; changes lack rank, cancel and tie."""
    settings: dict[str, Any] = {"base": BASE, "shuffle": shuffle, "vary": False}
    in_memory = fuse("randes", POOL, **settings)
    out = fuse("randes", POOL, out=tmp_path / "out", **settings)
    seen = 0
    for member, state in in_memory.items():
        opened = read_tensors(out / member)
        for name, values in state.items():
            assert torch.equal(opened[name], values), name
            want = RECORDED.get(f"{case}/{member}/{name}")
            if want is not None:
                assert torch.equal(values, want), (member, name)
                seen += 1
    assert seen == 45


def test_bitdelta_is_fusionbenchs(tmp_path: Path) -> None:
    """A change of rank one, a row of which is no change at all."""
    name = "layers.0.mlp.fc1.weight"
    base, member = ({name: RECORDED[f"bitdelta/{which}"]} for which in ("base", "member"))
    got = fuse("bitdelta", {"m": member}, base=base)["m"][name]
    assert torch.equal(got, RECORDED["bitdelta/made"])


def test_a_hundred_members_share_one_change() -> None:
    """Each comes back as its seed says, which is a closed form."""
    name, other = "layers.0.weight", "layers.0.fc1.weight"
    states = [hundred.base(), *(hundred.member(number) for number in range(hundred.COUNT))]
    base, *members = ({other: state[name]} for state in states)
    made = fuse("randes", members, base=base, vary=False)
    signs = torch.stack([_signs(42 + number, 5) for number in range(hundred.COUNT)])
    changes = torch.stack([member[other] - base[other] for member in members])
    shared = (changes.double() * signs[:, None]).sum(0)
    for state, own in zip(made.values(), signs, strict=True):
        want = base[other] + 0.5 * own * shared
        torch.testing.assert_close(state[other].double(), want, rtol=0, atol=1e-5)


def _signs(seed: int, width: int) -> Tensor:
    return torch.from_numpy(np.random.RandomState(seed).binomial(p=0.5, n=1, size=width) * 2.0 - 1)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("pool")
    return {name: pico_model(place / name, seed) for seed, name in enumerate(("base", "a", "b"))}


def test_a_small_model_is_loaded_measured_and_fused_like_any(
    pool: dict[str, Path], tmp_path: Path
) -> None:
    members = {"a": pool["a"], "b": pool["b"]}
    data = make_dataset(12)
    for method in ("bitdelta", "randes"):
        states = fuse(method, members, base=pool["base"])
        out = fuse(method, members, base=pool["base"], out=tmp_path / method)
        whole = tmp_path / f"{method}-whole"
        shutil.copytree(pool["a"], whole)
        save_file(states["a"], whole / "model.safetensors", metadata={"format": "pt"})
        pixels = data.images.pixels  # type: ignore[attr-defined]
        with torch.no_grad():
            got, want = (stockpot.load_model(path)(pixels) for path in (out / "a", whole))
        assert torch.equal(got, want)
        scores = stockpot.measure({"s": str(out / "a"), "w": str(whole)}, "clean", data=data)
        assert scores[0].scores[0].value == scores[1].scores[0].value
        soup = fuse("average", [out / "a", pool["b"]])
        both = fuse("average", [states["a"], pool["b"]])
        assert all(torch.equal(soup[name], both[name]) for name in both)


def test_the_record_tells_the_bytes(pool: dict[str, Path], tmp_path: Path) -> None:
    members = {"a": pool["a"], "b": pool["b"]}
    for method in ("bitdelta", "randes"):
        out = fuse(method, members, base=pool["base"], out=tmp_path / method)
        for member in members:
            record = read_record(out / member)
            assert record is not None
            told = record.details["small"]
            files = [out / member / "small.safetensors", out / member / "small_config.json"]
            assert told["bytes"] == sum(path.stat().st_size for path in files if path.is_file())
            kept = load_file(pool["a"] / "model.safetensors").values()
            assert told["whole_bytes"] == sum(v.numel() * v.element_size() for v in kept)
            shared = out / "shared" / "model.safetensors"
            assert told["shared_bytes"] == (shared.stat().st_size if method == "randes" else 0)
    # Of a matrix: 32 bits of every weight have become one.
    saved = load_file(tmp_path / "bitdelta" / "a" / "small.safetensors")
    infos = load_file(pool["a"] / "model.safetensors")
    packed = [name.removesuffix(".bits") for name in saved if name.endswith(".bits")]
    assert len(packed) >= 6
    assert all(len(saved[f"{name}.bits"]) == -(-infos[name].numel() // 8) for name in packed)


def test_what_cannot_be_kept_small(pool: dict[str, Path], tmp_path: Path) -> None:
    members = {"a": pool["a"]}
    with pytest.raises(BadParameterError, match="a base in a folder or file"):
        fuse("bitdelta", members, base=read_tensors(pool["base"]), out=tmp_path / "x")
    with pytest.raises(BadParameterError, match="leave out as_lora"):
        fuse("bitdelta", members, base=pool["base"], out=tmp_path / "x", as_lora=2)
    scale = {"*attention*": 0.5, "*": 1.0}
    with pytest.raises(BadParameterError, match="one value per parameter"):
        fuse("randes", members, base=pool["base"], out=tmp_path / "x", scale=scale)
    assert not (tmp_path / "x").exists()
    # A bit has a size in each matrix, which may be another in each.
    out = fuse("bitdelta", members, base=pool["base"], out=tmp_path / "x", scale=scale)
    want = fuse("bitdelta", members, base=pool["base"], scale=scale)["a"]
    got = read_tensors(out / "a")
    assert all(torch.equal(got[name], values) for name, values in want.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "magic"}, "expected a kind of small model"),
        ({"names": []}, "does not name its tensors"),
        ({"shared": "../../elsewhere"}, "without"),
        ({"base_model_name_or_path": ""}, "does not name"),
        ({"names": {"stranger.weight": "float32"}}, "stranger.weight"),
        ({"names": {"vit.layernorm.weight": "dataloader"}}, "cannot be read|dataloader"),
    ],
)
def test_a_spoilt_folder_is_refused_in_one_line(
    change: dict[str, Any], message: str, pool: dict[str, Path], tmp_path: Path
) -> None:
    out = fuse("bitdelta", {"a": pool["a"]}, base=pool["base"], out=tmp_path / "out") / "a"
    path = out / "small_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BadCheckpointError, match=message) as told:
        read_tensors(out)
    assert isinstance(told.value, UserError)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"superposed": ["nosuch"]}, "does not name what is superposed"),
        ({"superposed": 7}, "does not name what is superposed"),
        ({"seed": "x"}, "lacks seed, scale or vary"),
    ],
)
def test_a_spoilt_superposition_is_refused_in_one_line(
    change: dict[str, Any], message: str, pool: dict[str, Path], tmp_path: Path
) -> None:
    members = {name: pool[name] for name in ("a", "b")}
    out = fuse("randes", members, base=pool["base"], out=tmp_path / "out") / "a"
    path = out / "small_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BadCheckpointError, match=message):
        read_tensors(out)

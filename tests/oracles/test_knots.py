"""KnOTS equals its authors' program on LoRAs, which stay factors, and its formula elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from other_machine import on_another_machine
from stockpot.fuse.fuser import Slab
from stockpot.fuse.run import fuse

RECORDED = load_file(Path(__file__).parent / "data" / "fuse" / "knots.safetensors")
NAMES = sorted(key.removeprefix("base/") for key in RECORDED if key.startswith("base/"))
CASES: dict[str, dict[str, Any]] = {
    "ties20": {},
    "ties50_sum": {"density": 0.5, "scale": 1.0, "reduce": "sum"},
    "ties100": {"density": 1.0, "scale": 0.7},
}
State = dict[str, torch.Tensor]


def recorded(case: str) -> State:
    return {name: RECORDED[f"{case}/{name}"] for name in NAMES}


def adapters(place: Path) -> tuple[Path, list[Path]]:
    """The LoRAs as peft writes them, over the base in a file."""
    base = place / "base.safetensors"
    save_file(recorded("base"), base)
    folders = []
    for number in range(3):
        folder = place / f"lora{number}"
        folder.mkdir()
        tensors = {}
        for name in NAMES:
            module = f"base_model.model.{name.removesuffix('.weight')}"
            for part in "AB":
                values = RECORDED[f"m{number}/{name}/{part}"]
                # Half of what is recorded, with an alpha that doubles it.
                tensors[f"{module}.lora_{part}.weight"] = values / (2 if part == "A" else 1)
        rank = RECORDED[f"m{number}/{NAMES[0]}/A"].shape[0]
        config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        save_file(tensors, folder / "adapter_model.safetensors")
        folders.append(folder)
    return base, folders


def dense() -> list[State]:
    return [
        {
            name: RECORDED[f"base/{name}"]
            + RECORDED[f"m{number}/{name}/B"] @ RECORDED[f"m{number}/{name}/A"]
            for name in NAMES
        }
        for number in range(3)
    ]


@pytest.mark.parametrize("case", CASES)
def test_loras_stay_factors(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, folders = adapters(tmp_path)

    def refuse(slab: Slab, index: int) -> torch.Tensor:
        raise AssertionError(f"the change of {slab.name} was made whole")

    monkeypatch.setattr(Slab, "delta", refuse)
    got = fuse("knots", folders, base=base, **CASES[case])
    for name, want in recorded(case).items():
        torch.testing.assert_close(got[name], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_whole_models(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_another_machine(monkeypatch)
    got = fuse("knots", dense(), base=recorded("base"), **CASES[case])
    for name, want in recorded(case).items():
        torch.testing.assert_close(got[name], want, rtol=1e-5, atol=1e-6)


def test_an_adapter_comes_out(tmp_path: Path) -> None:
    """The merge has no more ranks than the members together, so that a LoRA holds all of it."""
    base, folders = adapters(tmp_path)
    out = fuse("knots", folders, base=base, as_lora=6, out=tmp_path / "out")
    factors = load_file(out / "adapter_model.safetensors")
    config = json.loads((out / "adapter_config.json").read_text())
    for name, want in recorded("ties20").items():
        module = f"base_model.model.{name.removesuffix('.weight')}"
        change = factors[f"{module}.lora_B.weight"] @ factors[f"{module}.lora_A.weight"]
        change *= config["lora_alpha"] / config["r"]
        torch.testing.assert_close(RECORDED[f"base/{name}"] + change, want, rtol=1e-5, atol=1e-5)


def test_a_hundred_members_by_the_formula() -> None:
    """More members than ranks; one matrix lacks rank, and another does not change."""
    draw = torch.Generator().manual_seed(1)
    base = {name: torch.randn(8, 6, generator=draw) for name in ("a", "b", "c")}
    sides = torch.randn(8, 2, generator=draw)
    members = []
    for _ in range(100):
        change = {"a": torch.randn(8, 6, generator=draw), "c": torch.zeros(8, 6)}
        change["b"] = sides @ torch.randn(2, 6, generator=draw)
        members.append({name: value + 0.1 * change[name] for name, value in base.items()})
    changes = {
        name: [(m[name] - start).double().numpy() for m in members] for name, start in base.items()
    }
    bases, coordinates = {}, {}
    for name, each in changes.items():
        left, values, _ = np.linalg.svd(np.concatenate(each, axis=1), full_matrices=False)
        bases[name] = left[:, values > 1e-5 * np.linalg.norm(values)]
        coordinates[name] = np.stack([bases[name].T @ change for change in each])
    assert [bases[name].shape[1] for name in "abc"] == [8, 2, 0]
    rows = np.concatenate([coordinates[name].reshape(100, -1) for name in "abc"], axis=1)
    kept = rows.shape[1] - int(0.2 * rows.shape[1])
    limits = np.sort(np.abs(rows), axis=1)[:, kept - 1]
    got = fuse("knots", members, base=base)
    for name, start in base.items():
        trimmed = coordinates[name] * (np.abs(coordinates[name]) >= limits[:, None, None])
        agreeing = trimmed * (np.sign(trimmed) == np.sign(trimmed.sum(0)))
        merged = agreeing.sum(0) / np.maximum((agreeing != 0).sum(0), 1)
        want = start.double() + 0.6 * torch.from_numpy(bases[name] @ merged)
        torch.testing.assert_close(got[name].double(), want, rtol=1e-5, atol=1e-5)


def test_what_is_dropped_is_made_up_for() -> None:
    """With every coordinate kept and equal members, the mean over many is what there was."""
    draw = torch.Generator().manual_seed(2)
    base = {"w": torch.randn(30, 20, generator=draw)}
    member = {"w": base["w"] + 0.1 * torch.randn(30, 20, generator=draw)}
    settings: dict[str, Any] = {"base": base, "density": 1.0, "scale": 1.0, "reduce": "sum"}
    got = fuse("knots", [member] * 25, **settings, drop=0.5, weights=[1 / 25] * 25)
    change, found = member["w"] - base["w"], got["w"] - base["w"]
    assert 0.15 < float((found - change).norm() / change.norm()) < 0.25  # sqrt(1 / 25) = 0.2
    again = fuse("knots", [member] * 2, **settings, drop=0.5, seed=1)
    assert not torch.equal(again["w"], fuse("knots", [member] * 2, **settings, drop=0.5)["w"])

"""Files as others publish them: shards without an index, eight bits, wrappers' names."""

from __future__ import annotations

import json
import shutil
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import stockpot
from stockpot.checkpoints.open import open_checkpoint, read_tensors
from stockpot.errors import BadCheckpointError

STATE = {f"layer{i}.weight": torch.arange(6.0).view(2, 3) + i for i in range(3)}
State = dict[str, Tensor]


def shards(folder: Path, suffix: str, *, state: State = STATE, stem: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    stem = stem or ("model" if suffix == "safetensors" else "pytorch_model")
    names = list(state)
    parts = [names[0::2], names[1::2]]
    for number, part in enumerate(parts, start=1):
        path = folder / f"{stem}-{number:05d}-of-{len(parts):05d}.{suffix}"
        content = {name: state[name].contiguous() for name in part}
        if suffix == "bin":
            torch.save(content, path)
        else:
            save_file(content, path)
    return folder


def same(found: State, wanted: State) -> bool:
    assert set(found) == set(wanted)
    return all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_shards_without_an_index_are_one_model(suffix: str, tmp_path: Path) -> None:
    folder = shards(tmp_path / "m", suffix)
    assert same(read_tensors(folder), STATE)
    one = next(folder.glob("*00002-of-*"))
    assert same(read_tensors(one), STATE)
    one.unlink()
    with pytest.raises(BadCheckpointError, match="shard 2 of 2 is missing beside"):
        open_checkpoint(folder)


def test_safetensors_are_preferred_and_two_sets_are_not_mixed(tmp_path: Path) -> None:
    other = {name: values + 100 for name, values in STATE.items()}
    folder = shards(shards(tmp_path / "m", "bin", state=other), "safetensors")
    assert same(read_tensors(folder), STATE)
    shards(folder, "safetensors", stem="ema", state=other)
    assert same(read_tensors(folder / "ema-00001-of-00002.safetensors"), other)
    with pytest.raises(BadCheckpointError, match=r"expected model\.safetensors"):
        open_checkpoint(folder)


def test_a_model_of_unindexed_shards_is_loaded(tmp_path: Path) -> None:
    known = Path(stockpot.__file__).parent / "zoo" / "models" / "icons-vit"
    folder = tmp_path / "m"
    shutil.copytree(known, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    shards(folder, "safetensors", state=load_file(known / "model.safetensors"))
    found, wanted = stockpot.load_model(folder), stockpot.load_model(known)
    assert same(found.state_dict(), wanted.state_dict())


SCALES = {
    "one": torch.tensor(0.5),
    "a row": torch.tensor([[0.5], [2.0], [4.0]]),
    "a block": torch.tensor([[0.5, 2.0], [4.0, 8.0]]),
}
LARGE = torch.tensor([[1.0, -2.0, 3.5, 448.0], [0.5, 1.0, 2.0, 4.0], [9.0, 8.0, 7.0, 6.0]])
DEQUANTISED = {
    "one": LARGE * 0.5,
    "a row": LARGE * SCALES["a row"],
    # The configuration says that blocks are 2 x 2, so the last one is half a block.
    "a block": LARGE
    * torch.tensor([[0.5, 0.5, 2.0, 2.0], [0.5, 0.5, 2.0, 2.0], [4.0, 4.0, 8.0, 8.0]]),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("one", "a.weight_scale"),
        ("one", "a.scale_weight"),
        ("a row", "a.weight_scale"),
        ("a block", "a.weight_scale_inv"),
    ],
)
def test_eight_bits_with_scales_are_the_numbers_they_stand_for(
    kind: str, name: str, tmp_path: Path
) -> None:
    settings = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 2]}}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x", **settings}))
    state = {
        "a.weight": LARGE.to(torch.float8_e4m3fn),
        name: SCALES[kind],
        "a.input_scale": torch.tensor(3.0),
        "b": torch.ones(2),
    }
    save_file(state, tmp_path / "model.safetensors")
    fused = stockpot.fuse("average", [tmp_path], out=tmp_path / "out")
    assert same(read_tensors(fused), {"a.weight": DEQUANTISED[kind], "b": torch.ones(2)})
    assert json.loads((fused / "config.json").read_text()) == {"model_type": "x"}


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bits_alone_are_cast(dtype: torch.dtype) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(dtype)
    finite = every[torch.isfinite(every.float())]
    other = finite.view(torch.uint8).flip(0).view(dtype)
    fused = stockpot.fuse("average", [{"w": finite}, {"w": other}], dtype="fp32")["w"]
    assert torch.equal(fused, (finite.float() + other.float()) / 2)
    assert open_checkpoint({"w": finite}).read("w").dtype is torch.bfloat16


def test_as_many_blocks_as_rows_are_blocks() -> None:
    """As in DeepSeek-V3, whose output projections of 7168 x 16384 have 56 x 128 blocks."""
    scales = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    state = {
        "a.weight": torch.ones(4, 6).to(torch.float8_e4m3fn),
        "a.weight_scale_inv": scales,
    }
    wanted = scales.repeat_interleave(2, 0).repeat_interleave(3, 1)
    assert torch.equal(open_checkpoint(state).read("a.weight"), wanted)


def test_scales_that_do_not_fit_are_named() -> None:
    state = {"a.weight": LARGE.to(torch.float8_e5m2), "a.weight_scale": torch.ones(5, 7)}
    with pytest.raises(BadCheckpointError, match=r"scales of 'a\.weight' do not fit"):
        open_checkpoint(state).read("a.weight")


def test_a_model_in_eight_bits_is_loaded_with_its_scales(tmp_path: Path) -> None:
    known = Path(stockpot.__file__).parent / "zoo" / "models" / "icons-vit"
    state = load_file(known / "model.safetensors")
    name = next(name for name in state if name.endswith("query.weight") or "q_proj.weight" in name)
    scale = state[name].abs().amax(1, keepdim=True).float() / 448
    eight = (state[name].float() / scale).to(torch.float8_e4m3fn)
    for folder, change in (
        ("eight", {name: eight, f"{name}_scale": scale}),
        ("plain", {name: eight.float() * scale}),
    ):
        shutil.copytree(known, tmp_path / folder)
        save_file({**state, **change}, tmp_path / folder / "model.safetensors")
    found, wanted = stockpot.load_model(tmp_path / "eight"), stockpot.load_model(tmp_path / "plain")
    assert same(found.state_dict(), wanted.state_dict())


def test_old_torch_files_of_torchvision_and_dataparallel_fuse(tmp_path: Path) -> None:
    """A legacy archive, a wrapped one and a plain one; `fc` is the head of torchvision."""

    def resnet(value: float, classes: int) -> nn.Module:
        net = nn.Sequential(
            OrderedDict(conv1=nn.Conv2d(1, 2, 1), bn1=nn.BatchNorm2d(2), fc=nn.Linear(2, classes))
        )
        for tensor in net.parameters():
            nn.init.constant_(tensor, value)
        return net

    torch.save(
        resnet(0.0, 3).state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False
    )
    wrapped = nn.DataParallel(resnet(3.0, 4))
    torch.save({"state_dict": wrapped.state_dict(), "epoch": 9}, tmp_path / "wrapped.pth.tar.pt")
    torch.save({"model": resnet(6.0, 3).state_dict()}, tmp_path / "new.pt")
    members = [tmp_path / name for name in ("old.pth", "wrapped.pth.tar.pt", "new.pt")]
    fused = stockpot.fuse("average", members, head="first")
    assert float(fused["conv1.weight"].mean()) == 3.0
    assert fused["fc.weight"].shape == (3, 2)
    assert float(fused["fc.weight"].abs().sum()) == 0.0

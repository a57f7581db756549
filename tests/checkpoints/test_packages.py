"""Models that timm and open_clip name, as members and bases; the packages are stand-ins here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import stockpot
from stockpot.checkpoints import packages
from stockpot.checkpoints.open import read_tensors
from stockpot.checkpoints.record import read_record
from stockpot.errors import BadCheckpointError, MissingDependencyError
from stockpot.models.load import identify

TINY = Path(__file__).parents[1] / "oracles" / "data" / "tiny_clip"
CONFIG = json.loads((TINY / "open_clip_config.json").read_text())
VALUES = {"one": 1.0, "two": 3.0}


class Network(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 3)
        nn.init.constant_(self.fc.weight, value)
        self.num_classes = 3
        self.pretrained_cfg = {
            "architecture": "net",
            "mean": (0.5,) * 3,
            "crop_pct": 0.9,
            "url": "",
        }


class Loaded(nn.Module):
    """A module whose state dict is what was given."""

    def __init__(self, state: dict[str, Any]) -> None:
        super().__init__()
        self.state = state

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        return self.state


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    made: dict[str, Any] = {}

    def timm_model(name: str, *, pretrained: bool) -> nn.Module:
        assert pretrained
        if name not in VALUES:
            raise RuntimeError("No pretrained weights exist.\nUse another")
        return Network(VALUES[name])

    def clip_model(name: str, **options: Any) -> nn.Module:
        made.update(options)
        return Loaded(load_file(options["pretrained"]))

    open_clip = SimpleNamespace(
        create_model=clip_model,
        list_pretrained=lambda: [("tiny", "openai"), ("tiny", "laion"), ("other", "x")],
        get_model_config=lambda name: {**CONFIG["model_cfg"], "quick_gelu": False},
        get_model_preprocess_cfg=lambda model: CONFIG["preprocess_cfg"],
        get_pretrained_cfg=lambda name, tag: {"quick_gelu": True} if "openai" in tag else {},
    )
    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=timm_model))
    monkeypatch.setitem(sys.modules, "open_clip", open_clip)
    packages._named_model.cache_clear()
    yield made
    packages._named_model.cache_clear()


def test_timm_names_are_members(tmp_path: Path) -> None:
    out = stockpot.fuse("average", ["timm:one", "timm:two"], out=tmp_path / "out")
    assert bool((read_tensors(out)["fc.weight"] == 2.0).all())
    # What timm itself reads from a folder.
    config = json.loads((out / "config.json").read_text())
    pixels = {"mean": [0.5, 0.5, 0.5], "crop_pct": 0.9}
    assert config == {"architecture": "net", "num_classes": 3, "pretrained_cfg": pixels}
    record = read_record(out)
    assert record is not None
    assert [one.source for one in record.inputs] == ["timm:one", "timm:two"]
    assert len({one.fingerprint for one in record.inputs}) == 2


def test_a_folder_of_timm_is_loaded_by_timm_with_its_own_preprocessing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stockpot.fuse("average", ["timm:one"], out=tmp_path / "out")
    settings = {
        "input_size": (3, 8, 8), "crop_pct": 0.8, "interpolation": "bicubic",
        "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.5, 0.5),
    }  # fmt: skip
    asked = []

    def create(name: str, **options: Any) -> nn.Module:
        asked.append((name, options["pretrained"]))
        return Network(1.0)

    data = SimpleNamespace(resolve_data_config=lambda _, model: settings)
    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create, data=data))
    model = stockpot.load_model(folder)
    assert asked == [(f"local-dir:{folder}", True)]
    assert str(model.preprocess).startswith("resize 10 bicubic | crop 8x8 | normalise 0.1:0.5")
    assert identify(folder) == model.origin.fingerprint


def test_open_clip_names_are_members_and_bases(tmp_path: Path, stand_ins: dict[str, Any]) -> None:
    state = {
        name: values.float()
        for name, values in load_file(TINY / "open_clip_model.safetensors").items()
    }
    for name, shift in (("openai", 0.0), ("laion", 1.0)):
        save_file({n: v + shift for n, v in state.items()}, tmp_path / f"{name}.safetensors")
    base = f"open_clip:tiny/{tmp_path / 'openai.safetensors'}"
    member = f"open_clip:tiny/{tmp_path / 'laion.safetensors'}"
    out = stockpot.fuse(
        "task_arithmetic", [member], base=base, scale=0.5, layout="hf", out=tmp_path / "out"
    )
    fused = read_tensors(out)
    wanted = state["visual.proj"].T + 0.5
    assert torch.allclose(fused["visual_projection.weight"], wanted)
    assert stand_ins["pretrained"].endswith(".safetensors")


def test_the_activation_is_the_one_of_the_weights(
    tmp_path: Path, stand_ins: dict[str, Any]
) -> None:
    path = tmp_path / "openai.safetensors"
    path.write_bytes((TINY / "open_clip_model.safetensors").read_bytes())
    out = stockpot.fuse("average", [f"open_clip:tiny/{path}"], out=tmp_path / "out")
    assert stand_ins["force_quick_gelu"] is True
    config = json.loads((out / "open_clip_config.json").read_text())
    assert config["model_cfg"]["quick_gelu"] is True


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("timm:three", r"timm could not give its weights \(No pretrained weights exist\)"),
        ("open_clip:tiny", "open_clip:tiny/PRETRAINED, with one of openai, laion, or a file"),
    ],
)
def test_what_a_package_cannot_give_is_one_line(text: str, words: str) -> None:
    with pytest.raises(BadCheckpointError, match=words) as caught:
        stockpot.fuse("average", [text])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("package", "extra"), [("timm", "timm"), ("open_clip", "openclip")])
def test_a_missing_package_names_its_extra(
    package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'stockpot\[{extra}\]'"):
        stockpot.fuse("task_arithmetic", ["icons-vit"], base=f"{package}:a/b")

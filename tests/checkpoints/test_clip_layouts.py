"""One CLIP under open_clip's names and under transformers': the same logits, the same fusion.

`tests/oracles/data/tiny_clip` is a CLIP of open_clip 3.3.0 (two vision layers, one text layer,
quick_gelu, weights drawn with seed 0 and rounded to half precision), with the embeddings and
logits that open_clip computed for the pictures and tokens below.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import stockpot
from commands import invoke
from stockpot.checkpoints.alignment import align
from stockpot.checkpoints.clip.translate import TranslatedSource
from stockpot.checkpoints.layouts import CANONICAL, layout_of
from stockpot.checkpoints.open import open_checkpoint, read_tensors
from stockpot.errors import BadCheckpointError, UserError

TINY = Path(__file__).parents[1] / "oracles" / "data" / "tiny_clip"
SAID = json.loads((TINY / "logits.json").read_text())
PIXELS = torch.linspace(-1.5, 1.5, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8).sin() * 1.3
TOKENS = torch.tensor([[10, 3, 5, 11, 0, 0], [10, 7, 11, 0, 0, 0], [10, 1, 2, 4, 9, 11]])
OPEN_CLIP = {k: v.float() for k, v in load_file(TINY / "open_clip_model.safetensors").items()}
State = dict[str, Tensor]


def hf_state(state: State = OPEN_CLIP) -> State:
    source = open_checkpoint(state)
    layout = layout_of(state)
    assert layout is not None
    translated = TranslatedSource(source, layout, "hf")
    return {name: translated.read(name).contiguous() for name in translated.tensors()}


def moved(state: State, by: float) -> State:
    """Another member: every weight changed, differently at every place."""
    return {
        name: values + by * torch.arange(values.numel()).view(values.shape).cos()
        for name, values in state.items()
    }


def towers(state: State) -> dict[str, State]:
    """The vision tower of an open_clip model as programs save it."""
    visual = {name: v for name, v in state.items() if name.startswith("visual.")}
    whole = hf_state(state)
    inner = {n: v for n, v in whole.items() if n.startswith("vision_model.")}
    return {
        "open_clip visual": {n.removeprefix("visual."): v for n, v in visual.items()},
        "open_clip encoder": {
            f"model.{n}": v for n, v in state.items() if not n.startswith("transformer.")
        },
        "transformers 4": inner,
        "transformers 4 projected": inner | {"visual_projection.weight": state["visual.proj"].T},
        "transformers 5": {n.removeprefix("vision_model."): v for n, v in inner.items()},
        "DataParallel": {f"module.{n}": v for n, v in inner.items()},
    }


def equal(found: State, wanted: State) -> bool:
    assert set(found) == set(wanted)
    return all(torch.allclose(found[name], wanted[name], atol=1e-6) for name in wanted)


def test_transformers_says_what_open_clip_said(tmp_path: Path) -> None:
    from transformers import CLIPModel

    out = stockpot.fuse("average", [TINY], layout="hf", dtype="fp32", out=tmp_path / "hf")
    model = CLIPModel.from_pretrained(out).eval()
    with torch.inference_mode():
        logits = model(input_ids=TOKENS, pixel_values=PIXELS).logits_per_image
    assert torch.allclose(logits, torch.tensor(SAID["logits"]), atol=1e-5)
    assert model.config.vision_config.hidden_act == "quick_gelu"
    assert not (out / "open_clip_config.json").exists()
    # ... and back again it is open_clip's file and configuration.
    back = stockpot.fuse("average", [out], layout="open_clip", out=tmp_path / "back")
    assert equal(read_tensors(back), OPEN_CLIP)
    wanted = json.loads((TINY / "open_clip_config.json").read_text())
    written = json.loads((back / "open_clip_config.json").read_text())
    assert written["preprocess_cfg"] == wanted["preprocess_cfg"]
    for tower in ("vision_cfg", "text_cfg"):
        assert written["model_cfg"][tower].pop("mlp_ratio") == 4.0
    assert written["model_cfg"] == wanted["model_cfg"]
    assert not (back / "config.json").exists()


def test_a_transformers_tower_says_what_open_clip_said(tmp_path: Path) -> None:
    from transformers import CLIPVisionModelWithProjection

    tower = towers(OPEN_CLIP)["open_clip visual"]
    folder = tmp_path / "visual"
    folder.mkdir()
    save_file(tower, folder / "open_clip_model.safetensors")
    shutil.copy(TINY / "open_clip_config.json", folder)
    out = stockpot.fuse("average", [folder], layout="hf", out=tmp_path / "hf")
    model = CLIPVisionModelWithProjection.from_pretrained(out).eval()
    with torch.inference_mode():
        embedding = model(pixel_values=PIXELS).image_embeds
    assert torch.allclose(embedding, torch.tensor(SAID["image"]), atol=1e-5)


def test_members_of_both_programs_fuse_in_the_layout_of_the_base() -> None:
    others = [moved(OPEN_CLIP, 0.1), moved(OPEN_CLIP, -0.3)]
    mixed = [others[0], hf_state(others[1])]
    # Task arithmetic works weight by weight, so the layout it runs in cannot matter.
    plain = stockpot.fuse("task_arithmetic", others, base=OPEN_CLIP, scale=0.7)
    for base, wanted in ((OPEN_CLIP, plain), (hf_state(), hf_state(plain))):
        assert equal(stockpot.fuse("task_arithmetic", mixed, base=base, scale=0.7), wanted)
    asked = stockpot.fuse("task_arithmetic", mixed, base=OPEN_CLIP, scale=0.7, layout="hf")
    assert equal(asked, hf_state(plain))


@pytest.mark.parametrize("kind", sorted(towers(OPEN_CLIP)))
@pytest.mark.parametrize("program", ["hf", "open_clip"])
def test_a_tower_in_any_layout_changes_the_vision_tower_of_a_whole_base(
    kind: str, program: str
) -> None:
    base = OPEN_CLIP if program == "open_clip" else hf_state()
    other = moved(OPEN_CLIP, 0.1)
    fused = stockpot.fuse("task_arithmetic", [towers(other)[kind]], base=base, scale=1.0)
    vision = {n: v for n, v in other.items() if n.startswith("visual.") and n != "visual.proj"}
    wanted = OPEN_CLIP | vision
    assert equal(fused, wanted if program == "open_clip" else hf_state(wanted))


def test_towers_of_both_programs_fuse_without_a_base() -> None:
    first, second = towers(OPEN_CLIP), towers(moved(OPEN_CLIP, 0.2))
    fused = stockpot.fuse("average", [first["transformers 5"], second["open_clip visual"]])
    half = towers(moved(OPEN_CLIP, 0.1))
    assert equal(fused, half["transformers 5"])
    # The projection, which transformers' towers lack, comes from the one that has it.
    fused = stockpot.fuse("average", [first["open_clip visual"], second["transformers 4"]])
    wanted = {f"visual.{n}": v for n, v in half["open_clip visual"].items()}
    assert equal(fused, wanted | {"visual.proj": OPEN_CLIP["visual.proj"]})


def test_a_text_tower_of_its_own_name_is_understood() -> None:
    custom = {
        n if n.startswith(("visual.", "logit")) else f"text.{n}": v for n, v in OPEN_CLIP.items()
    }
    assert equal(hf_state(custom), hf_state())
    facts = {"input_resolution": torch.tensor(8), "context_length": torch.tensor(6)}
    assert equal(hf_state(OPEN_CLIP | facts), hf_state())


def test_layouts_are_told_apart() -> None:
    assert layout_of(OPEN_CLIP) == CANONICAL["open_clip"]
    assert layout_of(hf_state()) == CANONICAL["hf"]
    assert layout_of(["conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "fc.weight"]) is None
    with pytest.raises(BadCheckpointError, match="its names are neither's"):
        align([open_checkpoint({"fc.weight": torch.zeros(2, 2)})], layout="hf")


def test_the_record_notes_what_was_translated(tmp_path: Path) -> None:
    save_file(hf_state(moved(OPEN_CLIP, 0.1)), tmp_path / "other.safetensors")
    words = ("fuse", "average", TINY, tmp_path / "other.safetensors", "-o", tmp_path / "out")
    assert invoke(*words).exit_code == 0
    assert "other: read under the names of open_clip" in (tmp_path / "out/README.md").read_text()
    with pytest.raises(UserError, match="layout: expected one of hf, open_clip"):
        stockpot.fuse("average", [TINY], layout="timm")


def test_siglips_pooling_head_is_fused_whatever_becomes_of_classification_heads() -> None:
    def siglip(value: float) -> State:
        pooled = ("probe", "attention.in_proj_weight", "layernorm.weight", "mlp.fc1.weight")
        names = [f"vision_model.head.{name}" for name in pooled]
        return {name: torch.full((2, 2), value) for name in ("classifier.weight", *names)}

    fused = stockpot.fuse("average", [siglip(0.0), siglip(2.0)], head="first")
    assert float(fused.pop("classifier.weight").sum()) == 0.0
    assert all(bool((values == 1.0).all()) for values in fused.values())

"""mergekit's example files, over tiny models, give what mergekit made of them.

`merge_recipes` holds the recipes; `data/fuse/README.md` says how the references were recorded.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import stockpot.fuse.sparse.dare
import stockpot.fuse.sparse.della
from merge_recipes import LAYERS, RECIPES, model, write_models, write_recipe
from stockpot.fuse.foreign import read_foreign
from stockpot.fuse.fuser import Slab
from stockpot.fuse.run import fuse
from tiny_clip import vision_only, weights, write_clip

DATA = Path(__file__).parent / "data" / "fuse"
RECORDED = load_file(DATA / "mergekit_recipes.safetensors")
RECORDED |= load_file(DATA / "mergekit_recipes_later.safetensors")
RANDOM = ("dare_linear", "della_linear")
HALF = ("bio-merge",)
"""mergekit does its arithmetic in the dtype of the recipe, and rounds at every step."""


def reference(case: str) -> dict[str, Tensor]:
    found = {key.partition("/")[2]: v for key, v in RECORDED.items() if key.startswith(f"{case}/")}
    found.pop("layers", None)
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("models"))


def ours(case: str, made: dict[str, Path], out: Path) -> dict[str, Tensor]:
    recipe = read_foreign(write_recipe(case, made, out.with_suffix(".yml")))
    assert recipe.method is not None
    folder = fuse(
        recipe.method, recipe.members, base=recipe.base, out=out, threads=1,
        **recipe.options, **recipe.params,
    )  # fmt: skip
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("case", [case for case in RECIPES if case not in RANDOM])
def test_a_recipe_gives_mergekits_model(case: str, made: dict[str, Path], tmp_path: Path) -> None:
    got, want = ours(case, made, tmp_path / "out"), reference(case)
    assert set(want) <= set(got)
    for name, values in want.items():
        assert got[name].dtype == values.dtype
        error = 2e-3 if case in HALF else 2e-6
        assert torch.allclose(got[name].float(), values.float(), rtol=0, atol=error), name
    layers = {int(name.split(".")[2]) for name in got if name.startswith("model.layers.")}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["num_hidden_layers"] == len(layers) == int(RECORDED[f"{case}/layers"])


@pytest.mark.parametrize("case", RANDOM)
def test_what_is_dropped_at_random_is_the_only_difference(
    case: str, made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With mergekit's own survivors, ours is mergekit's model; their share is the density."""
    want, base = reference(case), model("BASE")
    kept = {name: (values != base[name]).reshape(-1) for name, values in want.items()}

    def replay(slab: Slab, count: int, *, seed: int, member: int, device: torch.device) -> Tensor:
        survived = kept.get(slab.name, torch.ones(count, dtype=torch.bool))
        return 1.0 - survived.float()

    for module in (stockpot.fuse.sparse.dare, stockpot.fuse.sparse.della):
        monkeypatch.setattr(module, "uniform", replay)
    got = ours(case, made, tmp_path / "out")
    for name, values in want.items():
        assert torch.allclose(got[name], values, rtol=0, atol=2e-6), name


def test_members_are_thinned_by_their_own_share(made: dict[str, Path], tmp_path: Path) -> None:
    """In both programs: E from 0.3 to 0.9 over the layers, F by 0.6 everywhere."""
    base = model("BASE")
    for states in (reference("dare_linear"), ours("dare_linear", made, tmp_path / "out")):
        for layer, even in ((0, 0.3), (LAYERS - 1, 0.9)):
            kept = torch.cat(
                [
                    (values != base[name]).reshape(-1).float()
                    for name, values in states.items()
                    if f"layers.{layer}." in name and "proj" in name
                ]
            )
            assert abs(float(kept[::2].mean()) - even) < 0.2
            assert abs(float(kept[1::2].mean()) - 0.6) < 0.2


CLIP = """
merge_method: ties
base_model: {place}/BASE
models:
  - {{model: {place}/A, parameters: {{weight: [0.2, 0.8]}}}}
  - model: {place}/B
    parameters:
      weight: [{{filter: mlp, value: 0.5}}, {{value: 0.1}}]
      density: [0.9, 0.3]
parameters: {{density: 0.6}}
"""


def test_both_towers_of_a_clip_have_a_depth_of_their_own(tmp_path: Path) -> None:
    for seed, name in enumerate(("BASE", "A", "B")):
        write_clip(tmp_path / name, weights(seed))
    path = tmp_path / "recipe.yml"
    path.write_text(CLIP.format(place=tmp_path))
    recipe = read_foreign(path)
    assert recipe.method == "ties"
    got = fuse(recipe.method, recipe.members, base=recipe.base, **recipe.params)
    want = reference("clip")
    assert len(want) > 20
    for name, values in want.items():
        assert torch.allclose(got[name], values, rtol=0, atol=2e-6), name
    # Experts that are towers alone, in the names of transformers 5, over the whole model.
    for seed, name in ((1, "A"), (2, "B")):
        save_file(vision_only(weights(seed)), tmp_path / name / "model.safetensors")
    recipe = read_foreign(path)
    got = fuse("ties", recipe.members, base=recipe.base, **recipe.params)
    for name, values in want.items():
        same = values if name.startswith("vision_model.") else weights()[name]
        assert torch.allclose(got[name], same, rtol=0, atol=2e-6), name

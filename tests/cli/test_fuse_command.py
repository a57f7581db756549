"""`stockpot fuse`, `similarity` and `corrupt` as a user meets them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from commands import invoke
from processes import error_of, stockpot
from stockpot.results.store import load_results


@pytest.fixture
def pool(pico_vit: Path, tmp_path: Path) -> dict[str, Path]:
    """A base and two members that differ from it by known amounts."""
    import shutil

    folders = {}
    for name, change in (("base", 0.0), ("a", 0.02), ("b", -0.01)):
        folder = Path(shutil.copytree(pico_vit, tmp_path / name))
        state = load_file(folder / "model.safetensors")
        generator = torch.Generator().manual_seed(len(folders))
        for key, tensor in state.items():
            state[key] = tensor + change * torch.randn(tensor.shape, generator=generator)
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        folders[name] = folder
    return folders


def test_fuse_measure_and_sweep(pool: dict[str, Path], toy_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = stockpot("fuse", "average", pool["a"], pool["b"], "-o", out)
    assert done.returncode == 0, done.stderr
    a, b, mean = (load_file(f / "model.safetensors") for f in (pool["a"], pool["b"], out))
    for name in mean:
        assert torch.equal(mean[name], (a[name] + b[name]) / 2)
    assert "stockpot fuse average" in (out / "README.md").read_text()
    assert invoke("measure", out, "--data", toy_file).exit_code == 0
    assert "exists already" in error_of(stockpot("fuse", "average", pool["a"], "-o", out))

    swept = invoke(
        "fuse", "task_arithmetic", pool["a"], pool["b"], "--base", pool["base"],
        "--sweep", "scale=0.0,0.5,1.0", "--data", toy_file, "-o", tmp_path / "sweep",
        "--format", "fusionbench",
    )  # fmt: skip
    assert swept.exit_code == 0, swept.output
    results = load_results(tmp_path / "sweep")
    assert {r.key.model for r in results} == {"scale=0.0", "scale=0.5", "scale=1.0"}
    base = load_file(pool["base"] / "model.safetensors")
    unchanged = load_file(tmp_path / "sweep" / "scale=0.0" / "model.safetensors")
    assert all(torch.equal(base[name], unchanged[name]) for name in base)
    plot = ElementTree.parse(tmp_path / "sweep" / "sweep.svg").getroot()
    assert len([e for e in plot.iter() if e.tag.endswith("circle")]) == 3
    report = json.loads((tmp_path / "sweep" / "fusionbench" / "scale=0.5.json").read_text())
    assert set(report["average"]) == {"accuracy", "loss"}


def test_plan_writes_nothing(pool: dict[str, Path], tmp_path: Path) -> None:
    plan = invoke("fuse", "average", pool["a"], pool["b"], "--plan", "-o", tmp_path / "none")
    assert "passes" in plan.output
    assert not (tmp_path / "none").exists()


def test_similarity_of_opposite_changes(pool: dict[str, Path], tmp_path: Path) -> None:
    state, base = (load_file(pool[n] / "model.safetensors") for n in ("a", "base"))
    mirrored = {name: 2 * base[name] - state[name] for name in state}
    save_file(mirrored, pool["b"] / "model.safetensors", metadata={"format": "pt"})
    files = ["--csv", tmp_path / "c.csv", "--plot", tmp_path / "c.svg"]
    done = invoke("similarity", pool["base"], f"a={pool['a']}", f"b={pool['b']}", *files)
    assert done.exit_code == 0, done.output
    row = (tmp_path / "c.csv").read_text().splitlines()[1].split(",")
    assert float(row[2]) == pytest.approx(-1.0, abs=1e-4)
    ElementTree.parse(tmp_path / "c.svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["averge", "icons-vit", "-o", "x"], "Did you mean average"),
        (["ties", "icons-vit-plain", "icons-vit-colour", "-o", "x"], "--base"),
        (["average", "icons-vit", "icons-resnet", "-o", "x"], "do not line up"),
        (["average", "icons-vit", "icons-vit-plain"], "expected -o OUT"),
        (["average", "-o", "x"], "at least one checkpoint"),
        (["average", "icons-vit", "-p", "scael=1", "-o", "x"], "unknown parameter 'scael'"),
        (["average", "icons-vit", "--bn", "recompute", "-o", "x"], "needs --data"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("fuse", *arguments)
    assert done.exit_code == 1
    assert words in done.output
    assert not (tmp_path / "x").exists()


def test_a_mergekit_recipe_is_followed(pool: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(
        f"merge_method: linear\nmodels:\n  - model: {pool['a']}\n    parameters: {{weight: 3}}\n"
        f"  - model: {pool['b']}\n    parameters: {{weight: 1}}\ndtype: float32\n"
    )
    done = invoke("fuse", tmp_path / "m.yaml", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    a, b, fused = (
        load_file(f / "model.safetensors") for f in (pool["a"], pool["b"], tmp_path / "out")
    )
    for name in fused:
        torch.testing.assert_close(fused[name], 0.75 * a[name] + 0.25 * b[name])


def test_batch_norm_is_estimated_anew(tmp_path: Path) -> None:
    """Extrapolated statistics are replaced by those of the images the model really sees."""
    from stockpot.checkpoints.resolve import zoo_folder
    from stockpot.datasets.load import load_dataset
    from stockpot.models.load import load_model

    original = zoo_folder("icons-resnet")
    assert original is not None
    other = tmp_path / "other"
    other.mkdir()
    for file in ("config.json", "preprocessor_config.json"):
        (other / file).write_text((original / file).read_text())
    state = load_file(original / "model.safetensors")
    key = "resnet.embedder.embedder.normalization.running_mean"
    changed = {k: v + 1 if k.endswith("running_mean") else v for k, v in state.items()}
    save_file(changed, other / "model.safetensors", metadata={"format": "pt"})
    few = load_dataset("icons", split="val")
    pixels = few.images.pixels.permute(0, 2, 3, 1).numpy()
    names = np.array(few.classes)
    np.savez(tmp_path / "few.npz", images=pixels, labels=few.labels.numpy(), classes=names)
    words = [
        "fuse", "weighted", original, other, "-p", "weights=2,-1", "-p", "normalize=false",
        "--dtype", "fp32", "--bn", "recompute",
    ]  # fmt: skip
    done = stockpot(*words, "--data", tmp_path / "few.npz", "--limit", "40", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "BatchNorm layers estimated anew" in done.stderr
    found = load_file(tmp_path / "out" / "model.safetensors")[key]
    model = load_model(original)
    stem = model.network.model.resnet.embedder.embedder.convolution
    sums, count = torch.zeros(len(found)), 0
    with torch.inference_mode():
        for batch in load_dataset(str(tmp_path / "few.npz"), split="train").batches(256):
            seen = model.preprocess.normalise(batch.images.float() / 255)
            sums += stem(seen).mean(dim=(0, 2, 3))
            count += 1
    torch.testing.assert_close(found, sums / count, rtol=1e-3, atol=1e-3)
    named = invoke(*words, "--task", tmp_path / "few.npz", "-o", tmp_path / "named")
    assert named.exit_code == 0, named.output
    assert torch.equal(load_file(tmp_path / "named" / "model.safetensors")[key], found)


def test_corrupt_writes_both_layouts(toy_file: Path, tmp_path: Path) -> None:
    few = ["--name", "contrast,fog", "--engine", "serial", "--limit", "8"]
    done = invoke("corrupt", toy_file, tmp_path / "c", *few, "--severity", "1,5")
    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "c").rglob("*.JPEG"))) == 2 * 2 * 8
    again = invoke("corrupt", toy_file, tmp_path / "c", *few, "--severity", "1,5")
    assert "0 new files of 16" in again.output
    arrays = invoke("corrupt", toy_file, tmp_path / "n", *few, "--layout", "arrays")
    assert arrays.exit_code == 0, arrays.output
    expected = {"contrast.npy", "fog.npy", "labels.npy", "stockpot.json"}
    assert {p.name for p in (tmp_path / "n").iterdir()} == expected
    wrong = stockpot("corrupt", toy_file, tmp_path / "x", "--name", "fgo")
    assert "Did you mean fog" in error_of(wrong)


def test_season_chooses_and_scores_on_unseen_images(
    pool: dict[str, Path], toy_file: Path, tmp_path: Path
) -> None:
    done = invoke(
        "season", "grid", f"a={pool['a']}", f"b={pool['b']}", "--data", toy_file,
        "--shots", "12", "-o", tmp_path / "soup",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "scored on 28 images" in done.output
    record = json.loads((tmp_path / "soup" / "stockpot.json").read_text())["details"]
    assert sum(record["members"].values()) == pytest.approx(1.0)
    assert len(record["selected_on"]) == 12
    assert invoke("measure", tmp_path / "soup", "--data", toy_file).exit_code == 0
    wrong = stockpot("season", "gird", pool["a"], "--data", toy_file, "-o", tmp_path / "x")
    assert "Did you mean grid" in error_of(wrong)


def test_fewer_threads_say_so_and_make_the_same(pool: dict[str, Path], tmp_path: Path) -> None:
    members = ("ties", pool["a"], pool["b"], "--base", pool["base"])
    for number in ("0", "1", "3"):
        done = invoke("fuse", *members, "--threads", number, "-o", tmp_path / number)
        assert done.exit_code == 0, done.output
    made = [load_file(tmp_path / number / "model.safetensors") for number in ("0", "1", "3")]
    assert all(torch.equal(made[0][name], other[name]) for other in made[1:] for name in other)
    planned = invoke("fuse", *members, "--threads", "1", "--plan")
    assert "with 1 thread\n" in planned.output
    refused = invoke("fuse", *members, "--threads", "-3", "-o", tmp_path / "none")
    assert refused.exit_code == 1
    assert "threads: expected a whole number of 0 or more, got -3" in refused.output
    assert not (tmp_path / "none").exists()

"""A model's folder appears once, whole; a failure in the middle leaves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import stockpot
from commands import invoke
from pico import CLASSES, make_dataset
from stockpot.checkpoints import model_card
from stockpot.checkpoints.record import read_record
from stockpot.errors import BadParameterError
from stockpot.fuse import recompute
from stockpot.fuse.run import fuse, sweep
from stockpot.harden.run import harden
from stockpot.models.huggingface import new_huggingface
from stockpot.models.load import load_model
from stockpot.models.new import new_model
from stockpot.models.preprocess import Preprocess
from stockpot.season.run import season
from stockpot.types import ImageSize

DATA = make_dataset()


class StoppedError(Exception):
    """A failure in the middle."""


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two small networks with BatchNorm."""
    place, side = tmp_path_factory.mktemp("nets"), ImageSize(16, 16)
    sizes: dict[str, Any] = {"embedding_size": 4, "hidden_sizes": [4, 4], "depths": [1, 1]}
    return [
        new_huggingface("resnet", classes=CLASSES, preprocess=Preprocess(side, side), seed=seed,
                        **sizes).save(place / f"net{seed}")
        for seed in range(2)
    ]  # fmt: skip


def test_a_failure_leaves_nothing_behind(
    nets: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise StoppedError

    monkeypatch.setattr(model_card, "write_record", fail)  # the last file of every folder
    out = tmp_path / "place" / "out"
    for make in (
        lambda: fuse("average", nets, out=out),
        lambda: sweep("weighted", nets, key="weights", values=[[1, 2], [2, 1]], out=out),
        lambda: harden("nominal", nets[0], DATA, epochs=0, out=out),
        lambda: season("uniform", nets, DATA, shots=8, out=out),
        lambda: new_model("vit", DATA, out, size=16, hidden_size=16, num_attention_heads=2),
    ):
        with pytest.raises(StoppedError):
            make()
        assert list(out.parent.glob("*")) == []


def test_statistics_that_cannot_be_estimated_leave_nothing(
    nets: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise StoppedError

    monkeypatch.setattr(recompute, "recompute_batch_norm", fail)
    with pytest.raises(StoppedError):
        fuse("average", nets, tasks=DATA, bn="recompute", out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def statistics(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k: v for k, v in weights.items() if "running_" in k}


def test_python_memory_sweep_and_command_line_estimate_the_same(
    nets: list[Path], toy_file: Path, tmp_path: Path
) -> None:
    data = stockpot.load_dataset(str(toy_file), split="train")
    out = fuse("average", nets, tasks=data, bn="recompute", out=tmp_path / "python")
    held = fuse("average", nets, tasks=data, bn="recompute")
    swept = sweep("weighted", nets, key="weights", values=[[1, 1]], tasks=data, bn="recompute",
                  out=tmp_path / "swept")  # fmt: skip
    done = invoke("fuse", "average", *nets, "--bn", "recompute", "--data", toy_file,
                   "-o", tmp_path / "command")  # fmt: skip
    assert done.exit_code == 0, done.output
    (point,) = swept.values()
    want = load_file(out / "model.safetensors")
    folders = (point, tmp_path / "command")
    for found in (held, *(load_file(folder / "model.safetensors") for folder in folders)):
        assert found.keys() == want.keys()
        assert all(torch.equal(found[name], want[name]) for name in want)
    linear = fuse("average", nets)
    assert statistics(want)
    for name, value in want.items():
        same = torch.equal(value, linear[name])
        assert same != ("running_" in name), name
    # The stem sees nothing but pixels: its mean must be the mean of its outputs over them.
    model = load_model(out)
    stem = model.network.model.resnet.embedder.embedder
    with torch.inference_mode():
        pixels = next(iter(data.batches(256))).images
        seen = stem.convolution(model.seen(pixels)).mean(dim=(0, 2, 3))
    torch.testing.assert_close(stem.normalization.running_mean, seen, rtol=1e-4, atol=1e-5)
    records = [read_record(folder) for folder in (out, tmp_path / "command")]
    assert records[0] is not None
    assert records[1] is not None
    assert records[0].digest == records[1].digest
    assert records[0].details["batch_norm"]["layers"] > 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_shards_and_dtype_stay_as_they_were_fused(nets: list[Path], tmp_path: Path) -> None:
    out = fuse("average", nets, tasks=DATA, bn="recompute", out=tmp_path / "out", dtype="bf16",
               max_shard="1KB")  # fmt: skip
    files = list(out.glob("*.safetensors"))
    assert len(files) > 1
    kinds = {v.dtype for file in files for v in load_file(file).values() if v.is_floating_point()}
    assert kinds == {torch.bfloat16}


def test_images_are_needed(nets: list[Path], tmp_path: Path) -> None:
    with pytest.raises(BadParameterError, match="images to estimate"):
        fuse("average", nets, bn="recompute", out=tmp_path / "out")
    with pytest.raises(BadParameterError, match="uses no data"):
        fuse("average", nets, tasks=DATA, out=tmp_path / "out")


def test_a_recipe_estimates_the_same(nets: list[Path], toy_file: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    entry = "method: average, models: [a, b], bn: recompute"
    text = (
        f"version: 1\ndevice: cpu\ndata:\n  toy: {{dataset: {toy_file}}}\n"
        f"models:\n  a: {{load: {nets[0]}}}\n  b: {{load: {nets[1]}}}\nfuse:\n  soup: {{{entry}"
    )
    recipe.write_text(text + "}\n")
    assert "give `data`" in invoke("run", recipe, "-o", tmp_path / "no").output
    recipe.write_text(text + ", data: toy}\n")
    done = invoke("run", recipe, "-o", tmp_path / "run")
    assert done.exit_code == 0, done.output
    data = stockpot.load_dataset(str(toy_file))
    want = fuse("average", nets, tasks=data, bn="recompute")
    found = load_file(tmp_path / "run" / "models" / "soup" / "model.safetensors")
    assert found.keys() == want.keys()
    assert all(torch.equal(found[name], want[name]) for name in want)

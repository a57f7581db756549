"""Data-driven fusion equals FusionBench's on a recorded pool (`data/learned/README.md`)."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from learned_pool import DATA, INPUTS, TASKS, WANT, Tower, ours, part
from safetensors.torch import load_file
from torch import Tensor, nn

from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.fuse.adaptive.mask import Mask
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.modules import surgery
from stockpot.fuse.modules.blocks import pruned
from stockpot.fuse.modules.experts import low_rank_experts
from stockpot.models.modules.low_rank import ExpertLinear
from stockpot.models.modules.rank_one import Selected, factor_block
from stockpot.models.modules.surgery import corrected
from stockpot.models.modules.weight_ensemble import Router, mix_block
from stockpot.models.modules.whole_ensemble import WholeEnsemble


@pytest.mark.parametrize("normalize", [True, False])
def test_fisher_with_a_square_per_batch(normalize: bool) -> None:
    got = ours("fisher", square="batch", batch_size=12, examples=12, normalize=normalize)
    want = part(WANT, f"fisher_{'normalized' if normalize else 'raw'}/")
    assert set(want) <= set(got)
    for name, values in want.items():
        torch.testing.assert_close(got[name], values, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("ratio", [0.95, 0.1])
def test_regmean(ratio: float) -> None:
    """The reference inverts in fp32 without a ridge; ours solves in fp64."""
    got = ours("regmean", examples=12, batch_size=5, off_diagonal=ratio)
    for name, values in part(WANT, f"regmean_{ratio}/").items():
        torch.testing.assert_close(got[name], values, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("ratio", [0.95, 0.1])
def test_regmean_pp(ratio: float) -> None:
    """As for `regmean`; the second block's inputs come from the first one merged."""
    got = ours("regmean_pp", examples=12, batch_size=4, off_diagonal=ratio)
    want = part(load_file(DATA / "regmean_pp.safetensors"), f"regmean_pp_{ratio}/")
    assert any(".layers.1." in name for name in want)
    for name, values in want.items():
        ((_, found),) = [item for item in got.items() if item[0].endswith(name)]
        torch.testing.assert_close(found, values, rtol=1e-3, atol=3e-4)


@pytest.mark.parametrize("layers", ["task", "layer"])
@pytest.mark.parametrize("together", [1, 3])
def test_adamerging(layers: str, together: int, tmp_path: Path) -> None:
    ours("adamerging", layers=layers, steps=4, lr=1e-2, batch_size=12, together=together,
         save=str(tmp_path / "w"))  # fmt: skip
    got = load_file(tmp_path / "w.safetensors")["coefficients"]
    names = json.loads((tmp_path / "w.json").read_text())["facts"]["names"]
    want = WANT[f"adamerging_{layers}"]
    if layers == "task":
        torch.testing.assert_close(got[:, 0], want, rtol=1e-4, atol=1e-5)
        return
    order = [names.index(n) for n, _ in Tower("base.", 0).model.named_parameters()]
    # A key's bias has no gradient but rounding, which Adam turns into steps.
    kept = [i for i, n in enumerate(order) if not names[n].endswith("k_proj.bias")]
    torch.testing.assert_close(got[:, order][:, kept], want[:, kept], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("layers", ["task", "layer"])
def test_merging_weights_of_fusionbench_give_its_model(layers: str, tmp_path: Path) -> None:
    """Its file has no names: the columns are the parameters in the order of the architecture."""
    weights = WANT[f"adamerging_{layers}"]
    path = tmp_path / "merging_weights.pt"
    torch.save(nn.Parameter(weights) if layers == "task" else weights, path)
    merged = part(load_file(DATA / "merged.safetensors"), f"merged_{layers}/")
    for got in (
        ours("adamerging", load=str(path)),
        ours("adamerging", init=str(path), steps=0, layers=layers),
    ):
        for name, values in merged.items():
            torch.testing.assert_close(got[name], values, rtol=1e-5, atol=1e-6)
    with pytest.raises(BadParameterError, match="which are for adamerging, not for fisher"):
        ours("fisher", load=str(path))
    torch.save(torch.zeros(3, 7), path)
    with pytest.raises(BadParameterError, match=r"3 members x \d+ tensors, got 3 x 7"):
        ours("adamerging", load=str(path))
    torch.save({"a": weights}, path)
    with pytest.raises(BadCheckpointError, match="expected one tensor of merging weights"):
        ours("adamerging", load=str(path))


def changes_of(name: str) -> Tensor:
    base = INPUTS[f"base.{name}"]
    return torch.stack([INPUTS[f"m{t}.{name}"] - base for t in TASKS])


@pytest.mark.parametrize("routing", ["image", "batch"])
def test_a_weight_ensemble(routing: Any) -> None:
    network = Tower("base.", 0)
    router = Router(16, 3, depth=2, init=0.3, seed=0)
    recorded = part(INPUTS, "router.")
    for index, layer in enumerate(("fc1", "fc2")):
        router.weights[index].data = recorded[f"{layer}.weight"]
        router.biases[index].data = recorded[f"{layer}.bias"]
    path = "encoder.layers.1.mlp"
    changes = {
        layer: (changes_of(f"{path}.{layer}.weight"), changes_of(f"{path}.{layer}.bias"))
        for layer in ("fc1", "fc2")
    }
    mix_block(network.model, path, changes, router, routing)
    with torch.no_grad():
        got = network.model.get_submodule(path)(INPUTS["tokens"])
    torch.testing.assert_close(got, WANT[f"wemoe_{routing}"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "top_k"), [("all", None), ("few", 5)])
def test_rank_one_experts(name: str, top_k: int | None) -> None:
    """Biases there are those of task arithmetic; here they come with the plain weights."""
    network = Tower("base.", 0).model
    path = "encoder.layers.1.mlp"
    router = Router(16, 12, depth=1, init=0.3, seed=0)
    generator = torch.Generator().manual_seed(9)
    router.weights[0].data = torch.randn(12, 16, generator=generator) * 0.2
    factors = {}
    for layer in ("fc1", "fc2"):
        network.get_submodule(f"{path}.{layer}").bias.data += 0.3 * changes_of(
            f"{path}.{layer}.bias"
        ).sum(dim=0)
        up, down, _ = low_rank_experts(changes_of(f"{path}.{layer}.weight"), 4, 1, 1e-5)
        factors[layer] = (up.transpose(1, 2).flatten(0, 1), down.flatten(0, 1))
    factor_block(network, path, factors, Selected(router, top_k))
    with torch.no_grad():
        got = network.get_submodule(path)(INPUTS["tokens"])
    want = load_file(DATA / "later.safetensors")[f"rank_one_{name}"]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


class Pooled(nn.Module):
    """The recorded encoder, whose answer and features are what it pools."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Tower("base.", 0).model

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model(pixel_values=pixels).pooler_output

    def features(self, pixels: Tensor) -> Tensor:
        return self(pixels)


def test_weights_of_an_images_own() -> None:
    router = Router(16, 3, depth=1, init=0.3, seed=0)
    generator = torch.Generator().manual_seed(11)
    router.weights[0].data = torch.randn(3, 16, generator=generator) * 0.2
    network = Pooled()
    parts = {f"model.{k}.whole": changes_of(k) for k, _ in network.model.named_parameters()}
    with torch.no_grad():
        ensemble = WholeEnsemble(network, router, parts, softmax=False)
        got = ensemble(INPUTS["pixels.0"].float() / 255)
    want = load_file(DATA / "later.safetensors")["dawe"]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_pruning() -> None:
    change = changes_of("encoder.layers.1.mlp.fc1.weight")[0]
    assert torch.equal(pruned(change, 0.1) != 0, WANT["pruned_0.9"] != 0)
    assert torch.equal(pruned(change, 0.1), WANT["pruned_0.9"])


@pytest.mark.parametrize(("name", "gate", "rank", "top_k"), [("1", 2, 4, 1), ("2", 3, 6, 2)])
def test_low_rank_experts(name: str, gate: int, rank: int, top_k: int) -> None:
    path = "encoder.layers.1.mlp.fc1"
    layer = Tower("base.", 0).model.get_submodule(path)
    # As the method decomposes them: the fourth and the fifth value are 0.3409 and 0.3401, and what
    # single precision makes of their vectors depends on the processor.
    changes = changes_of(f"{path}.weight").double()
    found = torch.linalg.svd(changes, full_matrices=False)
    left, values, right = (part.float() for part in found)
    experts = ExpertLinear(
        layer, left[:, :, :rank], values[:, :rank, None] * right[:, :rank], right[:, :gate],
        changes_of(f"{path}.bias"), top_k,
    )  # fmt: skip
    with torch.no_grad():
        got = experts(INPUTS["tokens"])
    torch.testing.assert_close(got, WANT[f"smile_{name}"], rtol=1e-4, atol=1e-5)


def uniforms(pool: TaskPool, draw: int) -> list[Tensor]:
    """The numbers behind a draw of the recorded masks."""
    order = sorted(pool.names)
    found = []
    for name, span in zip(pool.names, pool.spans, strict=True):
        generator = torch.Generator().manual_seed(1000 * draw + order.index(name))
        found.append(torch.rand(span.stop - span.start, generator=generator))
    return found


@pytest.mark.parametrize("merge", ["ta", "task", "layer"])
def test_concrete(merge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = itertools.count()

    def draw(mask: Mask, *, resample: bool = False) -> None:
        mask._set(uniforms(mask._pool, next(draws)))

    monkeypatch.setattr(Mask, "draw", draw)
    monkeypatch.setattr(Mask, "finish", draw)
    settings: dict[str, Any] = {"merge": "task_arithmetic", "steps": 3}
    if merge != "ta":
        settings = {"merge": f"adamerging_{merge}", "steps": 1, "inner_lr": 0.1,
                    "adapt_steps": 3, "adapt_lr": 0.01}  # fmt: skip
    got = ours("concrete", lr=0.05, scale=0.3, temperature=0.5, batch_size=12, **settings)
    for name, values in part(WANT, f"concrete_{merge}/").items():
        torch.testing.assert_close(got[name], values, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("task", TASKS)
def test_surgery(task: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # All pictures in every step, as they were recorded.
    monkeypatch.setattr(torch, "randint", lambda n, size, generator: torch.arange(n))
    pixels = INPUTS[f"pixels.{task}"].float() / 255

    def features(prefix: str) -> Tensor:
        with torch.no_grad():
            pooled = Tower(prefix, task).model(pixel_values=pixels).pooler_output
            return F.normalize(F.linear(pooled, INPUTS["projection"]), dim=-1)

    found = features("base.")
    down, up, *_ = surgery._correct(
        found, features(f"m{task}."), rank=4, steps=5, lr=0.01, size=12, seed=70 + task
    )
    torch.testing.assert_close(down, WANT[f"surgery_down/{task}"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(up, WANT[f"surgery_up/{task}"], rtol=1e-4, atol=1e-5)
    got = corrected(found, down, up)
    torch.testing.assert_close(got, WANT[f"surgery/{task}"], rtol=1e-4, atol=1e-5)

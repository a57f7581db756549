"""Trust region, Frank-Wolfe and AdaSVD as FusionBench has them (`data/learned/README.md`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from learned_pool import DATA, INPUTS, TASKS, Tower, classifier, ours, part
from safetensors.torch import load_file
from torch import Tensor

from stockpot.errors import BadParameterError
from stockpot.fuse.run import fuse

WANT = load_file(DATA / "later.safetensors")
SOFT = {"examples": 12, "batch_size": 12, "adapt_steps": 3}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fw_hard_task": ("fw_hard", {"steps": 4, "step_size": 0.9, "examples": 12}),
    "fw_hard_layer": ("fw_hard", {"steps": 4, "step_size": 0.9, "examples": 12, "layers": "layer"}),
    "fw_soft_task": ("fw_soft", {"steps": 2, **SOFT}),
    "fw_soft_layer": ("fw_soft", {"steps": 2, "layers": "layer", **SOFT}),
    "fw_soft_ta": (
        "fw_soft",
        {"steps": 3, "merge": "task_arithmetic", "step_size": 0.9, "layers": "layer", **SOFT},
    ),
    "ada_svd_plain": ("ada_svd", {"examples": 12, "gate_rank": 3}),
    "ada_svd_scaled": ("ada_svd", {"examples": 12, "gate_rank": 10, "weights": [1.5, 0.5, 1.0]}),
}


@pytest.mark.parametrize("case", CASES)
def test_up_to_rounding(case: str) -> None:
    method, params = CASES[case]
    got, want = ours(method, **params), part(WANT, f"{case}/")
    assert len(want) == 7
    for name, values in want.items():
        torch.testing.assert_close(got[name], values, rtol=1e-5, atol=3e-7)


def test_the_trust_region_bit_for_bit() -> None:
    members = {f"m{t}": classifier(f"m{t}.", t) for t in TASKS}
    base = classifier("base.", 0)
    without = fuse("tatr", members, base=base, gradients="changes", density=0.9)
    for case, got in (
        ("tatr_changes", without),
        ("tatr_data", ours("tatr", density=0.9, examples=12)),
    ):
        want = part(WANT, f"{case}/")
        kept = torch.cat([(v != INPUTS[f"base.{k}"]).flatten() for k, v in want.items()])
        assert 0.5 < float(kept.float().mean()) < 1
        for name, values in want.items():
            assert torch.equal(got[name], values), (case, name)
    with pytest.raises(BadParameterError, match="labelled dataset per member, got none") as said:
        fuse("tatr", members, base=base)
    assert "gradients=changes" in str(said.value.hint)


def test_the_trust_region_of_a_hundred_members() -> None:
    """Pair by pair, on plain weights: no network is needed where changes stand for gradients."""
    base = {"a.weight": torch.zeros(6, 5), "b.bias": torch.zeros(7)}
    generator = torch.Generator().manual_seed(3)
    changes = [
        {k: torch.randn(v.shape, generator=generator) for k, v in base.items()} for _ in range(100)
    ]
    got = fuse("tatr", changes, base=base, gradients="changes", density=0.8, scale=0.5)

    def flat(state: dict[str, Tensor]) -> Tensor:
        return torch.cat([value.flatten() for value in state.values()]).double()

    sizes = torch.stack([flat(change) for change in changes]).abs()
    pairs = torch.einsum("iw,jw->ijw", sizes, sizes)
    pairs[torch.arange(100), torch.arange(100)] = 0
    conflict = pairs.sum(dim=(0, 1))
    kept = conflict < conflict.sort().values[int(0.8 * 37)]
    total = torch.stack([flat(change) for change in changes]).sum(dim=0)
    torch.testing.assert_close(flat(got), 0.5 * total * kept, rtol=1e-5, atol=1e-6)


def test_a_soft_step_picks_no_more_than_it_may() -> None:
    """With one member to pick, a step of task arithmetic goes straight towards one of them."""
    got = ours("fw_soft", steps=1, merge="task_arithmetic", most=1, scale=0.4, examples=12)
    name = "encoder.layers.1.mlp.fc1.weight"
    base = INPUTS[f"base.{name}"]
    ways = [0.4 * (INPUTS[f"m{t}.{name}"] - base) for t in TASKS]
    gone = got[name] - base
    assert sum(torch.allclose(gone, way, rtol=1e-4, atol=1e-6) for way in ways) == 1


def test_joint_training_is_adam_on_the_mean_loss() -> None:
    """The plain loop, over three networks that share one tower."""
    towers = [Tower("base.", t) for t in TASKS]
    for other in towers[1:]:
        other.model = towers[0].model
    weights = dict(towers[0].model.named_parameters())
    optimiser = torch.optim.Adam(weights.values(), lr=1e-3)
    for _ in range(3):
        optimiser.zero_grad()
        for task, tower in enumerate(towers):
            pixels = INPUTS[f"pixels.{task}"].float() / 255
            labels = torch.arange(len(pixels)) % len(INPUTS[f"head.{task}"])
            (F.cross_entropy(tower(pixels), labels) / 3).backward()
        optimiser.step()
    got = ours("joint", steps=3, lr=1e-3, batch_size=12)
    for name, value in weights.items():
        if not name.endswith("k_proj.bias"):  # no gradient but rounding, which Adam turns to steps
            torch.testing.assert_close(got[name], value.detach(), rtol=1e-4, atol=1e-5)
    assert not torch.equal(got["post_layernorm.bias"], INPUTS["base.post_layernorm.bias"])

"""Methods of FusionBench's configurations: its keys and values, with the numbers it publishes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from commands import invoke
from stockpot.checkpoints.open import open_checkpoint
from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.foreign import read_foreign
from stockpot.fuse.run import fuse
from task_pools import make_clip_pool

POOL = "modelpool: {models: {_pretrained_: base, a: ma, b: mb, c: mc}}\n"
IN_TURN = "shuffle_order: false\n  seed: null\n  save_on_every_step: true\n"
# Its configuration -> our method and parameters.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    f"_target_: fusion_bench.method.opcm.opcm.OPCMForCLIP\n  alpha: 0.5\n  {IN_TURN}": (
        "opcm", {"alpha": 0.5},
    ),
    "_target_: fusion_bench.method.opcm.task_arithmetic.ContinualTaskArithmeticForCLIP\n"
    f"  scaling_factor: 0.3\n  {IN_TURN}": ("task_arithmetic", {"scale": 0.3}),
    f"_target_: fusion_bench.method.dop.dop_general.DOPMerging\n  {IN_TURN}"
    "  lr: 1e-4\n  num_steps: 200\n  mgda: true\n  alpha: 0.8\n  ema: true\n  ema_beta: 0.999\n"
    "  svd_epsilon: 0.99999\n  svd_proj_space: uv\n  num_ray_actors: 0": (
        "dop",
        {"lr": 1e-4, "steps": 200, "balance": "pareto", "alpha": 0.8, "momentum": 0.999,
         "energy": 0.99999, "space": "uv", "rule": "fusionbench"},
    ),
    "_target_: fusion_bench.method.trust_region.clip_task_arithmetic."
    "TaskArithmeticWithTrustRegionForCLIP\n  scaling_factor: 0.3\n  threshold_quantile: 0.99\n"
    "  max_samples: 128\n  batch_size: 128\n  zero_shot: true": (
        "tatr", {"scale": 0.3, "density": 0.99, "examples": 128, "gradients": "changes"},
    ),
    "_target_: fusion_bench.method.FrankWolfeHardAlgorithm\n  merge_fn: task_arithmetic\n"
    "  max_iters: 10\n  step_size: 0.1\n  dataset_size: 100\n  tasks: []\n  init_weight:\n"
    "  loss_fn: cross_entropy\n  scaling_factor: 0.3\n  max_num_models: 100\n  granularity: task": (
        "fw_hard",
        {"steps": 10, "step_size": 0.1, "examples": 100, "loss": "labels", "scale": 0.3,
         "init": 0.3, "layers": "task"},
    ),
    "_target_: fusion_bench.method.FrankWolfeSoftAlgorithm\n  init_weight:\n  max_iters: 10\n"
    "  merge_fn: 'adamerging'\n  tasks:\n  ada_iters: 500\n  dataset_size: 100\n"
    "  ada_coeff: 1e-8\n  step_size: 0.1\n  max_num_models: 100\n  granularity: task\n"
    "  ada_loss: entropy_loss": (
        "fw_soft",
        {"steps": 10, "merge": "adamerging", "adapt_steps": 500, "examples": 100,
         "adapt_init": 1e-8, "step_size": 0.1, "layers": "task", "init": 0.0},
    ),
    "_target_: fusion_bench.method.AdaSVDMergingForCLIPVisionModel\n  scaling_factor: null\n"
    "  num_samples: 256\n  gate_k: 16\n  average_experts: false\n  device: cuda\n"
    "  upscaling_accelerator: null\n  seed: 0": (
        "ada_svd", {"examples": 256, "gate_rank": 16, "others": "base"},
    ),
    "name: rankone_moe\n  checkpoint: False\n  router_hidden_layers: 1\n  init_lambda: 0.3\n"
    "  svd_accelerator: cuda\n  rank_k: 32\n  select_k: -1\n  lr: 1e-4\n  optimizer: adam\n"
    "  devices: 1\n  batch_size: 16\n  num_workers: 16\n  max_steps: 1000\n"
    "  use_grad_accumulate: true\n  cache_dir: outputs\n  fast_dev_run: ${fast_dev_run}": (
        "rank_one_moe",
        {"depth": 1, "scale": 0.3, "rank": 32, "lr": 1e-4, "batch_size": 16, "steps": 1000},
    ),
    "_target_: fusion_bench.method.TiesMergingAlgorithm\n  scaling_factor: 0.3\n  threshold: 20\n"
    "  remove_keys: []\n  merge_func: sum": (
        "ties", {"preset": "fusionbench", "density": 0.2, "scale": 0.3, "reduce": "sum"},
    ),
}  # fmt: skip


def write(folder: Path, method: str, pool: str = POOL) -> Path:
    path = folder / "program.yaml"
    path.write_text(f"{pool}method:\n  {method}\n")
    return path


@pytest.mark.parametrize("text", METHODS, ids=[method for method, _ in METHODS.values()])
def test_methods(text: str, tmp_path: Path) -> None:
    method, params = METHODS[text]
    found = read_foreign(write(tmp_path, text))
    entry = fusers.get(method)
    assert found.method == method
    assert entry.validate(dict(found.params)) == entry.validate(dict(params))
    assert list(found.members) == ["a", "b", "c"]
    assert found.ignored == ()


def test_the_order_of_members_follows_its_seed(tmp_path: Path) -> None:
    opcm = "_target_: x.OPCM\n  alpha: 0.4\n  shuffle_order: true\n  seed: {}"
    names = ["a", "b", "c"]
    random.seed(3)  # what its seed_everything does first
    random.shuffle(names)
    assert names != ["a", "b", "c"]
    assert list(read_foreign(write(tmp_path, opcm.format(3))).members) == names
    free = read_foreign(write(tmp_path, opcm.format("null")))
    assert list(free.members) == ["a", "b", "c"]
    assert any("shuffle_order" in said for said in free.ignored)


def test_what_is_not_translated_is_said(tmp_path: Path) -> None:
    found = read_foreign(write(tmp_path, "_target_: x.Gossip\n  rounds: 3"))
    assert found.method is None
    assert any("Gossip" in said for said in found.ignored)
    more = read_foreign(write(tmp_path, "_target_: x.OPCM\n  alpha: 0.4\n  warmth: 3"))
    assert more.ignored == ("method.warmth",)
    ties = "_target_: x.FrankWolfeHardAlgorithm\n  merge_fn: ties"
    with pytest.raises(BadParameterError, match="merge_fn 'ties'"):
        read_foreign(write(tmp_path, ties))
    # A pool whose program names a method in a file that is not there is still a pool.
    named = f"defaults: [method: opcm/opcm, _self_]\n{POOL}"
    path = tmp_path / "named.yaml"
    path.write_text(named)
    assert read_foreign(path).method is None
    (tmp_path / "method" / "opcm").mkdir(parents=True)
    (tmp_path / "method" / "opcm" / "opcm.yaml").write_text("_target_: x.OPCM\nalpha: 0.25\n")
    assert read_foreign(path).params == {"alpha": 0.25}


def test_a_program_is_fused_from_the_command_line(tmp_path: Path) -> None:
    pool = make_clip_pool(tmp_path / "pool")
    models = ", ".join(f"{name}: {path}" for name, path in pool.members.items())
    text = f"modelpool: {{models: {{_pretrained_: {pool.base}, {models}}}}}\n"
    path = write(tmp_path, "_target_: x.OPCM\n  alpha: 0.3\n  shuffle_order: false", text)
    done = invoke("fuse", str(path), "-o", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    want = fuse("opcm", pool.members, base=pool.base, alpha=0.3)
    got = open_checkpoint(tmp_path / "out")
    assert all(torch.equal(got.read(name), value) for name, value in want.items())
    other = invoke("fuse", str(path), "average", "-o", str(tmp_path / "average"))
    assert other.exit_code == 0, other.output
    assert "its method opcm gives way to average" in other.output.replace("\n", " ")

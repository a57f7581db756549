"""Methods against dense formulas written out here, where no outside program has them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from stockpot.errors import BadParameterError, UserError
from stockpot.fuse.run import fuse
from stockpot.fuse.sparse.combine import add_up
from stockpot.fuse.sparse.della import survival
from stockpot.fuse.sparse.select import kth_smallest
from stockpot.fuse.sparse.varying import variance_of
from stockpot.fuse.spectral.decompose import (
    RANK_TOLERANCE,
    leading_triples,
    orthogonal_factor,
    rounding_floor,
)
from stockpot.pool.batch_norm import recompute_batch_norm


def pool(
    count: int = 3, shape: tuple[int, ...] = (60, 50)
) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    generator = torch.Generator().manual_seed(0)
    base = {
        "w": torch.randn(shape, generator=generator),
        "v": torch.randn(300, generator=generator),
    }
    members = [
        {
            name: value + 0.1 * torch.randn(value.shape, generator=generator)
            for name, value in base.items()
        }
        for _ in range(count)
    ]
    return base, members


def flat(base: dict[str, Tensor], members: list[dict[str, Tensor]]) -> Tensor:
    return torch.stack([torch.cat([(m[n] - base[n]).flatten() for n in base]) for m in members])


def test_negation_forgets_and_addition_adds() -> None:
    base, members = pool(1)
    away = fuse("task_arithmetic", members, base=base, scale=-1.0)
    torch.testing.assert_close(away["w"], 2 * base["w"] - members[0]["w"])
    base, members = pool(2)
    both = fuse("task_arithmetic", members, base=base, scale=1.0, weights=[1.0, -1.0])
    torch.testing.assert_close(both["w"], base["w"] + members[0]["w"] - members[1]["w"])


@pytest.mark.parametrize("members_count", [3, 95])  # exp(89) is no fp32 number
def test_pcb_is_its_formula(members_count: int) -> None:
    base, members = pool(members_count)
    change = flat(base, members).double()
    count, size = change.shape
    ordered = change.abs().sort(dim=1).values
    low, high = ordered[:, [int(size * 0.0001)]], ordered[:, [int(size * 0.9999 - 1)]]
    clamped = change.abs().clamp(low, high)
    own = (clamped - low) / (high - low)
    score = torch.exp(count * own**2) * torch.tanh(change * change.sum(dim=0))
    limit = score.sort(dim=1).values[:, [int(size * 0.9)]]
    share = (score.clamp(min=limit) - limit) / (score.max(dim=1, keepdim=True).values - limit)
    merged = (share * change.sign() * clamped).sum(0) / share.sum(0).clamp(min=1e-12)
    got = fuse("pcb", members, base=base, density=0.1, scale=1.2)
    want = torch.cat([base[n].flatten() for n in base]) + 1.2 * merged.float()
    torch.testing.assert_close(
        torch.cat([got[n].flatten() for n in base]), want, atol=1e-6 * members_count, rtol=1e-5
    )


def test_tsv_m_with_more_members_than_rank() -> None:
    # One direction each: (3, 4) on two rows are orthogonal on the left, and share one column.
    base = {"w": torch.zeros(4, 1)}
    members = [
        {"w": torch.tensor([[3.0], [0], [0], [0]])},
        {"w": torch.tensor([[0.0], [4], [0], [0]])},
    ]
    got = fuse("tsv_m", members, base=base)["w"][:, 0]
    torch.testing.assert_close(got, torch.tensor([3.0, 4.0, 0.0, 0.0]) / 2**0.5)


@pytest.mark.parametrize(
    "name", ["blocks.0.attn.qkv.weight", "visual.transformer.resblocks.0.attn.in_proj_weight"]
)
def test_doge_ta_knows_the_names_of_timm_and_open_clip(name: str) -> None:
    base, members = pool(2, (12, 8))
    rename = lambda state, to: {to: state["w"], "v": state["v"]}  # noqa: E731
    same = "encoder.layers.0.fc1.weight"
    settings = {"steps": 3}
    want = fuse("doge_ta", [rename(m, same) for m in members], base=rename(base, same), **settings)
    got = fuse("doge_ta", [rename(m, name) for m in members], base=rename(base, name), **settings)
    assert not torch.equal(want[same], base["w"])
    assert torch.equal(got[name], want[same])
    with pytest.raises(BadParameterError, match=r"no matrix of the models is called \*encoder"):
        fuse("doge_ta", members, base=base)


def test_values_that_the_dtype_cannot_hold_are_refused_by_name(tmp_path) -> None:
    base = {"body.weight": torch.zeros(3), "v": torch.zeros(2)}
    members = [{"body.weight": torch.tensor([1.0, 4e4, -2.0]), "v": torch.ones(2)}] * 2
    settings = {"base": base, "scale": 1.0, "dtype": "fp16"}
    assert fuse("task_arithmetic", members[:1], **settings)["body.weight"][1] == 4e4
    for out in (None, tmp_path / "out"):
        with pytest.raises(UserError, match=r"'body.weight' has values of up to 80000.*65504"):
            fuse("task_arithmetic", members, **settings, out=out)
    assert not (tmp_path / "out").exists()


def test_consensus_keeps_what_two_members_use() -> None:
    base = {"w": torch.zeros(4)}
    members = [{"w": torch.tensor(x)} for x in ([1.0, 1.0, 1.0, 0.0], [1.0, -1.0, 0.0, 0.0])]
    got = fuse("consensus_ta", members, base=base, scale=1.0, strictness=0.6)
    # Shared: kept. Opposed: both use it, but their sum is zero. Used by one alone: dropped.
    assert got["w"].tolist() == [2.0, 0.0, 0.0, 0.0]
    got = fuse("consensus_ta", members, base=base, scale=1.0, agree=1)
    assert got["w"].tolist() == [2.0, 0.0, 1.0, 0.0]


def test_tall_masks_recover_disjoint_tasks_exactly() -> None:
    base = {"w": torch.zeros(4)}
    members = [{"w": torch.tensor(x)} for x in ([2.0, 0.0, 0.0, 3.0], [0.0, 1.0, 0.0, 0.0])]
    models = fuse("tall_mask", members, base=base)
    for model, member in zip(models.values(), members, strict=True):
        assert torch.equal(model["w"], member["w"])


def test_dare_keeps_its_share_and_its_expectation() -> None:
    base, members = pool(1, (400, 500))
    got = fuse("dare", members, base=base, density=0.3, scale=1.0, seed=4)
    change, want = got["w"] - base["w"], members[0]["w"] - base["w"]
    kept = change.abs() > 1e-6
    assert kept.float().mean().item() == pytest.approx(0.3, abs=0.01)
    torch.testing.assert_close(change[kept], want[kept] / 0.3, rtol=1e-3, atol=1e-5)
    again = fuse("dare", members, base=base, density=0.3, scale=1.0, seed=4)
    assert torch.equal(again["w"], got["w"])
    other = fuse("dare", members, base=base, density=0.3, scale=1.0, seed=5)
    assert not torch.equal(other["w"], got["w"])
    state = torch.random.get_rng_state()
    fuse("dare", members, base=base)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_dare_of_everything_is_task_arithmetic_or_ties() -> None:
    base, members = pool()
    plain = fuse("task_arithmetic", members, base=base, scale=0.3)
    assert torch.equal(fuse("dare", members, base=base, density=1.0, scale=0.3)["w"], plain["w"])
    ties = fuse("ties", members, base=base, density=0.2, reduce="sum")
    dare = fuse("dare", members, base=base, density=1.0, merge="ties", keep=0.2)
    assert torch.equal(dare["w"], ties["w"])


def test_the_survivors_of_l1_rescaling_have_the_same_size() -> None:
    base, members = pool(1)
    got = fuse("dare", members, base=base, rescale="l1", scale=1.0, density=0.4)
    size = (got["w"] - base["w"]).abs().sum()
    torch.testing.assert_close(size, (members[0]["w"] - base["w"]).abs().sum(), rtol=1e-4, atol=0)


def test_della_survival_rises_with_rank() -> None:
    change = torch.tensor([[0.1, -0.4, 0.2, 0.3]])
    odds = survival(change, 0.5, 0.3)
    torch.testing.assert_close(odds, torch.tensor([[0.2, 0.8, 0.4, 0.6]]))
    with pytest.raises(BadParameterError, match="epsilon"):
        fuse("della", [{"w": change}], base={"w": change}, density=0.9, epsilon=0.2)


def test_karcher_of_two_is_slerp_at_the_middle() -> None:
    _, members = pool(2)
    direction = lambda x: x / x.norm()  # noqa: E731
    unit = [{"w": direction(m["w"]), "v": direction(m["v"])} for m in members]
    mean, arc = fuse("karcher", unit, steps=50, tol=1e-9), fuse("slerp", unit, t=0.5)
    torch.testing.assert_close(mean["w"], arc["w"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rank", [1, 2, 500, 999, 1000])
def test_order_statistics_are_exact(rank: int) -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(1000, generator=generator).mul(4).round().div(4)  # many ties, both signs
    assert kth_smallest(values, rank) == values.kthvalue(rank).values


def test_ties_thresholds_are_exact_over_tensors_and_stretches() -> None:
    base, members = pool(2, (600, 500))
    change = flat(base, members)
    size = change.shape[1]
    limit = change.abs().kthvalue(size - int(size * 0.2), dim=1, keepdim=True).values
    trimmed = change * (change.abs() >= limit)
    sign = trimmed.sum(dim=0).sign()
    agree = trimmed * (trimmed.sign() == sign)
    merged = agree.sum(0) / (agree != 0).sum(0).clamp(min=1)
    got = fuse("ties", members, base=base, density=0.2, scale=1.0)
    want = torch.cat([base[n].flatten() for n in base]) + merged
    assert torch.equal(torch.cat([got[n].flatten() for n in base]), want)


@pytest.mark.parametrize("shape", [(300, 400), (400, 300), (300, 300)])
def test_fast_singular_vectors_are_singular_vectors(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    got = leading_triples(matrix, rounding_floor(matrix, RANK_TOLERANCE), 40)
    want = (left[:, :40] * values[:40]) @ right[:40]
    torch.testing.assert_close(
        ((got.left * got.values) @ got.right).double(), want, rtol=1e-4, atol=2e-4
    )
    if shape[0] != shape[1]:  # a square Gaussian matrix is nearly singular
        factor = orthogonal_factor(matrix, RANK_TOLERANCE)
        torch.testing.assert_close(factor.double(), left @ right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(30, 20), (300, 320)])
def test_a_low_rank_change_has_only_its_own_directions(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(side, 2, generator=generator).double() for side in shape)
    factor = orthogonal_factor((first @ second.T).float(), RANK_TOLERANCE)
    # The polar factor of A B', where Q and P span the columns of A and B.
    rows, small = torch.linalg.qr(first)
    columns, other = torch.linalg.qr(second)
    left, _, right = torch.linalg.svd(small @ other.T)
    want = rows @ left @ right @ columns.T
    torch.testing.assert_close(factor, want, rtol=0, atol=1e-5)


def test_batch_norm_statistics_are_estimated_anew() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU()).eval()
    model[1].running_mean += 7
    batches = [torch.randn(8, 3, 5, 5) for _ in range(4)]
    assert recompute_batch_norm(model, batches) == 1
    outputs = torch.stack([model[0](batch) for batch in batches])
    want = outputs.mean(dim=(1, 3, 4)).mean(dim=0)
    torch.testing.assert_close(model[1].running_mean, want.detach(), rtol=1e-4, atol=1e-5)
    assert not model[1].training
    assert model[1].momentum == 0.1
    assert recompute_batch_norm(nn.Linear(2, 2), []) == 0


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 20, 40])
def test_sums_have_the_bits_of_torchs_reduction(count: int) -> None:
    tensors = torch.randn(count, 1024, generator=torch.Generator().manual_seed(count))
    assert torch.equal(add_up(tensors), tensors.sum(dim=0))


@pytest.mark.parametrize("count", [1, 2, 4, 5, 20, 100])
def test_variances_have_the_bits_of_torchs(count: int) -> None:
    """Where rounding shows: changes on a grid (as those of bf16 files are), cancelling offsets,
    equal and missing changes, all sizes, and what is no number. A sum over two passes fails."""
    generator = torch.Generator().manual_seed(count)
    noise = torch.randn(count, 80_000 // count, generator=generator)
    sizes = 10.0 ** torch.randint(-10, 10, noise.shape, generator=generator)
    broken = noise.clone()
    broken[0, :2] = torch.tensor([torch.inf, torch.nan])
    tables = [
        noise, noise * 1e-4, noise * 1e-38, noise * 1e30, noise + 1000, 1 + noise * 1e-6,
        noise.bfloat16().float(), (noise * 4096).round() / 4096, noise.round(), noise * sizes,
        noise * (noise > 0), noise[:1].expand(count, -1), noise[:, :1], noise[:, :3],
        noise.double(), broken,
    ]  # fmt: skip
    for table in tables:
        whole = table.contiguous()  # as a stack is
        found, meant = variance_of(whole), whole.var(dim=0, unbiased=False)
        assert torch.equal(found.nan_to_num(-1.0), meant.nan_to_num(-1.0))

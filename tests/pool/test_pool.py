"""Forming soups: against plain arithmetic on state dicts, and the cases that go wrong."""

from __future__ import annotations

import pytest
import torch

from pico import make_classifier
from season.toys import linear_member, norm_member, toy_images
from stockpot.errors import UserError
from stockpot.pool.batch_norm import Statistics
from stockpot.pool.family import read_pool
from stockpot.pool.pool import Pool
from stockpot.season.draws import draw
from stockpot.season.evaluate import answers, evaluate, logits_of
from stockpot.season.shots import read_shots


def shots(pool: Pool, n: int = 30, batch_size: int = 7):
    return read_shots(toy_images(n), pool.model, device=torch.device("cpu"), batch_size=batch_size)


@pytest.mark.parametrize("make", [linear_member, norm_member])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_soup_of_one_is_that_one_bit_for_bit(make, index) -> None:
    members = [make(seed) for seed in (1, 2, 3)]
    pool = read_pool(members)
    pool.load(torch.tensor([0.3, 0.9, -0.2]))
    soup = pool.load(torch.eye(3)[index]).state_dict()
    want = members[index].state_dict()
    assert soup.keys() == want.keys()
    for name, tensor in soup.items():
        assert torch.equal(tensor, want[name]), name


def test_a_soup_is_the_weighted_sum() -> None:
    members = [norm_member(seed) for seed in (1, 2, 3)]
    before = [{k: v.clone() for k, v in m.state_dict().items()} for m in members]
    weights = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    soup = read_pool(members).load(weights).state_dict()
    for name, tensor in soup.items():
        if tensor.is_floating_point():
            want = sum(w * m[name].double() for w, m in zip(weights, before, strict=True))
            torch.testing.assert_close(tensor.double(), want, rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(tensor, before[0][name])
    for member, old in zip(members, before, strict=True):
        assert all(torch.equal(v, old[k]) for k, v in member.state_dict().items())


def test_columns_per_tensor_agree_with_one_weight_each() -> None:
    pool = read_pool([norm_member(seed) for seed in (1, 2, 3)])
    weights = torch.tensor([0.5, 0.2, 0.3])
    one = pool.load(weights).state_dict()
    one = {k: v.clone() for k, v in one.items()}
    many = pool.load(weights[:, None].expand(3, len(pool.names))).state_dict()
    for name in one:
        torch.testing.assert_close(one[name], many[name], rtol=1e-6, atol=1e-7)


def test_batch_norm_is_estimated_anew() -> None:
    pool = read_pool([norm_member(seed) for seed in (1, 2)])
    images = shots(pool)
    pool.statistics = Statistics("recompute", images.batches)
    model = pool.load(torch.tensor([-0.4, 1.4]))
    norm = model.network[1]
    torch.testing.assert_close(norm.running_mean, mean_before_norm(model, images), **CLOSE)
    assert bool((norm.running_var > 0).all())
    assert int(norm.num_batches_tracked) == 17
    # Mixed variances are positive too, and the outputs finite.
    pool.statistics = Statistics()
    extreme = pool.load(torch.tensor([-5.0, 6.0]))
    assert bool(torch.isfinite(logits_of(extreme, images)).all())
    with pytest.raises(UserError, match="images"):
        Statistics("recompute")


CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def mean_before_norm(model, images) -> torch.Tensor:
    with torch.inference_mode():
        seen = [model.network[0](batch.float() / 255) for batch in images.batches]
    return torch.stack([part.mean(dim=(0, 2, 3)) for part in seen]).mean(dim=0)


def test_soup_of_linear_models_is_the_ensemble_of_their_logits() -> None:
    members = [linear_member(seed) for seed in (1, 2, 3)]
    pool = read_pool(members)
    images = shots(pool)
    weights = torch.tensor([-0.4, 0.8, 0.6])
    together = sum(w * logits_of(m.eval(), images) for w, m in zip(weights, members, strict=True))
    torch.testing.assert_close(
        logits_of(pool.load(weights), images), together, rtol=1e-4, atol=1e-4
    )


def test_the_matrix_is_what_each_soup_says_on_its_own() -> None:
    pool = read_pool([norm_member(seed) for seed in (1, 2)])
    images = shots(pool, n=30, batch_size=7)
    soups = torch.tensor([[1.0, 0.0], [0.5, 0.5], [1.4, -0.4]], dtype=torch.float64)
    matrix = evaluate(pool, soups, images)
    for row, weights in enumerate(soups):
        logits = logits_of(pool.load(weights), images)
        assert (matrix.correct[row] == (logits.argmax(1) == images.scorer.targets).numpy()).all()
        loss = torch.nn.functional.cross_entropy(logits, images.scorer.targets, reduction="none")
        torch.testing.assert_close(torch.from_numpy(matrix.loss[row]), loss)
    soup, alone, ensemble = answers(pool, soups[2], images)
    assert (soup == matrix.correct[2]).all()
    assert (alone[0] == matrix.correct[0]).all()
    mean = sum(logits_of(norm_member(s).eval(), images).softmax(1) for s in (1, 2))
    assert (ensemble == (mean.argmax(1) == images.scorer.targets).numpy()).all()


def test_state_dicts_join_a_model() -> None:
    members = [linear_member(seed) for seed in (1, 2)]
    plain = read_pool([members[0], members[1].network.state_dict()])
    assert torch.equal(plain.deltas, read_pool(members).deltas)
    with pytest.raises(UserError, match="state dict"):
        read_pool([members[0].state_dict()])
    with pytest.raises(UserError, match="family"):
        read_pool([norm_member(1), members[0]])
    with pytest.raises(UserError, match="sum of 1"):
        plain.load(torch.tensor([0.5, 0.6]))
    with pytest.raises(UserError, match="one per member"):
        plain.load(torch.tensor([1.0]))


def test_draws_are_apart_and_seeded() -> None:
    images = toy_images(50)
    rows, others = draw(images, 20, seed=3)
    assert sorted([*rows.tolist(), *others.tolist()]) == list(range(50))
    assert torch.equal(draw(images, 20, seed=3)[0], rows)
    assert not torch.equal(draw(images, 20, seed=4)[0], rows)
    with pytest.raises(UserError, match="held out"):
        draw(images, 50, seed=0)


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize("make", [linear_member, norm_member])
def test_the_gradient_of_the_weights_is_autograds(make, in_chunks, monkeypatch) -> None:
    """Against autograd through an explicit sum of state dicts, on the CPU's and the GPU's path."""
    monkeypatch.setattr(Pool, "in_chunks", in_chunks)
    members = [make(seed) for seed in (1, 2, 3)]
    pool = read_pool(members)
    images = shots(pool, n=9, batch_size=9)
    generator = torch.Generator().manual_seed(5)
    weights = torch.rand(3, len(pool.names), generator=generator).softmax(dim=0)

    free = weights.clone().requires_grad_()
    parameters = {name for name, _ in pool.model.named_parameters()}
    mixed = {}
    for number, name in enumerate(pool.names):
        parts = [m.state_dict()[name] * w for m, w in zip(members, free[:, number], strict=True)]
        mixed[name] = sum(parts) if name in parameters else sum(parts).detach()
    logits = torch.func.functional_call(members[0].eval(), mixed, (next(iter(images.batches)),))
    torch.nn.functional.cross_entropy(logits, images.scorer.targets).backward()

    pool.watch()
    pool.form(weights)
    for name, tensor in pool.views(pool.flat).items():
        torch.testing.assert_close(tensor, mixed[name].detach(), rtol=1e-5, atol=1e-6)
    ours = pool.model(next(iter(images.batches)))
    torch.nn.functional.cross_entropy(ours, images.scorer.targets).backward()
    torch.testing.assert_close(ours, logits, rtol=1e-4, atol=1e-4)
    # A pool knows changes from the first member: gradients are equal up to a shift per tensor,
    # which weights that sum to 1 do not feel.
    want = free.grad - free.grad[0]
    torch.testing.assert_close(pool.pull(), want, rtol=1e-3, atol=1e-4)
    pool.watch(False)
    assert all(p.grad is None and not p.requires_grad for p in pool.model.parameters())


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (-0.4, 1.4)])
def test_one_rule_of_batch_norm_for_soups_inside_and_outside_and_for_members(weights) -> None:
    members = [norm_member(seed) for seed in (1, 2)]
    own = [member.network[1].running_mean.clone() for member in members]
    pool = read_pool(members)
    images = shots(pool)
    want = {
        "mix": weights[0] * own[0] + weights[1] * own[1],
        "left": own[0],
        "recompute": mean_before_norm(pool.load(torch.tensor(weights)), images),
    }
    for rule, mean in want.items():
        pool.statistics = Statistics(rule, images.batches)
        found = pool.load(torch.tensor(weights)).network[1].running_mean
        torch.testing.assert_close(found, mean, **CLOSE)


class Tied(torch.nn.Module):
    """Two names for one weight."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.second = torch.nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.first.weight.data.fill_(value)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(pixels.flatten(1)[:, :4]))


def test_tied_weights_stay_one() -> None:
    pool = read_pool([make_classifier(Tied(value), size=8) for value in (1.0, 3.0)])
    assert pool.names == ("network.first.weight",)
    model = pool.load(torch.tensor([0.5, 0.5]))
    assert model.network.first.weight is model.network.second.weight
    assert float(model.network.second.weight[0, 0]) == 2.0
    own = pool.copy()
    assert own.network.first.weight is own.network.second.weight
    pool.load_base()
    assert float(own.network.second.weight.detach()[0, 0]) == 2.0


def test_a_copy_holds_its_own_tensors_only() -> None:
    pool = read_pool([norm_member(seed) for seed in (1, 2)])
    for tensor in pool.copy().state_dict().values():
        assert tensor.untyped_storage().nbytes() <= 4 * tensor.numel() * 2

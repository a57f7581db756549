"""Forming soups: against plain arithmetic on state dicts, and the cases that go wrong."""

from __future__ import annotations

import pytest
import torch

from season.toys import linear_member, norm_member, toy_images
from stockpot.errors import UserError
from stockpot.season.evaluate import evaluate, logits_of, members_and_ensemble
from stockpot.season.pool import Pool
from stockpot.season.shots import draw, read_shots


def shots(pool: Pool, n: int = 30, batch_size: int = 7):
    return read_shots(toy_images(n), pool.model, device=torch.device("cpu"), batch_size=batch_size)


@pytest.mark.parametrize("make", [linear_member, norm_member])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_soup_of_one_is_that_one_bit_for_bit(make, index) -> None:
    members = [make(seed) for seed in (1, 2, 3)]
    pool = Pool(members)
    pool.load(torch.tensor([0.3, 0.9, -0.2]), shots(pool).batches)
    soup = pool.load(torch.eye(3)[index]).state_dict()
    want = members[index].state_dict()
    assert soup.keys() == want.keys()
    for name, tensor in soup.items():
        assert torch.equal(tensor, want[name]), name


def test_a_soup_is_the_weighted_sum() -> None:
    members = [norm_member(seed) for seed in (1, 2, 3)]
    before = [{k: v.clone() for k, v in m.state_dict().items()} for m in members]
    weights = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    soup = Pool(members).load(weights).state_dict()
    for name, tensor in soup.items():
        if tensor.is_floating_point():
            want = sum(w * m[name].double() for w, m in zip(weights, before, strict=True))
            torch.testing.assert_close(tensor.double(), want, rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(tensor, before[0][name])
    for member, old in zip(members, before, strict=True):
        assert all(torch.equal(v, old[k]) for k, v in member.state_dict().items())


def test_rows_per_tensor_agree_with_one_row() -> None:
    pool = Pool([norm_member(seed) for seed in (1, 2, 3)])
    weights = torch.tensor([0.5, 0.2, 0.3])
    one = pool.load(weights).state_dict()
    one = {k: v.clone() for k, v in one.items()}
    many = pool.load(weights.expand(len(pool.names), 3)).state_dict()
    for name in one:
        torch.testing.assert_close(one[name], many[name], rtol=1e-6, atol=1e-7)


def test_batch_norm_is_estimated_anew_only_when_a_weight_is_negative() -> None:
    pool = Pool([norm_member(seed) for seed in (1, 2)])
    images = shots(pool)
    model = pool.load(torch.tensor([-0.4, 1.4]), images.batches)
    conv, norm = model.network[0], model.network[1]
    with torch.inference_mode():
        seen = [conv(batch.float() / 255) for batch in images.batches]
    mean = torch.stack([part.mean(dim=(0, 2, 3)) for part in seen]).mean(dim=0)
    torch.testing.assert_close(norm.running_mean, mean, rtol=1e-4, atol=1e-5)
    assert bool((norm.running_var > 0).all())
    assert int(norm.num_batches_tracked) == 17
    # Without images the variances are still positive, and the outputs finite.
    extreme = pool.load(torch.tensor([-5.0, 6.0]))
    assert bool(torch.isfinite(logits_of(extreme, images)).all())


def test_soup_of_linear_models_is_the_ensemble_of_their_logits() -> None:
    members = [linear_member(seed) for seed in (1, 2, 3)]
    pool = Pool(members)
    images = shots(pool)
    weights = torch.tensor([-0.4, 0.8, 0.6])
    together = sum(w * logits_of(m.eval(), images) for w, m in zip(weights, members, strict=True))
    torch.testing.assert_close(
        logits_of(pool.load(weights), images), together, rtol=1e-4, atol=1e-4
    )


def test_the_matrix_is_what_each_soup_says_on_its_own() -> None:
    pool = Pool([norm_member(seed) for seed in (1, 2)])
    images = shots(pool, n=30, batch_size=7)
    soups = torch.tensor([[1.0, 0.0], [0.5, 0.5], [1.4, -0.4]], dtype=torch.float64)
    matrix = evaluate(pool, soups, images, images.batches)
    for row, weights in enumerate(soups):
        logits = logits_of(pool.load(weights, images.batches), images)
        assert (matrix.correct[row] == (logits.argmax(1) == images.labels).numpy()).all()
        loss = torch.nn.functional.cross_entropy(logits, images.labels, reduction="none")
        torch.testing.assert_close(torch.from_numpy(matrix.loss[row]), loss)
    alone, ensemble = members_and_ensemble(pool, images)
    assert (alone[0] == matrix.correct[0]).all()
    mean = sum(logits_of(norm_member(s).eval(), images).softmax(1) for s in (1, 2))
    assert (ensemble == (mean.argmax(1) == images.labels).numpy()).all()


def test_state_dicts_join_a_model() -> None:
    members = [linear_member(seed) for seed in (1, 2)]
    plain = Pool([members[0], members[1].network.state_dict()])
    assert torch.equal(plain.deltas, Pool(members).deltas)
    with pytest.raises(UserError, match="state dict"):
        Pool([members[0].state_dict()])
    with pytest.raises(UserError, match="family"):
        Pool([norm_member(1), members[0]])
    with pytest.raises(UserError, match="sum of 1"):
        plain.load(torch.tensor([0.5, 0.6]))
    with pytest.raises(UserError, match="one per member"):
        plain.load(torch.tensor([1.0]))


def test_draws_are_apart_and_seeded() -> None:
    rows, others = draw(50, 20, seed=3)
    assert sorted([*rows.tolist(), *others.tolist()]) == list(range(50))
    assert torch.equal(draw(50, 20, seed=3)[0], rows)
    assert not torch.equal(draw(50, 20, seed=4)[0], rows)
    with pytest.raises(UserError, match="held out"):
        draw(50, 50, seed=0)

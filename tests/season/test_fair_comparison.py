"""Soups, members and ensembles are treated alike, ties favour nobody, attacks that choose score."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from season.toys import linear_member, norm_member, toy_images
from stockpot.attack.threat import Linf
from stockpot.errors import UserError
from stockpot.pool.family import read_pool
from stockpot.pool.soups import Judged, greedy
from stockpot.season.grids import affine_grid
from stockpot.season.matrix import Matrix, single_soup
from stockpot.season.methods.racing import race
from stockpot.season.ranking import ranking
from stockpot.season.robust import evaluate_under
from stockpot.season.run import season
from stockpot.season.shots import read_shots


def running_mean(model) -> torch.Tensor:
    return model.network[1].running_mean


def seasoned(**asked):
    members = [norm_member(seed) for seed in (1, 2)]
    images = toy_images(60, members[1], noise=0.3)
    # One point on the line, beyond its end: what is asked about is its statistics alone.
    found = season("wise_ft", members, images, shots=20, alphas=(1.4,), **asked)
    mixed = -0.4 * running_mean(members[0]) + 1.4 * running_mean(members[1])
    return found, mixed


def test_an_extrapolated_soup_is_not_adapted_to_the_target() -> None:
    found, mixed = seasoned()
    torch.testing.assert_close(running_mean(found.model), mixed, rtol=1e-5, atol=1e-6)
    assert found.record.parameters["bn"] == "mix"
    assert found.record.details["batch_norm"] == "mixed like weights"
    with pytest.raises(UserError, match="source"):
        seasoned(bn="recompute")
    with pytest.raises(UserError, match="expected one of"):
        seasoned(bn="extrapolated")


def test_one_alpha_is_the_point_and_needs_no_image() -> None:
    members = [norm_member(seed) for seed in (1, 2)]
    found = season("wise_ft", members, toy_images(20), shots=0, alphas=0.25)  # -p alphas=0.25
    assert found.weights == (0.75, 0.25)


def test_with_a_source_members_are_estimated_anew_like_the_soup() -> None:
    source = toy_images(30)
    found, mixed = seasoned(source=source)
    assert not torch.allclose(running_mean(found.model), mixed, atol=1e-3)
    assert found.record.parameters["bn"] == "recompute"
    assert found.record.details["batch_norm"] == "estimated anew on 30 source images"
    members = [norm_member(seed) for seed in (1, 2)]
    alone, _ = seasoned(source=source, bn="mix")
    # A soup of one is that one under the rule: the member's score is that soup's.
    one = season("wise_ft", members, toy_images(60, members[1], noise=0.3), shots=20,
                 alphas=(1.0,), source=source)  # fmt: skip
    second = list(found.member_accuracy.values())[1]
    assert second.value == one.accuracy.value
    assert alone.record.parameters["bn"] == "mix"
    assert second != list(alone.member_accuracy.values())[1]


def test_target_images_are_used_only_when_asked_for() -> None:
    source = toy_images(30)
    found, _ = seasoned(source=source, bn_images="target")
    assert found.record.details["batch_norm"] == "estimated anew on 20 target images"
    other, _ = seasoned(source=source)
    assert not torch.allclose(running_mean(found.model), running_mean(other.model), atol=1e-3)
    left, _ = seasoned(source=source, bn="left")
    assert torch.equal(running_mean(left.model), running_mean(norm_member(1)))


def all_tied(members: int = 3, loss: float = 1.0) -> Matrix:
    weights = affine_grid(members, low=-0.4, high=1.4, step=0.2).numpy()
    shape = (len(weights), 12)
    return Matrix(weights, np.ones(shape, bool), np.full(shape, loss, np.float32))


@pytest.mark.parametrize("loss", [1.0, np.inf, np.nan])
def test_ties_go_to_the_soup_nearest_to_equal_weights(loss: float) -> None:
    matrix = all_tied(loss=loss)
    near = [tuple(row) for row in ([0.4, 0.4, 0.2], [0.4, 0.2, 0.4], [0.2, 0.4, 0.4])]

    def of(row: int) -> tuple[float, ...]:
        return tuple(matrix.weights[row].round(6))

    def judge(alive: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        part = np.ix_(alive, rows)
        return matrix.correct[part].sum(axis=1), matrix.loss[part].sum(axis=1)

    images = np.arange(12)
    ways = {
        "best": matrix.best(),
        "top": int(matrix.top(1)[0]),
        "single": single_soup([matrix, matrix]),
        "race": race(matrix.weights, images, judge, first=0.5, keep=0.5).winner,
        "scores alone": int(ranking(matrix.weights, np.zeros(len(matrix.weights)))[0]),
    }
    assert all(of(row) in near for row in ways.values()), {k: of(v) for k, v in ways.items()}
    # No corner of the three is favoured over the seeds.
    assert {of(matrix.best(seed=seed)) for seed in range(30)} == set(near)


def test_a_lower_loss_comes_before_nearness_and_infinities_last() -> None:
    matrix = all_tied()
    matrix.loss[5] = 0.5
    matrix.loss[6] = -np.inf
    matrix.loss[6, 0] = np.nan
    assert matrix.best() == 5
    assert matrix.top(2)[0] == 5


def test_equally_accurate_members_join_a_greedy_soup_by_their_loss() -> None:
    order = []

    def judge(weights: torch.Tensor) -> Judged:
        kept = weights.nonzero()[:, 0].tolist()
        order.append(kept)
        return Judged(0.5, [3.0, 1.0, 2.0][kept[0]])

    assert greedy(3, judge).kept == [1, 2, 0]


def test_what_threats_chose_is_scored_under_them() -> None:
    members = [linear_member(seed) for seed in (1, 2)]
    images = toy_images(60, members[1])
    # The ball holds every picture: whoever is right on clean images withstands nothing.
    asked = {"low": 0.0, "high": 1.0, "step": 1.0, "shots": 20, "attack_steps": 5}
    found = season("grid", members, images, threats="linf:1", full_matrix=True, **asked)
    assert found.accuracy.metric == "robust_accuracy"
    assert found.accuracy.condition["threats"] == "linf 1 (APGD, 5 steps)"
    assert found.accuracy.value == 0.0
    assert found.ensemble_accuracy.value == 0.0
    assert [score.value for score in found.member_accuracy.values()] == [0.0, 0.0]
    # The matrix that is drawn is the attacked one, over all images.
    assert found.matrix is not None
    assert found.matrix.correct.shape == (2, 60)
    assert found.matrix.accuracy().tolist() == [0.0, 0.0]
    # What it does on clean images stands beside it.
    assert found.clean_accuracy is not None
    one = members[found.weights.index(1.0)]
    held_out = images.take(found.held_out)
    with torch.inference_mode():
        right = one.eval()(held_out.images.pixels).argmax(dim=1) == held_out.labels
    assert found.clean_accuracy.value == float(right.double().mean()) > 0
    assert found.clean_accuracy.condition == {"protocol": "holdout"}


def test_losses_under_attack_are_finite_and_those_of_the_attacked_image() -> None:
    members = [linear_member(seed) for seed in (1, 2)]
    images = toy_images(40, members[1], noise=0.5)
    pool = read_pool(members)
    shots = read_shots(images, pool.model, device=torch.device("cpu"), batch_size=16)
    found = evaluate_under(pool, torch.eye(2), shots, Linf("1/255") | Linf("2/255"), steps=3)
    pixels = torch.cat(list(shots.batches)).float() / 255
    for row, member in enumerate(members):
        with torch.inference_mode():
            clean = F.cross_entropy(member.eval()(pixels), images.labels, reduction="none").numpy()
        np.testing.assert_allclose(found["clean"].loss[row], clean, rtol=1e-4, atol=1e-5)
        wrong = ~found["clean"].correct[row]
        for name in ("linf 1/255", "linf 2/255", "union"):
            loss = found[name].loss[row]
            # Wrong before any attack: the clean image stands. Attacked: the loss never falls.
            np.testing.assert_allclose(loss[wrong], clean[wrong], rtol=1e-4, atol=1e-5)
            assert np.isfinite(loss).all()
            assert (loss >= clean - 1e-4).all()

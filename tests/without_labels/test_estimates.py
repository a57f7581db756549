"""Closed forms and laws of estimates without labels."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri

from stockpot.errors import BadDataError
from stockpot.score.without_labels.active_testing import chances, lure_risk
from stockpot.score.without_labels.agreement_line import agreement_line, agreements, pairs_of
from stockpot.score.without_labels.coda import Coda
from stockpot.score.without_labels.confidence import atc_accuracy, nuclear_norm
from stockpot.score.without_labels.transport import transport


def test_the_threshold_of_atc_on_hand_made_confidences() -> None:
    source = torch.tensor([0.3, 0.5, 0.6, 0.8, 0.9])
    right = torch.tensor([False, True, False, True, True])
    # Two of five are wrong, so the threshold lies on the second: 0.5.
    target = torch.tensor([0.2, 0.4, 0.55, 0.7])
    assert float(atc_accuracy(source, right, target)) == 0.5
    assert float(atc_accuracy(source, right, source)) == 0.6  # its own accuracy on the source


def test_nuclear_norm_of_certain_answers() -> None:
    everywhere = torch.eye(3).repeat(4, 1)
    assert float(nuclear_norm(everywhere)) == pytest.approx(1)
    one_class = torch.eye(3)[torch.zeros(12, dtype=torch.long)]
    assert float(nuclear_norm(one_class)) == pytest.approx(3**-0.5)
    assert nuclear_norm(torch.stack([everywhere, one_class])).tolist() == pytest.approx(
        [1, 3**-0.5]
    )


def test_transport_is_the_best_of_all_assignments() -> None:
    generator = np.random.default_rng(3)
    target = generator.dirichlet(np.ones(3), size=6)
    labels = np.array([0, 0, 1, 2, 2, 2])
    best = max(target[np.arange(6), list(order)].mean() for order in set(permutations(labels)))
    assert transport(labels, target).accuracy == pytest.approx(best)
    # A class that the source lacks is given to nobody, however sure the model is of it.
    none = np.array([[0.1, 0.2, 0.7], [0.3, 0.1, 0.6]])
    assert transport(np.array([0, 1]), none).accuracy == pytest.approx((0.2 + 0.3) / 2)
    # Twice as many source labels in the same shares say the same.
    assert transport(np.repeat(labels, 2), target).accuracy == pytest.approx(best)


def test_models_on_a_line_are_found_on_it() -> None:
    accuracy = np.array([0.6, 0.7, 0.8, 0.9])
    agreement = np.array([0.55, 0.6, 0.7, 0.65, 0.75, 0.85])
    slope, intercept = 0.7, -0.4

    def moved(shares: np.ndarray) -> np.ndarray:
        return np.asarray(ndtr(slope * ndtri(shares) + intercept))

    found = agreement_line(accuracy, agreement, moved(agreement))
    assert (found.slope, found.intercept) == pytest.approx((slope, intercept))
    assert found.fit == pytest.approx(1)
    assert found.simple == pytest.approx(moved(accuracy))
    assert found.paired == pytest.approx(moved(accuracy))
    with pytest.raises(BadDataError, match="three models"):
        agreement_line(accuracy[:2], agreement[:1], agreement[:1])


def test_who_says_nothing_agrees_with_nobody() -> None:
    said = np.array([[0, 1, -1], [0, 2, -1], [1, 1, 0]])
    assert [(int(a), int(b)) for a, b in zip(*pairs_of(3), strict=True)] == [(0, 1), (0, 2), (1, 2)]
    assert agreements(said).T.tolist() == [[True, False, False], [False, True, False], [False] * 3]


def test_lure_is_unbiased_over_all_orders() -> None:
    losses, expected = np.array([1.0, 0.0, 0.0, 1.0]), np.array([0.5, 0.1, 0.3, 0.2])
    for count in (1, 2, 3, 4):
        mean = total = 0.0
        for order in permutations(range(4), count):
            chance = [
                chances(expected, np.array(order[:place], dtype=np.int64))[image]
                for place, image in enumerate(order)
            ]
            weight = float(np.prod(chance))
            mean += weight * float(lure_risk(losses[list(order)], np.array(chance), 4))
            total += weight
        assert total == pytest.approx(1)
        assert mean == pytest.approx(losses.mean())


def test_labels_tell_coda_the_better_of_two_models_in_any_order() -> None:
    truth = np.arange(40) % 4
    good, poor = np.eye(4)[truth] * 0.9 + 0.025, np.eye(4)[(truth + truth % 2) % 4] * 0.9 + 0.025
    one, other = (Coda(np.stack([good, poor]), rate=1.0) for _ in range(2))
    assert one.best() == pytest.approx([0.5, 0.5], abs=0.2)
    for image in range(20):
        one.add(image, int(truth[image]))
        other.add(19 - image, int(truth[19 - image]))
    assert one.best()[0] > 0.7
    assert one.best() == pytest.approx(other.best(), rel=1e-12)
    # Only images on which they differ can tell; those that are labelled are not asked again.
    assert set(one.candidates().tolist()) == {i for i in range(20, 40) if i % 2}


def test_any_of_several_right_classes_counts_as_a_hit() -> None:
    said = np.array([[0, 0], [1, 1], [2, 2]])
    odds = np.full((3, 2, 3), 1 / 3)
    one, other = (Coda(odds.copy(), rate=1.0, said=said) for _ in range(2))
    one.add(0, 0, np.array([True, True, False]))
    assert one.best()[0] == pytest.approx(one.best()[1])
    assert one.best()[0] > one.best()[2]
    other.add(0, 0)
    assert other.best()[0] > other.best()[1] == pytest.approx(other.best()[2])

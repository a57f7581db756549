"""Certificates of a linear classifier, whose true radius is known; noise; going on after a kill."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm
from torch import Tensor, nn

from pico import make_classifier, make_dataset
from stockpot.corrupt.draws import Draws
from stockpot.measure.measurement import Context
from stockpot.measure.unknown import certified as room
from stockpot.measure.unknown.certified import certified, gaussian
from stockpot.measure.unknown.smoothing import largest_radius, lower_bound


class Half(nn.Module):
    """Two classes with a plane between them: the margin over |w| is the distance to it."""

    def __init__(self, dataset) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        pixels = next(dataset.batches(len(dataset))).images.float().flatten(1) / 255
        self.weight = nn.Parameter(torch.randn(768, generator=generator))
        self.bias = nn.Parameter(-(pixels @ self.weight).median())
        self.calls = 0

    def margin(self, pixels: Tensor) -> Tensor:
        return (pixels.flatten(1) @ self.weight + self.bias) / self.weight.norm()

    def forward(self, pixels: Tensor) -> Tensor:
        self.calls += len(pixels)
        margin = self.margin(pixels)
        return torch.stack([margin, -margin], dim=1)


TWO = ("up", "down")


def test_the_radius_of_a_linear_classifier_is_its_margin() -> None:
    """Smoothing changes nothing of a half-space: the radius is the distance, less the doubt."""
    data = make_dataset(12, classes=TWO)
    network = Half(data)
    model = make_classifier(network, TWO)
    sigma, n, alpha = 0.5, 2000, 0.001
    found = certified(model, data, Context(batch_size=500), sigma=sigma, n=n, n0=20, alpha=alpha)
    assert found.images == 12 * 2020 == network.calls
    pixels = next(data.batches(12)).images.float() / 255
    margin = network.margin(pixels).detach().numpy()
    truth = np.where(margin > 0, 0, 1) == data.labels.numpy()
    # What so many draws would certify if they came out as they are expected to.
    expected = [
        sigma * norm.ppf(lower_bound(round(n * norm.cdf(abs(m) / sigma)), n, alpha))
        if norm.cdf(abs(m) / sigma) > 0.6 else None
        for m in margin
    ]  # fmt: skip
    known = [row for row, radius in enumerate(expected) if radius is not None]
    assert len(known) >= 4
    for score in found.scores:
        if score.metric == "certified_accuracy":
            radius = float(score.condition["radius"])
            # No certificate reaches beyond the distance (each fails once in a thousand).
            assert score.value <= np.mean(truth & (np.abs(margin) >= radius))
    mean = next(s.value for s in found.scores if s.metric == "mean_certified_radius")
    sure = sum(expected[row] for row in known if truth[row]) / 12
    assert mean == pytest.approx(sure, abs=0.05)
    assert np.array_equal(found.outcomes["correct"][known], truth[known])
    # The curve ends where all draws agree.
    last = max(float(s.condition["radius"]) for s in found.scores if "radius" in s.condition)
    assert last <= largest_radius(n, sigma, alpha) < last + 0.05
    assert largest_radius(n, sigma, alpha) == pytest.approx(sigma * norm.ppf(alpha ** (1 / n)))


def test_the_noise_is_gaussian_and_belongs_to_its_image() -> None:
    device = torch.device("cpu")
    noise = gaussian(Draws(list(range(400)), "smoothing", device), torch.Size([3, 7, 5]))
    assert noise.shape == (400, 3, 7, 5)
    # Of true Gaussians every p value is as likely as any other.
    chances = [kstest(part.flatten().double().numpy(), "norm").pvalue for part in noise.split(20)]
    assert kstest(chances, "uniform").pvalue > 0.01
    shares = np.corrcoef(noise.flatten(1).double().numpy()[:20])
    assert np.abs(shares - np.eye(20)).max() < 0.4
    again = gaussian(Draws([7], "smoothing", device), torch.Size([3, 7, 5]))
    assert torch.equal(again[0], noise[7])


def test_batch_sizes_and_a_kill_change_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(room, "_SHARD", 3)
    data = make_dataset(8, classes=TWO)
    params = {"sigma": 0.5, "n": 30, "n0": 5}
    whole = certified(make_classifier(Half(data), TWO), data, Context(batch_size=64), **params)
    network = Half(data)

    def stop(what: str, done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    context = Context(batch_size=7, progress=stop, scratch=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        certified(make_classifier(network, TWO), data, context, **params)
    network.calls = 0
    context = Context(batch_size=11, scratch=tmp_path)
    found = certified(make_classifier(network, TWO), data, context, **params)
    assert network.calls == 5 * 35  # the first three are not repeated
    assert found.scores == whole.scores
    assert found.outcomes["abstained"].tolist() == whole.outcomes["abstained"].tolist()
    other = certified(
        make_classifier(Half(data), TWO), data, Context(seed=100), **{**params, "n": 200}
    )
    assert other.scores != whole.scores


def test_what_is_no_answer_is_certified_as_nothing() -> None:
    class Silent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.tensor(torch.nan))

        def forward(self, pixels: Tensor) -> Tensor:
            return self.value.expand(len(pixels), 2)

    data = make_dataset(4, classes=TWO)
    found = certified(make_classifier(Silent(), TWO), data, Context(), n=50, n0=5)
    values = {score.metric: score.value for score in found.scores}
    assert values["smoothed_accuracy"] == values["certified_accuracy"] == 0
    assert values["mean_certified_radius"] == 0

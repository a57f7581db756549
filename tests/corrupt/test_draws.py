"""The counter-based generator: distributions, independence, exactness of the Poisson tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.constants import TABLES
from stockpot.corrupt.draws import Draws

CPU = torch.device("cpu")


def draws(*seeds: int, cell: str = "test") -> Draws:
    return Draws(seeds, cell, CPU)


def test_words_are_a_function_of_seed_and_index_alone() -> None:
    together = draws(3, 4, 5).bits(1000)
    assert torch.equal(together[1], draws(4).bits(1000)[0])
    assert torch.equal(together[:, :10], draws(3, 4, 5).bits(10))
    assert not torch.equal(draws(3).bits(9), draws(3, cell="other").bits(9))
    assert not torch.equal(draws(3).bits(9), draws(3).bits(9, stream=1))


def test_known_words_never_change() -> None:
    # Results made years apart must agree: the generator is part of what a number means. The words
    # are recomputed here in plain Python integers.
    def mix(word: int) -> int:
        word = (word + 0x9E3779B97F4A7C15) % 2**64
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        return word ^ (word >> 31)

    def word_at(key: int, index: int) -> int:
        word = (index + (key & 0xFFFFFFFF)) % 2**32
        word = (word ^ (word >> 17)) * 0xED5AD4BB % 2**32
        word ^= key >> 32
        word = (word ^ (word >> 11)) * 0xAC4C1B51 % 2**32
        word = (word ^ (word >> 15)) * 0x31848BAB % 2**32
        return word ^ (word >> 14)

    import zlib

    cell = zlib.crc32(b"test") * 0x9E3779B97F4A7C15 % 2**64
    key = mix((mix(-7 % 2**64) + cell) % 2**64)
    expected = [word_at(key, index) for index in range(50)]
    ours = draws(-7).bits(50)[0].numpy().view(np.uint32)
    assert ours.tolist() == expected


def test_bits_are_even_and_uncorrelated() -> None:
    words = draws(*range(64)).bits(1 << 14).numpy().view(np.uint32)
    bits = np.unpackbits(words.view(np.uint8), axis=1).reshape(64, -1, 32)
    counts = bits.sum((0, 1))
    total = 64 << 14
    assert np.abs(counts - total / 2).max() < 5 * np.sqrt(total) / 2
    uniform = words / 2**32 - 0.5
    limit = 5 / np.sqrt(uniform.size)
    for lag in (1, 2, 3, 224, 224 * 224 % (1 << 14)):
        assert abs((uniform[:, lag:] * uniform[:, :-lag]).mean() * 12) < limit * 1.1
    assert abs((uniform[1:] * uniform[:-1]).mean() * 12) < limit * 1.1  # neighbouring seeds
    chi_square = stats.chisquare(np.bincount((words >> 20).ravel(), minlength=4096))
    assert 1e-4 < chi_square.pvalue < 1 - 1e-4


def test_floats_follow_their_distributions() -> None:
    uniform = draws(1).uniform((200_000,))[0].numpy()
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3
    normal = draws(1).normal((200_000,))[0].numpy()
    assert stats.kstest(normal, "norm").pvalue > 1e-3
    assert abs(normal.std() - 1) < 0.01
    assert abs(stats.kurtosis(normal)) < 0.06


@pytest.mark.parametrize("reach", [1, 2, 3, 4])
def test_integers_are_even(reach: int) -> None:
    values = draws(1).integers(-reach, reach, (120_000,))[0].numpy()
    counts = np.bincount(values + reach, minlength=2 * reach)
    assert len(counts) == 2 * reach
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("profile", ["imagenet", "cifar"])
@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("level", [0, 1, 60, 128, 254, 255])
def test_shot_noise_is_poisson(profile: str, severity: int, level: int) -> None:
    (white,) = TABLES[profile]["shot_noise"][severity - 1]  # type: ignore[index]
    flat = torch.full((4, 3, 128, 128), level, dtype=torch.uint8)
    result = corrupt(flat, "shot_noise", severity, profile=profile).flatten().numpy()  # type: ignore[arg-type]
    shown = (np.minimum(np.arange(int(white) + 1) / white, 1) * 255).astype(np.uint8)
    rate = level / 255 * white
    chance = stats.poisson.pmf(np.arange(int(white) + 1), rate)
    chance[-1] = stats.poisson.sf(int(white) - 1, rate)
    expected = np.bincount(shown, chance, minlength=256) * result.size
    seen = np.bincount(result, minlength=256)
    common = expected > 8
    assert seen[expected == 0].sum() == 0
    if common.sum() > 1:
        statistic = ((seen - expected)[common] ** 2 / expected[common]).sum()
        assert stats.chi2.sf(statistic, common.sum() - 1) > 1e-4
    else:
        assert seen[common][0] == pytest.approx(result.size, rel=1e-3)

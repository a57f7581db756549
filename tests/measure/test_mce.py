"""The arithmetic of corruption errors against the paper's own figures."""

from __future__ import annotations

from statistics import fmean

import pytest

from stockpot.corrupt import BENCHMARK, EXTRA, SEVERITIES
from stockpot.errors import BadParameterError
from stockpot.measure.mce import (
    ALEXNET,
    ALEXNET_CLEAN,
    ALEXNET_MEANS,
    Baseline,
    mean_accuracy,
    named_baseline,
    score,
)

# ResNet-50 as the paper prints it (arXiv:1903.12261, Table 1): CE in percent, and the clean error.
RESNET_50 = dict(
    zip(
        BENCHMARK,
        (80, 82, 83, 75, 89, 78, 80, 78, 75, 66, 57, 71, 85, 77, 77),
        strict=True,
    )
)
RESNET_50_CLEAN = 0.239


def resnet_errors() -> dict[str, dict[int, float]]:
    return {
        name: dict.fromkeys(SEVERITIES, ce / 100 * ALEXNET_MEANS[name])
        for name, ce in RESNET_50.items()
    }


def test_the_constants_are_the_means_of_the_table() -> None:
    assert set(ALEXNET) == set(BENCHMARK)
    assert set(ALEXNET_MEANS) == {*BENCHMARK, *EXTRA}
    for name, row in ALEXNET.items():
        assert fmean(row) == pytest.approx(ALEXNET_MEANS[name], abs=1e-9)


def test_resnet_50_has_the_papers_figures() -> None:
    result = score(resnet_errors(), RESNET_50_CLEAN, named_baseline("alexnet-constants"))
    assert result.convention == "mce:alexnet-constants"
    assert round(100 * result.ce["pixelate"]) == 77
    assert round(100 * result.relative_ce["pixelate"]) == 111
    # The printed row is rounded to whole percents, which moves the mean by up to 0.2.
    assert result.mce == pytest.approx(0.767, abs=0.002)
    assert result.left_out == result.relative_left_out == ()


@pytest.mark.parametrize("name", ["alexnet-constants", "alexnet-severities"])
def test_alexnet_itself_scores_one(name: str) -> None:
    errors = {key: dict(zip(SEVERITIES, row, strict=True)) for key, row in ALEXNET.items()}
    result = score(errors, ALEXNET_CLEAN, named_baseline(name))
    assert result.mce == pytest.approx(1)
    assert result.relative_mce == pytest.approx(1)
    assert all(value == pytest.approx(1) for value in result.ce.values())


def test_a_subset_of_severities_needs_the_table() -> None:
    errors = {"fog": {1: 0.5, 3: 0.6}}
    by_table = score(errors, 0.2, named_baseline("alexnet-severities"))
    assert by_table.ce["fog"] == pytest.approx((0.5 + 0.6) / (0.67474 + 0.84378))
    assert by_table.convention == "mce:alexnet-severities:1-of-15x2"
    by_means = score(errors, 0.2, named_baseline("alexnet-constants"))
    assert by_means.mce is None
    assert by_means.left_out == ("fog",)


def test_the_four_for_validation_are_divided_by_the_papers_figures() -> None:
    errors = {name: dict.fromkeys(SEVERITIES, 0.5) for name in (*BENCHMARK, *EXTRA)}
    result = score(errors, 0.2, named_baseline("alexnet-constants"))
    printed = {"speckle_noise": 84.5, "gaussian_blur": 78.7, "spatter": 71.8, "saturate": 65.8}
    assert {name: result.ce[name] for name in EXTRA} == pytest.approx(
        {name: 50 / value for name, value in printed.items()}
    )
    assert result.mce == pytest.approx(fmean(result.ce[name] for name in BENCHMARK))
    assert result.convention == "mce:alexnet-constants"


def test_extras_have_scores_but_enter_no_mean() -> None:
    baseline = Baseline("linear", {"fog": {1: 0.5}, "spatter": {1: 0.1}}, clean=0.05)
    result = score({"fog": {1: 0.25}, "spatter": {1: 0.1}}, 0.05, baseline)
    assert result.ce == {"fog": 0.5, "spatter": 1.0}
    assert result.mce == 0.5


def test_small_denominators_are_left_out() -> None:
    errors = {"fog": {1: 0.5}, "brightness": {1: 0.21}, "snow": {1: 0.3}}
    baseline = Baseline(
        "pico", {"fog": {1: 0.4}, "brightness": {1: 0.205}, "snow": {1: 0.004}}, clean=0.2
    )
    result = score(errors, 0.2, baseline)
    assert result.left_out == ("snow",)
    assert set(result.relative_left_out) == {"snow", "brightness"}
    assert result.relative_ce == {"fog": pytest.approx(0.3 / 0.2)}
    assert result.relative_mce == pytest.approx(1.5)


def test_without_a_baseline_errors_stay_errors() -> None:
    result = score({"fog": {1: 0.5, 2: 0.7}}, 0.1, named_baseline("none"))
    assert result.mce == pytest.approx(0.6)
    assert result.relative_mce == pytest.approx(0.5)
    assert score({"fog": {1: 0.5}}, None, None).relative_mce is None


def test_mean_accuracy_counts_the_benchmark_only() -> None:
    assert mean_accuracy({"fog": {1: 0.5, 2: 0.7}, "spatter": {1: 1.0}}) == pytest.approx(0.4)


def test_an_unknown_baseline_is_named() -> None:
    with pytest.raises(BadParameterError, match="alexnet-constants"):
        named_baseline("alexnet")
